"""Overflows: which operators overflowed, each with the record of it and with the tensors beside it.

What a record says of task and stream is the operator's; what the name of its file says is the detector's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from dumpstream._errors import DumpFormatError, PartError
from dumpstream.format.header import IO
from dumpstream.format.opname import OVERFLOW_OPERATOR, OpName, Scheme, parse_name
from dumpstream.format.overflowrecord import decode_overflow
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.inputs import Input
from dumpstream.statistics.table import TensorRow

_EMPTY = (0, "0x0")
_IO_ORDER = {str(io): order for order, io in enumerate(IO)}
_ABOUT_ENTRY = ("valid", "accelerator", "reserved")
#: What a record and its files have in common, the surest first.
_COMMON = (("task", "stream", "directory"), ("task", "stream", "device", "iteration"), ("task", "stream"))


@dataclass(frozen=True, kw_only=True, slots=True)
class OverflowRecord:
    """What the device wrote down about the overflow of one task."""

    file: str
    name: OpName  #: of the file
    units: dict[str, dict[str, Any]]  #: which units detected it, and what each wrote down
    decoded: dict[str, Any]  #: all that the file says
    task: int | None = None  #: the operator's
    stream: int | None = None  #: the operator's
    process: str = ""  #: what tells it from the other processes of a capture, as `Input.prefix`
    rank: int | None = None  #: of that process
    host: str | None = None  #: that it ran on


@dataclass(frozen=True, kw_only=True, slots=True)
class Overflow:
    """An operator that overflowed; either the record or the tensors may be missing."""

    record: OverflowRecord | None
    rows: tuple[TensorRow, ...]  #: its tensors with their statistics, inputs first

    @property
    def timestamp(self) -> int:
        """When it was dumped: microseconds since the epoch, by the device's clock."""
        times = [row.timestamp for row in self.rows if row.timestamp is not None]
        if not times and self.record is not None and self.record.name.timestamp is not None:
            times = [self.record.name.timestamp]
        return min(times, default=0)


class BadRecord(NamedTuple):
    """A file that should be an overflow record and cannot be read."""

    file: str
    problem: str


def read_records(inputs: Iterable[Input]) -> Iterator[OverflowRecord | BadRecord]:
    """Yield what the overflow records among *inputs* say, one for each task, or one for none."""
    for item in inputs:
        name = parse_name(item.full_name)
        if name.scheme is Scheme.OVERFLOW:
            try:
                yield from _read_record(item, name)
            except (DumpFormatError, PartError) as exc:
                yield BadRecord(item.label, exc.detail)
            except OSError as exc:
                yield BadRecord(item.label, f"cannot be read: {exc.strerror}")


def _read_record(item: Input, name: OpName) -> list[OverflowRecord | BadRecord]:
    if not item.whole:
        return [BadRecord(item.label, f"is not whole ({item.verdict})")]
    with item.open() as dump:
        return records_of(dump, item.label, name, process=item.prefix, rank=item.rank, host=item.host)


def records_of(
    dump: DumpFile,
    file: str,
    name: OpName,
    *,
    process: str = "",
    rank: int | None = None,
    host: str | None = None,
) -> list[OverflowRecord | BadRecord]:
    """Return what *dump*, an overflow record, says.

    Raises:
        DumpFormatError: it is damaged.
        PartError: it cannot be read back.
    """
    stored = [tensor for tensor in dump.tensors if tensor.stored]
    if not stored:
        return [BadRecord(file, "has no bytes of a record; dump it again")]
    decoded = decode_overflow(dump.bytes(stored[0]))
    dump.read_to_end()
    tasks: dict[tuple[int | None, int | None], dict[str, dict[str, Any]]] = defaultdict(dict)
    for unit, numbers in _units(decoded).items():
        tasks[numbers.get("task_id"), numbers.get("stream_id")][unit] = numbers
    return [
        OverflowRecord(
            file=file,
            name=name,
            units=units,
            decoded=decoded,
            task=task,
            stream=stream,
            process=process,
            rank=rank,
            host=host,
        )
        for (task, stream), units in tasks.items() or [((None, None), {})]
    ]


