"""Subject: the run that is diagnosed, as it is read from a capture, from dump files or from tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dumpstream._errors import DumpstreamError, NotACaptureError
from dumpstream.analysis.measurement import measure_batches
from dumpstream.analysis.modes import settings_of
from dumpstream.analysis.overflow import BadRecord, OverflowRecord, read_records
from dumpstream.analysis.sources import Wanted
from dumpstream.config.model import DumpSettings, Mode
from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.trace import COLUMNS, UNKNOWN, Mask, Trace, TraceBuilder
from dumpstream.format.opname import OVERFLOW_OPERATOR
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.problem import problem_of_member, problems_of_capture
from dumpstream.system.location import Prefix

#: The modes in which operators are dumped as they run.
_MODES = {Mode.MODEL, Mode.OP, Mode.OVERFLOW}


@dataclass(frozen=True, eq=False)
class Subject:
    """A run, and what is known to be missing of it."""

    path: Path | Prefix
    trace: Trace
    missing: tuple[str, ...] = ()  #: what was not captured, or cannot be read
    #: Types and names of operators of which the configuration left inputs out.
    hidden: frozenset[str] = frozenset()
    records: tuple[OverflowRecord, ...] = ()  #: of overflows


@dataclass
class _Known:
    """What the manifests and journals of captures say."""

    missing: list[str] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    modes: set[Mode] = field(default_factory=set)
    unknown_mode: bool = False


def read_subject(
    path: Path | Prefix,
    ranks: Sequence[int] = (),
    *,
    progress: Callable[[int, int], None] = lambda _files, _bytes: None,
) -> Subject:
    """Read the statistics of the run at *path*; calls *progress* with the files and bytes that were read.

    Raises:
        DumpstreamError: there is no run, or its operators were not dumped as they ran.
    """
    known = _read_captures(path, ranks)
    if known.modes and not known.unknown_mode and not known.modes & _MODES:
        names = " and ".join(sorted(known.modes))
        raise DumpstreamError(
            f"{path} was captured in mode {names}, in which operators are not dumped as they run; "
            "capture with what `config new --mode model` writes"
        )
    builder = TraceBuilder()
    problems: list[str] = []
    files = size = 0
    for batch in measure_batches([path], Wanted(columns=COLUMNS), ranks=ranks):
        builder.add(batch.tensors.columns(COLUMNS))
        for file in batch.files:
            files, size = files + 1, size + file.bytes
            problems += file.problems
        progress(files, size)
    trace = builder.build()
    records = _records(path, ranks, trace, known.missing)
    missing = (*dict.fromkeys([*known.missing, *problems]),)
    return Subject(path, trace, missing, frozenset(known.hidden), tuple(records))


def overflowed(subject: Subject, executions: Executions) -> Mask:
    """Return the outputs of operators that overflowed, by the records of the device."""
    trace = subject.trace
    found = np.zeros(len(trace), np.bool_)
    for record in subject.records:
        fits = (executions.task == record.task) & (executions.stream == record.stream)
        of_process = [
            it.rank == record.rank and record.name.device in {None, it.device} for it in trace.processes
        ]
        fits &= np.array(of_process, np.bool_)[executions.process]
        if record.name.iteration is not None:
            fits &= executions.step == record.name.iteration
        numbers = np.flatnonzero(fits)
        if not len(numbers):
            continue
        times = [_time(trace, executions, it) for it in numbers.tolist()]
        nearest = numbers[int(np.argmin(np.abs(np.array(times) - (record.name.timestamp or 0))))]
        found[executions.outputs.of(int(nearest))] = True
    return found


def _time(trace: Trace, executions: Executions, execution: int) -> int:
    rows = [*executions.outputs.of(execution), *executions.inputs.of(execution)]
    return max((int(trace.counts["timestamp"][row]) for row in rows), default=UNKNOWN)


def _read_captures(path: Path | Prefix, ranks: Sequence[int]) -> _Known:
    known = _Known()
    for member in _members(path, ranks):
        if member.capture is None:
            known.missing.append(_text(problem_of_member(member)))
            continue
        found = problems_of_capture(member.capture, member.prefix, process=member.process)
        known.missing += [_text(problem) for problem in found]
        for settings in settings_of(member.capture):
            if settings is None:
                known.unknown_mode = True
            else:
                known.modes |= {*settings.modes}
                known.hidden |= _hidden(settings)
    return known


def _text(problem: object) -> str:
    subject, detail = getattr(problem, "subject", ""), getattr(problem, "detail", "")
    return f"{subject}: {detail}"


def _members(path: Path | Prefix, ranks: Sequence[int]) -> Iterator[Member]:
    """Yield the captures at *path*; none if it is a directory that CANN wrote, or a file."""
    try:
        yield from Collection.open(path, ranks).members()
    except NotACaptureError:
        if isinstance(path, Prefix):
            raise


def _hidden(settings: DumpSettings) -> set[str]:
    """Return the types and names of operators of which *settings* leave inputs out."""
    lists = [item for it in settings.dump_list for item in (*it.optype_blacklist, *it.opname_blacklist)]
    return {item.name for item in lists if any(pos.startswith("input") for pos in item.pos)}


def _records(
    path: Path | Prefix, ranks: Sequence[int], trace: Trace, missing: list[str]
) -> Iterable[OverflowRecord]:
    """Yield the records of overflows; what cannot be read is added to *missing*."""
    op_type, _ = OVERFLOW_OPERATOR
    codes = [code for code, text in enumerate(trace.texts["op_type"]) if text == op_type]
    rows = np.flatnonzero(np.isin(trace.codes["op_type"], codes))
    names = {it for row in rows.tolist() if (it := trace.text("file", row)) is not None}
    if not names:
        return
    for record in read_records(find_inputs([path], ranks, [*names])):
        if isinstance(record, BadRecord):
            missing.append(f"{record.file}: {record.problem}")
        else:
            yield record
