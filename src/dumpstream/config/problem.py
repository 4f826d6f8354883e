"""Rules, and problems: what can be wrong with a configuration, and where it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from dumpstream.config.model import AclConfig, DumpSettings

#: The keys and indices that lead from the root of the file to a value.
Location = tuple[str | int, ...]


class Origin(StrEnum):
    """Where a rule comes from."""

    SOURCE = "source"
    DOCUMENTS = "documents"
    BOTH = "both"
    RELEASES = "releases"  #: the source of some releases; others do not have the rule


class Subject(NamedTuple):
    """What the rules look at."""

    config: AclConfig
    environment: Mapping[str, str]

    @property
    def dump(self) -> DumpSettings:
        """The settings, which most rules are about."""
        return self.config.dump


class Finding(NamedTuple):
    """A place where a rule is broken, and the words that its message needs."""

    location: Location
    words: dict[str, Any] = {}  # noqa: RUF012 - a default of a tuple, never changed


#: Yields every place where a rule is broken.
Condition = Callable[[Subject], Iterable[Finding]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A rule, and what CANN answers if it is broken."""

    id: str
    path: str  #: the JSON path it is about; ``[*]`` stands for any item
    message: str
    remedy: str
    origin: Origin
    refuses: bool = True  #: False: CANN accepts it, but it may not be what the author meant
    acl_error: int | None = None
    message_class: str | None = None
    find: Condition | None = None  #: None: found when the file is read
    on_disk: bool = False  #: needs to look at the disk

    def broken_at(self, finding: Finding, *, strict: bool = False) -> Problem:
        """Return the problem that *finding* is."""
        certain = self.origin in (Origin.SOURCE, Origin.BOTH)
        return Problem(
            rule=self.id,
            path=json_path(finding.location),
            message=self.message.format(**finding.words),
            remedy=self.remedy.format(**finding.words),
            is_error=self.refuses and (certain or strict),
            origin=self.origin,
            acl_error=self.acl_error,
            message_class=self.message_class,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A broken rule at a place in the file."""

    rule: str
    path: str
    message: str
    remedy: str
    is_error: bool
    origin: Origin
    acl_error: int | None
    message_class: str | None

    @property
    def text(self) -> str:
        """What is wrong and what to write instead."""
        return f"{self.message}; {self.remedy}"

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        fields = asdict(self)
        return {"severity": "error" if fields.pop("is_error") else "warning", **fields}


def json_path(location: Location) -> str:
    """Return *location* as a JSON path."""
    parts = ["$"]
    for part in location:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        elif re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII):
            parts.append(f".{part}")
        else:
            escaped = part.replace("\\", "\\\\").replace("'", "\\'")
            parts.append(f"['{escaped}']")
    return "".join(parts)
