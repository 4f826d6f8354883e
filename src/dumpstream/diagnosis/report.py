"""Report: what a diagnosis says, as values that can be printed, compared and written as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from dumpstream.analysis.overflow import OverflowRecord
from dumpstream.diagnosis.badness import Badness
from dumpstream.diagnosis.blame import Blame
from dumpstream.diagnosis.dataflow.trace import UNKNOWN
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.origins import Origin, Spread
from dumpstream.format.header import IO
from dumpstream.statistics.table import json_value

_IO = [str(io) for io in IO]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorReport:
    """One tensor, with columns of statistics; None where a value is not known."""

    host: str | None
    rank: int | None
    iteration: int | None
    task: int | None
    stream: int | None
    op_type: str | None
    op_name: str | None
    io: str
    index: int | None
    dtype: str | None
    shape: tuple[int, ...] | None
    count: int | None
    nan: int | None
    pos_inf: int | None
    neg_inf: int | None
    finite_min: float | None
    finite_max: float | None
    mean: float | None
    std: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OriginReport:
    """Where bad values begin."""

    kind: Badness
    blame: Blame
    reason: str
    host: str | None = None  #: in a job of several
    rank: int | None
    model: str | None
    step: int | None
    op_type: str | None
    op_name: str | None
    io: str
    index: int | None
    count: int | None  #: elements
    bad: int | None  #: those that are bad
    first_index: tuple[int, ...] | None = None  #: of the first of them; None if the bytes are not stored
    victims: tuple[int | None, ...] = ()  #: ranks that it reached, the nearest first
    victim_hosts: tuple[str | None, ...] = ()  #: of each victim
    hops: tuple[int, ...] = ()  #: of each victim: exchanges in between
    path: tuple[str, ...] = ()  #: operators that it went through
    confidence: str  #: ``high``: proven; ``medium``: proven but for the path; ``low``: not known
    missing: tuple[str, ...] = ()  #: what was not captured, and might change this


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceReport:
    """What the answer rests on."""

    tensors: tuple[TensorReport, ...] = ()  #: of the operator
    before: tuple[TensorReport, ...] = ()  #: outputs of the operators that ran before it
    history: tuple[TensorReport, ...] = ()  #: of the same operator, in earlier steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """The answer to what is wrong with a run."""

    found: bool  #: whether anything is bad
    sentence: str
    origins: tuple[OriginReport, ...] = ()  #: the first first
    evidence: EvidenceReport = field(default_factory=EvidenceReport)
    later: int = 0  #: places where bad values came from outside the dump afterwards
    missing: tuple[str, ...] = ()  #: what was not captured, or cannot be read
    next_config: dict[str, Any] | None = None  #: an ``acl.json`` that narrows it down

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        found: dict[str, Any] = _jsonable(asdict(self))
        return found


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return json_value(value)


def report_origin(
    evidence: Evidence, origin: Origin, spread: Spread, missing: Iterable[str] = ()
) -> OriginReport:
    """Return what is known of *origin*."""
    trace, row = evidence.trace, origin.row
    executions, number = evidence.executions, origin.execution
    kind = evidence.findings.kind(row)
    confidence = "low" if origin.blame is not Blame.MADE else "high" if spread.proven else "medium"
    return OriginReport(
        kind=kind,
        blame=origin.blame,
        reason=origin.reason,
        host=evidence.process_of(number).host,
        rank=evidence.process_of(number).rank,
        model=trace.text("model", row),
        step=_known(int(executions.step[number])),
        op_type=trace.text("op_type", row),
        op_name=trace.text("op_name", row),
        io=_IO[trace.io[row]],
        index=trace.number("index", row),
        count=trace.number("count", row),
        bad=_bad_elements(evidence, kind, row),
        victims=tuple(it.rank for it in spread.victims),
        victim_hosts=tuple(it.host for it in spread.victims),
        hops=tuple(it.hops for it in spread.victims),
        path=tuple(_name(evidence, it) for it in spread.path),
        confidence=confidence,
        missing=tuple(missing),
    )


def report_unmatched(record: OverflowRecord) -> OriginReport:
    """Return what is known of an overflow whose operator is not in the dump."""
    return OriginReport(
        kind=Badness.OVERFLOW,
        blame=Blame.UNKNOWN,
        reason=f"the device recorded it of task {record.task} on stream {record.stream}",
        host=record.host,
        rank=record.rank,
        model=record.name.model,
        step=record.name.iteration,
        op_type=None,
        op_name=None,
        io=str(IO.OUTPUT),
        index=None,
        count=None,
        bad=None,
        confidence="low",
    )


def report_tensor(evidence: Evidence, row: int) -> TensorReport:
    """Return what is known of the tensor *row*."""
    trace = evidence.trace
    texts: dict[str, Any] = {name: trace.text(name, row) for name in ("op_type", "op_name", "dtype")}
    counts: dict[str, Any] = {
        name: trace.number(name, row)
        for name in ("iteration", "task", "stream", "index", "count", "nan", "pos_inf", "neg_inf")
    }
    reals: dict[str, Any] = {
        name: float(trace.reals[name][row]) for name in ("finite_min", "finite_max", "mean", "std")
    }
    return TensorReport(
        host=trace.processes[int(trace.process[row])].host,
        rank=evidence.rank_of_row(row),
        io=_IO[trace.io[row]],
        shape=trace.shapes[int(trace.shape[row])],
        **texts,
        **counts,
        **reals,
    )


def _bad_elements(evidence: Evidence, kind: Badness, row: int) -> int | None:
    trace = evidence.trace
    if kind is Badness.NAN:
        return trace.number("nan", row)
    if kind is Badness.INF:
        return (trace.number("pos_inf", row) or 0) + (trace.number("neg_inf", row) or 0)
    count, share = trace.number("count", row), float(trace.reals["saturated"][row])
    return round(count * share) if kind is Badness.SATURATION and count is not None else None


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number


def _name(evidence: Evidence, execution: int) -> str:
    trace, executions = evidence.trace, evidence.executions
    op_name = trace.texts["op_name"][int(executions.op_name[execution])]
    return op_name or trace.texts["op_type"][int(executions.op_type[execution])] or "an operator"
