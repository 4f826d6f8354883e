"""Cloud: one of the stores that is not plain S3, as a test finds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import obstore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A store, and what reaches it."""

    root: str  #: the URL of the bucket
    prefix: str  #: of this test alone
    options: str  #: what follows a URL
    environment: Mapping[str, str]
    secret: str  #: what must be nowhere
    wrong: Mapping[str, str]  #: with this in the environment, the store refuses
    refusal: str  #: what is said then
    kind: str  #: what the store calls a bucket
    client: Any  #: reads the bucket without dumpstream
    uploads: Callable[[], list[str]]  #: those that are neither finished nor aborted
    forgets: bool  #: it drops those by itself, and they cannot be aborted

    @property
    def url(self) -> str:
        return f"{self.root}/{self.prefix}{self.options}"

    @property
    def missing(self) -> str:
        """The URL of a place in a bucket that is not there."""
        return f"{self.root}-none/run{self.options}"

    def objects(self) -> dict[str, bytes]:
        """Return everything below the prefix."""
        metas = [meta for page in obstore.list(self.client, self.prefix) for meta in page]
        return {
            meta["path"].removeprefix(f"{self.prefix}/"): bytes(
                obstore.get(self.client, meta["path"]).bytes()
            )
            for meta in metas
        }
