"""AlertRow: the line of a journal that says what was found to be bad while the run went on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

_TEXTS = ("time", "sentence", "kind", "blame", "reason", "file")
_OPTIONAL_TEXTS = ("model", "op_type", "op_name", "io")
_OPTIONAL_NUMBERS = ("device", "step", "index", "count", "bad")
_LARGEST = 1 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertRow:
    """The first that is bad on a device, judged by what had come until then, or a correction of that."""

    time: str
    sentence: str  #: what happened, in words
    kind: str  #: what is bad, as `diagnose` calls it
    blame: str  #: whether the operator made it
    reason: str
    corrects: bool  #: whether it replaces the alert of the same device before it
    file: str  #: that has the bad tensor
    device: int | None = None
    model: str | None = None
    step: int | None = None
    op_type: str | None = None
    op_name: str | None = None
    io: str | None = None
    index: int | None = None
    count: int | None = None  #: elements
    bad: int | None = None  #: those that are bad

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> AlertRow:
        """Return the row with *fields*; those that this version does not know are passed over.

        Raises:
            LookupError: one is missing.
            TypeError: one is of another type.
            ValueError: a number is out of range.
        """
        known: dict[str, Any] = {name: _text(fields[name]) for name in _TEXTS}
        for names, check in ((_OPTIONAL_TEXTS, _text), (_OPTIONAL_NUMBERS, _number)):
            known |= {name: check(fields[name]) for name in names if fields.get(name) is not None}
        return cls(**known, corrects=fields["corrects"] is True)

    def to_line(self) -> str:
        """Return a line that 0.1.0, which refuses other types, takes for one that says nothing."""
        return json.dumps({"type": "merged", "through": 0, "alert": asdict(self)})


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(value)
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    if not 0 <= value < _LARGEST:
        raise ValueError(value)
    return value
