"""Totals: what all lines of a journal come to, kept so that they need not be read again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dumpstream.archive.alertrow import AlertRow
from dumpstream.archive.rows import BeginRow, EndRow, FileRow, LossRow, MergedRow, Row, UnreadableRow
from dumpstream.processes import PROCESS_GONE

_MOST_NUMBERS = 1000
_MOST_CAUSES = 1000
_MOST_ALERTS = 1000
_OTHER_CAUSES = "other causes"


@dataclass(slots=True)
class Totals:
    """The totals of the lines so far."""

    lines: int = 0
    files: int = 0  #: different names
    bytes: int = 0
    stored_bytes: int = 0
    not_stored: int = 0  #: lines of files whose bytes were not to be stored
    verdicts: dict[str, int] = field(default_factory=dict)  #: of files: the worst of each
    outcomes: dict[int, str | None] = field(default_factory=dict)  #: by run; None if it has no end
    died: int = 0  #: runs whose process was gone before it had said goodbye
    losses: dict[str, list[int]] = field(default_factory=dict)  #: by cause, the chunks and bytes
    alerts: list[dict[str, Any]] = field(default_factory=list)  #: the first ones, as `AlertRow` has them
    unreadable: int = 0
    unreadable_lines: list[int] = field(default_factory=list)  #: the numbers of the first ones
    torn: bool = False  #: whether a process was stopped in the middle of a line
    at_urls: bool = False  #: whether a part is in an object store,
    remote: bool = False  #: and whether it is the one to read

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Totals:
        """Return the totals of which `to_json` returned *fields*."""
        totals = cls(**fields)
        totals.outcomes = {int(run): outcome for run, outcome in totals.outcomes.items()}
        return totals

    def to_json(self) -> dict[str, Any]:
        """Return what JSON can hold of it, which is all."""
        return asdict(self)

    def note(self, row: Row) -> None:
        """Add a row that is not that of a file."""
        match row:
            case BeginRow():
                self.outcomes.setdefault(row.run, None)
            case EndRow():
                self.outcomes[row.run] = str(row.outcome)
                self.died += row.report.get("cut_off") == PROCESS_GONE
            case LossRow():
                cause = (
                    row.cause
                    if row.cause in self.losses or len(self.losses) < _MOST_CAUSES
                    else _OTHER_CAUSES
                )
                chunks, size = self.losses.get(cause, (0, 0))
                self.losses[cause] = [chunks + row.chunks, size + row.bytes]
            case UnreadableRow(torn=True):
                self.torn = True
            case UnreadableRow():
                self.unreadable += 1
                if len(self.unreadable_lines) < _MOST_NUMBERS:
                    self.unreadable_lines.append(row.line)
            case AlertRow():
                if len(self.alerts) < _MOST_ALERTS:
                    self.alerts.append(asdict(row))
            case MergedRow() | FileRow():
                pass
