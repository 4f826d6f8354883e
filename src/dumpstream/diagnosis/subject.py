"""Subject: the run that is diagnosed, as it is read from a capture, from dump files or from tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dumpstream._errors import DumpstreamError, NotACaptureError
from dumpstream.analysis.measurement import measure_batches
from dumpstream.analysis.modes import settings_of
from dumpstream.analysis.overflow import BadRecord, OverflowRecord, read_records
from dumpstream.analysis.sources import Wanted
from dumpstream.archive.manifest import MANIFEST
from dumpstream.config.model import DumpSettings, Mode
from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.trace import COLUMNS, OUTPUT, UNKNOWN, Mask, Trace, TraceBuilder, place_of
from dumpstream.diagnosis.evidence import NOTHING_HIDDEN, Hidden
from dumpstream.format.header import IO
from dumpstream.format.opname import OVERFLOW_OPERATOR, as_in_file_names
from dumpstream.reading.collection import Collection as Captures
from dumpstream.reading.collection import Member
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.inputs import Input, find_inputs, is_capture
from dumpstream.reading.problem import Kind, problem_of_member, problems_of_capture
from dumpstream.system.location import Prefix
from dumpstream.system.walk import walk_paths

_MOST_NAMES = 4
_UNCONFIGURED = (
    "the configuration that it was dumped with: if a blacklist left inputs of an operator out, what was bad "
    "may have been in them"
)
_GROWING = "is still being captured, so more may follow"
#: The modes in which operators are dumped as they run.
_MODES = {Mode.MODEL, Mode.OP, Mode.OVERFLOW}
#: What is wrong with a capture if files that came before others are not there.
_LOSSES = {Kind.LOSS, Kind.VERDICT, Kind.MISSING, Kind.DAMAGED, Kind.JOURNAL}


@dataclass(frozen=True, eq=False)
class Subject:
    """A run, and what is known to be missing of it."""

    path: Path | Prefix
    trace: Trace
    missing: tuple[str, ...] = ()  #: what was not captured, or cannot be read
    hidden: Hidden = NOTHING_HIDDEN
    lossy: bool = False  #: whether files of it were lost
    records: tuple[OverflowRecord, ...] = ()  #: of overflows
    unmatched: tuple[OverflowRecord, ...] = ()  #: those whose operators are not in the dump
    only_overflows: bool = False  #: whether only operators that overflowed were dumped

    def open_files(self, names: Collection[str]) -> Iterator[tuple[DumpFile, str]]:
        """Yield the files that rows call *names*, which the caller closes; those that can be opened."""
        if not names:
            return
        path = self.path
        plain = [it for it in names if isinstance(path, Path) and Path(it).is_relative_to(path)]
        for name in plain:
            with suppress(DumpstreamError, OSError):
                yield DumpFile.open(Path(name)), name
        wanted = {*names} - {*plain}
        if wanted and (isinstance(path, Prefix) or path.is_dir()):
            for item in _inputs_of_names(path, [*wanted]):
                if item.label in wanted and item.not_stored is None:
                    with suppress(DumpstreamError, OSError):
                        yield item.open(), item.label


@dataclass
class _Known:
    """What the manifests and journals of captures say."""

    missing: list[str] = field(default_factory=list)
    hidden: set[tuple[str, str]] = field(default_factory=set)
    lossy: bool = False
    modes: set[Mode] = field(default_factory=set)
    unknown_mode: bool = False
    configured: bool = False  #: whether the configuration of at least one process is known
    unconfigured: bool = False  #: whether that of at least one is not


def _inputs_of_names(path: Path | Prefix, names: Sequence[str]) -> Iterator[Input]:
    with suppress(DumpstreamError):  # not all of them are there, which is found out last
        yield from find_inputs([path], patterns=names)


def read_subject(
    path: Path | Prefix,
    ranks: Sequence[int] = (),
    hosts: Sequence[str] = (),
    *,
    progress: Callable[[int, int], None] = lambda _files, _bytes: None,
) -> Subject:
    """Read the statistics of the run at *path*; calls *progress* with the files and bytes that were read.

    Raises:
        DumpstreamError: there is no run, or its operators were not dumped as they ran.
    """
    captures = _captures_below(path)
    known = _Known()
    for capture in captures or (path,):
        _read_captures(capture, ranks, hosts, known, f"{capture}/" if len(captures) > 1 else "")
    if known.modes and not known.unknown_mode and not known.modes & _MODES:
        names = " and ".join(sorted(known.modes))
        raise DumpstreamError(
            f"{path} was captured in mode {names}, in which operators are not dumped as they run; "
            "capture with what `config new --mode model` writes"
        )
    if known.unconfigured or not known.configured:
        known.missing.append(_UNCONFIGURED)
    if len(captures) > 1:
        names = ", ".join(it.name for it in captures[:_MOST_NAMES])
        known.missing.append(
            f"{path} holds {len(captures)} captures, taken for different jobs; name one: {names}"
        )
    builder = TraceBuilder()
    problems: list[str] = []
    files = size = 0
    paths = captures if len(captures) > 1 else [path]
    for batch in measure_batches(paths, Wanted(columns=COLUMNS), ranks=ranks, hosts=hosts):
        builder.add(batch.tensors)
        for file in batch.files:
            files, size = files + 1, size + file.bytes
            problems += file.problems
        progress(files, size)
    trace = builder.build()
    records = [*_records(paths, ranks, hosts, trace, known.missing)]
    only_overflows = known.modes == {Mode.OVERFLOW} and not known.unknown_mode
    if not records and not known.modes and _has_records(trace):  # so it was dumped in that mode
        known.missing.append("the records of overflows are not there: all operators in the dump overflowed")
        only_overflows = True
    unmatched = (*_unmatched(trace, records),)
    known.missing += [overflow_text(it) for it in unmatched]
    return Subject(
        path,
        trace,
        (*dict.fromkeys([*known.missing, *problems]),),
        frozenset(known.hidden),
        known.lossy or bool(unmatched),
        tuple(records),
        unmatched,
        only_overflows,
    )


def refuse_nothing(subject: Subject) -> None:
    """Raise `DumpstreamError` if the run has no tensors, of which nothing can be said."""
    if not len(subject.trace):
        why = f" ({subject.missing[0]})" if subject.missing else ""
        raise DumpstreamError(
            f"{subject.path} has no tensors of operators{why}; name a capture, a directory of dump files, "
            "or a table of statistics"
        )


def _captures_below(path: Path | Prefix) -> list[Path]:
    """Return the captures in the directory *path*; none if it is itself one, or a job of several hosts."""
    if isinstance(path, Prefix) or is_capture(path) or not path.is_dir():
        return []
    found = []
    for folder, folders, files in walk_paths(path):
        if MANIFEST in files:
            found.append(Path(folder))
            folders.clear()
    return found


def overflowed(trace: Trace, executions: Executions, records: Iterable[OverflowRecord]) -> Mask:
    """Return the outputs of operators that overflowed, by the *records* of the device."""
    found = np.zeros(len(trace), np.bool_)
    for record in records:
        fits = (executions.task == record.task) & (executions.stream == record.stream)
        fits &= np.isin(executions.process, _processes_of(trace, record))
        if record.name.iteration is not None:
            fits &= executions.step == record.name.iteration
        numbers = np.flatnonzero(fits)
        if not len(numbers):
            continue
        times = [_time(trace, executions, it) for it in numbers.tolist()]
        nearest = numbers[int(np.argmin(np.abs(np.array(times) - (record.name.timestamp or 0))))]
        found[executions.outputs.of(int(nearest))] = True
    return found


def overflow_text(record: OverflowRecord) -> str:
    """Return what *record* says, whose operator is not in the dump."""
    step = "" if record.name.iteration is None else f" in step {record.name.iteration}"
    which = f"task {record.task} of stream {record.stream}"
    return f"{record.file}: the operator that overflowed{step}, {which}, is not in the dump"


def _unmatched(trace: Trace, records: Sequence[OverflowRecord]) -> Iterator[OverflowRecord]:
    """Yield those of *records* of which no operator is in the dump."""
    if not records:
        return
    names = ("task", "stream", "iteration")
    op_type, _ = OVERFLOW_OPERATOR
    of_operators = np.array([it != op_type for it in trace.texts["op_type"]], np.bool_)
    outputs = (trace.io == OUTPUT) & of_operators[trace.codes["op_type"]]
    rows = np.stack([trace.process[outputs], *(trace.counts[name][outputs] for name in names)], axis=1)
    ran = {*map(tuple, np.unique(rows, axis=0).tolist())}
    of_any_step = {it[:3] for it in ran}
    for it in records:
        step = it.name.iteration
        known, behind = (of_any_step, ()) if step is None else (ran, (step,))
        ran_as = ((number, it.task, it.stream, *behind) for number in _processes_of(trace, it))
        if it.task is not None and known.isdisjoint(ran_as):
            yield it


def _processes_of(trace: Trace, record: OverflowRecord) -> list[int]:
    """Return the numbers of the processes that *record* may be of."""
    place = place_of(record.file)
    return [
        number
        for number, it in enumerate(trace.processes)
        if (it.host, it.rank, it.place) == (record.host, record.rank, place)
        and record.name.device in {None, it.device}
    ]


def _time(trace: Trace, executions: Executions, execution: int) -> int:
    rows = [*executions.outputs.of(execution), *executions.inputs.of(execution)]
    return max((int(trace.counts["timestamp"][row]) for row in rows), default=UNKNOWN)


def _read_captures(
    path: Path | Prefix, ranks: Sequence[int], hosts: Sequence[str], known: _Known, prefix: str
) -> None:
    """Add to *known* what the captures at *path* say; *prefix* tells their problems from those of others."""
    for member in _members(path, ranks, hosts):
        if member.capture is None:
            known.unconfigured = True
            known.missing.append(problem_of_member(member).below(prefix).text)
            continue
        problems = problems_of_capture(member.capture, member.prefix, process=member.process)
        found = [problem.below(prefix) for problem in problems]
        known.lossy |= not _LOSSES.isdisjoint(it.kind for it in found)
        known.missing += [f"{it.subject}: {_GROWING}" if it.kind is Kind.RUNNING else it.text for it in found]
        for settings in settings_of(member.capture):
            if settings is None:
                known.unknown_mode = known.unconfigured = True
            else:
                known.configured = True
                known.modes |= {*settings.modes}
                known.hidden |= hidden_by(settings)


def _members(path: Path | Prefix, ranks: Sequence[int], hosts: Sequence[str]) -> Iterator[Member]:
    """Yield the captures at *path*; none if it is a directory that CANN wrote, or a file."""
    try:
        yield from Captures.open(path, ranks, hosts).members()
    except NotACaptureError:
        if isinstance(path, Prefix):
            raise


def hidden_by(settings: DumpSettings) -> set[tuple[str, str]]:
    """Return the types and names of operators of which *settings* leave tensors out, as `Hidden` has them."""
    lists = [item for it in settings.dump_list for item in (*it.optype_blacklist, *it.opname_blacklist)]
    return {
        (str(io), name)
        for item in lists
        for io in (IO.INPUT, IO.OUTPUT)
        for name in (item.name, as_in_file_names(item.name))
        if any(pos.startswith(str(io)) for pos in item.pos)
    }


def _has_records(trace: Trace) -> bool:
    op_type, _ = OVERFLOW_OPERATOR
    return op_type in trace.texts["op_type"]


def _records(
    paths: Sequence[Path | Prefix],
    ranks: Sequence[int],
    hosts: Sequence[str],
    trace: Trace,
    missing: list[str],
) -> Iterable[OverflowRecord]:
    """Yield the records of overflows; what cannot be read is added to *missing*."""
    if not _has_records(trace):
        return
    op_type, op_name = OVERFLOW_OPERATOR
    try:
        for record in read_records(find_inputs(paths, ranks, [f"*{op_type}.{op_name}.*"], hosts=hosts)):
            if isinstance(record, BadRecord):
                missing.append(f"{record.file}: {record.problem}")
            else:
                yield record
    except DumpstreamError as exc:  # the rows of the records are there, but not their files
        missing.append(f"the records of overflows cannot be read: {exc}")