def _units(decoded: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return which units detected something, and what each wrote down."""
    entry = decoded.get("entry")
    if entry is None:
        return {
            unit: numbers
            for unit, numbers in decoded.items()
            if any(value not in _EMPTY for value in numbers.values())
        }
    numbers = {name: value for name, value in entry.items() if name not in _ABOUT_ENTRY}
    return {entry["accelerator"]: numbers} if entry["valid"] else {}


def match_overflows(
    records: Iterable[OverflowRecord], rows: Mapping[str, Iterable[TensorRow]]
) -> list[Overflow]:
    """Return the operators that overflowed, in the order of time.

    *rows* are the statistics of all tensors of the run, by process. A record belongs to the files of its
    process with the task and the stream that it names, on the same device and in the same iteration as far as
    that is known. If there are several, as the same task comes again, those nearest in time do. What is left
    over, on either side, is in the result, too.
    """
    of_processes: dict[str, list[OverflowRecord]] = {process: [] for process in rows}
    for record in records:
        of_processes.setdefault(record.process, []).append(record)
    found = [
        overflow
        for process, of_process in of_processes.items()
        for overflow in _matched(of_process, rows.get(process, ()))
    ]
    return sorted(found, key=lambda overflow: overflow.timestamp)


def _matched(records: Iterable[OverflowRecord], rows: Iterable[TensorRow]) -> Iterator[Overflow]:
    drafts = [_Draft(_Place.of_record(record), record) for record in records]
    drafts.sort(key=lambda draft: draft.place.timestamp)
    left = _operator_files(rows)
    for names in _COMMON:
        left = _match(drafts, left, attrgetter(*names))
    for draft in [*drafts, *_without_record(left)]:
        yield Overflow(record=draft.record, rows=tuple(sorted(draft.rows, key=_tensor_order)))


class _Place(NamedTuple):
    """Where and when a record, or a file of an operator, belongs."""

    directory: str
    device: int | None
    iteration: int | None
    task: int | None
    stream: int | None
    timestamp: int

    @classmethod
    def of_record(cls, record: OverflowRecord) -> _Place:
        name, directory = record.name, record.file.rpartition("/")[0]
        return cls(directory, name.device, name.iteration, record.task, record.stream, name.timestamp or 0)

    @classmethod
    def of_file(cls, row: TensorRow) -> _Place:
        directory = row.file.rpartition("/")[0]
        return cls(directory, row.device, row.iteration, row.task, row.stream, row.timestamp or 0)

    def fits(self, other: _Place) -> bool:
        """Whether nothing that both know speaks against it."""
        known = ((self.device, other.device), (self.iteration, other.iteration))
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in known)


class _OperatorFile(NamedTuple):
    place: _Place
    op: tuple[str | None, str | None]
    slots: frozenset[Hashable]  #: which tensors of the operator it has
    rows: tuple[TensorRow, ...]


def _operator_files(rows: Iterable[TensorRow]) -> list[_OperatorFile]:
    files: dict[str, list[TensorRow]] = defaultdict(list)
    for row in rows:
        if (row.op_type, row.op_name) != OVERFLOW_OPERATOR:
            files[row.file].append(row)
    return [_operator_file(name, of_file) for name, of_file in files.items()]


def _operator_file(file: str, rows: Sequence[TensorRow]) -> _OperatorFile:
    first, name = rows[0], parse_name(file)
    slots = frozenset((name.context, name.thread, row.io, row.index) for row in rows)
    return _OperatorFile(_Place.of_file(first), (first.op_type, first.op_name), slots, tuple(rows))


@dataclass(slots=True)
class _Draft:
    """An overflow that is being put together."""

    place: _Place
    record: OverflowRecord | None = None
    rows: list[TensorRow] = field(default_factory=list)
    slots: set[Hashable] = field(default_factory=set)

    def take(self, file: _OperatorFile) -> bool:
        """Add *file*, unless its tensors are there already: then it is of another time."""
        if file.slots & self.slots:
            return False
        self.rows += file.rows
        self.slots |= file.slots
        return True


def _match(
    drafts: Iterable[_Draft], files: Sequence[_OperatorFile], key: Callable[[_Place], Hashable]
) -> list[_OperatorFile]:
    """Give *files* to the drafts with the same *key*, the nearest in time first; return those left over."""
    groups: dict[Hashable, list[_Draft]] = defaultdict(list)
    for draft in drafts:
        if draft.place.task is not None:
            groups[key(draft.place)].append(draft)
    pairs = [
        (abs(draft.place.timestamp - file.place.timestamp), number, draft)
        for number, file in enumerate(files)
        for draft in _nearest(groups.get(key(file.place), []), file.place)
    ]
    matched: set[int] = set()
    for _, number, draft in sorted(pairs, key=lambda pair: pair[:2]):
        if number not in matched and draft.take(files[number]):
            matched.add(number)
    return [file for number, file in enumerate(files) if number not in matched]


def _without_record(files: Iterable[_OperatorFile]) -> list[_Draft]:
    """Put the *files* of each operator together."""
    drafts: list[_Draft] = []
    latest: dict[Hashable, _Draft] = {}
    for file in sorted(files, key=lambda file: file.place.timestamp):
        key = (file.op, file.place._replace(timestamp=0))
        if key not in latest or not latest[key].take(file):
            latest[key] = draft = _Draft(file.place)
            draft.take(file)
            drafts.append(draft)
    return drafts


def _tensor_order(row: TensorRow) -> tuple[int, int, str]:
    return _IO_ORDER.get(row.io or "", len(_IO_ORDER)), row.index or 0, row.file


def _nearest(drafts: Sequence[_Draft], place: _Place) -> list[_Draft]:
    """Return those just before and just after *place* in time, of *drafts* in the order of time."""
    at = bisect_left(drafts, place.timestamp, key=lambda draft: draft.place.timestamp)
    return [draft for draft in drafts[max(at - 1, 0) : at + 1] if draft.place.fits(place)]
