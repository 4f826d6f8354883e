"""Report: what a capture has received, stored and lost, as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

from dumpstream.format.verdict import Verdict
from dumpstream.processes import PROCESS_GONE

_NOT_CONFIGURED = (
    "nothing configures a dump: pass config (--config), or give aclInit an acl.json with a dump section"
)
_NOT_SWITCHED_ON = (
    "nothing is switched on in the configuration; dumpstream config explain says so, and what to write"
)
_EXCEPTION = "only an exception scene is configured: exception dumps go to disk, never through the callback"
_MODEL_NAME = (
    "no model is called as model_name has it: write the model file's name without its suffix, or the "
    "outermost name of the json that atc makes of it; only the latter if it is loaded from memory"
)
#: What may prevent a dump, however it is configured.
_ALWAYS = (
    "the models were loaded before the configuration was set: it only affects models loaded afterwards",
    "another callback was registered first: the runtime ignores a second one without an error",
)
#: Why a configuration may produce no chunk, by its mode.
_BY_MODE = {
    "model": (
        "no operator is called as dump_list has it (names are those after fusion), or no step is wanted",
        _MODEL_NAME,
    ),
    "op": ("the program calls no single operators",),
    "overflow": (
        "no operator overflowed",
        "the configuration has a dump_list beside dump_debug on, and the graph engine then dumps nothing",
    ),
    "watch": ("no watched operator is called as watcher_nodes has it; names are those after fusion",),
}


class LossCount(NamedTuple):
    """How much was lost for one cause."""

    chunks: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The state of a capture at one moment."""

    seconds: float  #: since the capture began
    chunks: int = 0  #: callbacks whose bytes arrived
    bytes: int = 0  #: in those chunks
    files: int = 0  #: finished files, each with a line in the journal
    open_files: int = 0
    stored_bytes: int = 0  #: what the finished files occupy in the sinks
    not_stored: int = 0  #: finished files whose bytes were not to be stored; they are not lost
    verdicts: dict[str, int] = field(default_factory=dict)  #: finished files by verdict
    losses: dict[str, LossCount] = field(default_factory=dict)  #: by cause
    unnamed_losses: int = 0  #: lost chunks whose file is not known by name
    waiting: int = 0  #: lines of the journal that are not yet in the object store, or whose files are not
    waiting_files: int = 0  #: finished files among them
    skipped_files: int = 0  #: finished files that consumers of `files` were too slow for, over all of them
    ring_bytes: int = 0
    ring_fill: int = 0  #: bytes of the ring in use
    failure: str | None = None  #: why the capture ended early
    cut_off: str | None = None  #: if the process that it captured did not end in order: why it is thought so
    modes: tuple[str, ...] | None = None  #: of the configuration; None if the capture has none
    own_process: bool = False  #: whether a process of its own stores the files
    profile: str | None = None  #: the profile's directory, below that of the capture

    @property
    def whole(self) -> bool:
        """Whether nothing was lost, every finished file is whole, and the captured process did not die."""
        ended = self.failure is None and self.cut_off != PROCESS_GONE
        return ended and not self.losses and all(Verdict(name).whole for name in self.verdicts)

    @property
    def chunks_per_second(self) -> float:
        """The mean rate since the beginning."""
        return self.chunks / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """The mean rate since the beginning."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def hints(self) -> tuple[str, ...]:
        """Possible reasons why no chunk has come at all, the likeliest first."""
        if self.chunks or self.losses:
            return ()
        if self.modes is None:
            return (_NOT_CONFIGURED, *_ALWAYS, _EXCEPTION)
        if "exception" in self.modes:
            return (_EXCEPTION,)
        if not self.modes:
            return (_NOT_SWITCHED_ON,)
        return (*(hint for mode in self.modes for hint in _BY_MODE[mode]), *_ALWAYS)

    def differs(self, other: Report) -> bool:
        """Whether something has happened between this report and the *other*; time alone does not count."""
        return replace(self, seconds=0.0, ring_fill=0) != replace(other, seconds=0.0, ring_fill=0)

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as values for JSON."""
        losses = {cause: loss._asdict() for cause, loss in self.losses.items()}
        return asdict(self) | {
            "losses": losses,
            "whole": self.whole,
            "chunks_per_second": round(self.chunks_per_second, 3),
            "bytes_per_second": round(self.bytes_per_second, 3),
            "hints": list(self.hints),
        }


def total_report(reports: Sequence[Report], seconds: float) -> Report:
    """Return the report of several captures that ran at the same time, for *seconds*."""
    verdicts: Counter[str] = Counter()
    lost_chunks: Counter[str] = Counter()
    lost_bytes: Counter[str] = Counter()
    for report in reports:
        verdicts.update(report.verdicts)
        for cause, loss in report.losses.items():
            lost_chunks[cause] += loss.chunks
            lost_bytes[cause] += loss.bytes
    return Report(
        seconds=seconds,
        verdicts=dict(sorted(verdicts.items())),
        losses={cause: LossCount(chunks, lost_bytes[cause]) for cause, chunks in lost_chunks.items()},
        failure=next((report.failure for report in reports if report.failure is not None), None),
        cut_off=next((report.cut_off for report in reports if report.cut_off is not None), None),
        modes=next((report.modes for report in reports if report.modes is not None), None),
        **{
            field.name: sum(getattr(report, field.name) for report in reports)
            for field in fields(Report)
            if type(field.default) is int
        },
    )
