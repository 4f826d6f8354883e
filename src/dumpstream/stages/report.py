"""Report: what a capture has received, stored and lost, as numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from dumpstream.format.verdict import Verdict

_NOT_CONFIGURED = (
    "nothing configures a dump: pass config (--config), or give aclInit an acl.json with a dump section"
)
_NOT_SWITCHED_ON = (
    "nothing is switched on in the configuration; dumpstream config explain says so, and what to write"
)
_EXCEPTION = "only an exception scene is configured: exception dumps go to disk, never through the callback"
#: What may prevent a dump, however it is configured.
_ALWAYS = (
    "the models were loaded before the configuration was set: it only affects models loaded afterwards",
    "another callback was registered first: the runtime ignores a second one without an error",
)
#: Why a configuration may produce no chunk, by its mode.
_BY_MODE = {
    "model": "no operator is called as dump_list has it (names are those after fusion), or no step is wanted",
    "op": "the program calls no single operators",
    "overflow": "no operator overflowed",
    "watch": "no watched operator is called as watcher_nodes has it; names are those after fusion",
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
    verdicts: dict[str, int] = field(default_factory=dict)  #: finished files by verdict
    losses: dict[str, LossCount] = field(default_factory=dict)  #: by cause
    unnamed_losses: int = 0  #: lost chunks whose file is not known by name
    waiting: int = 0  #: lines of the journal that are not yet in the object store, or whose files are not
    waiting_files: int = 0  #: finished files among them
    ring_bytes: int = 0
    ring_fill: int = 0  #: bytes of the ring in use
    failure: str | None = None  #: why the capture ended early
    modes: tuple[str, ...] | None = None  #: of the configuration; None if the capture has none
    profile: str | None = None  #: the profile's directory, below that of the capture

    @property
    def whole(self) -> bool:
        """Whether nothing was lost and every finished file is whole."""
        return not (self.losses or self.failure or any(not Verdict(name).whole for name in self.verdicts))

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
        return (*(_BY_MODE[mode] for mode in self.modes), *_ALWAYS) if self.modes else (_NOT_SWITCHED_ON,)

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
        modes=next((report.modes for report in reports if report.modes is not None), None),
        **{
            field.name: sum(getattr(report, field.name) for report in reports)
            for field in fields(Report)
            if isinstance(field.default, int)
        },
    )
