"""Description: where the objects of an outbox belong, as its capture has recorded it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from dumpstream._errors import StoreError
from dumpstream.archive.manifest import PACKS
from dumpstream.archive.storednames import is_file_path, is_table_path, pack_token
from dumpstream.system.location import GIVEN, Prefix, as_location

_FORMAT = 1
_PACKS_OF = re.compile(rf"(.+)/{PACKS}/([0-9a-f]{{8}})", re.ASCII)


@dataclass(frozen=True)
class Description:
    """What `dumpstream upload` has to know; every key that it touches is checked against this."""

    destination: str
    stores: list[str] = field(default_factory=list)  #: the URLs that the sinks store below
    packs: list[str] = field(default_factory=list)  #: with which the URLs of the packs of a sink begin
    #: The texts of the locks that the capture holds, by the URL of the prefix; None if it shares a lock.
    locks: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes) -> Description:
        """Return the description in *data*; raises `ValueError` if dumpstream cannot have written it."""
        try:
            fields = dict(json.loads(data))
            if fields.pop("format") != _FORMAT:
                raise ValueError(fields)
            description = cls(**fields)
            description._check()
        except (LookupError, TypeError, RecursionError, StoreError) as exc:
            raise ValueError(data) from exc
        return description

    def to_json(self) -> bytes:
        """Return the text that `parse` reads."""
        return json.dumps({"format": _FORMAT, **asdict(self)}).encode("ascii")

    @property
    def location(self) -> Path | Prefix:
        """Where the capture is."""
        return as_location(self.destination)

    @cached_property
    def prefixes(self) -> list[Prefix]:
        """Where its sinks store objects."""
        return [Prefix.parse(url) for url in self.stores]

    @property
    def touched(self) -> set[Prefix]:
        """Where an upload writes: where its sinks store objects and, if it is in a store, the capture."""
        return {*self.prefixes, *([self.location] if isinstance(self.location, Prefix) else [])}

    @property
    def needs_object(self) -> bool:
        """Whether a store was given as an object, which a later process does not have."""
        return any(url.startswith(f"{GIVEN}:") for url in (self.destination, *self.stores))

    def find_locks(self) -> dict[Prefix, str | None]:
        """Return the prefixes to lock for an upload, each with the text of the lock that was left there."""
        location, touched = self.location, self.touched
        locks: dict[Prefix, str | None] = {location: None} if isinstance(location, Prefix) else {}
        for url, left in self.locks.items():
            prefix = Prefix.parse(url)
            if any(map(prefix.covers, touched)):
                locks[prefix] = left
        return {prefix: locks[prefix] for prefix in sorted(locks, key=lambda prefix: prefix.url)}

    def locate(self, url: str) -> tuple[Prefix, str]:
        """Return the prefix and the key of the object *url*.

        Raises:
            StoreError: the capture cannot have stored an object there.
        """
        for prefix in self.prefixes:
            key = url.removeprefix(f"{prefix}/")
            if key != url and (is_file_path(key) or is_table_path(key) or self.is_pack(prefix, key)):
                return prefix, key
        raise StoreError(f"{url} is not a key of this capture; its outbox is damaged: restore it from a copy")

    def is_pack(self, prefix: Prefix, key: str) -> bool:
        """Whether *key* below *prefix* is the key of a pack of this capture, and of no other."""
        token = pack_token(key)
        return token is not None and f"{prefix}/{PACKS}/{token}" in self.packs

    def _check(self) -> None:
        if "\0" in self.destination or (type(self.stores), type(self.packs)) != (list, list):
            raise ValueError(self)
        locks = dict(self.locks)
        left = [text for text in locks.values() if text is not None]
        texts = [self.destination, *self.stores, *self.packs, *locks, *left]
        if any(type(text) is not str for text in texts):
            raise ValueError(self)
        stores = {str(_parse(url)) for url in self.stores}
        for url in self.locks:
            _parse(url)
        for begin in self.packs:
            match = _PACKS_OF.fullmatch(begin)
            if match is None or match[1] not in stores:
                raise ValueError(begin)
        if not self.destination.startswith(f"{GIVEN}:"):
            as_location(self.destination)


def _parse(url: str) -> Prefix | str:
    """Return the prefix of *url*, or what `str` makes of a prefix in a store that was given as an object."""
    return url if url.startswith(f"{GIVEN}:") else Prefix.parse(url)
