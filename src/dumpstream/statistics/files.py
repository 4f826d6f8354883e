"""File statistics: a dump file in, in any pieces, and a row for each of its tensors out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from typing_extensions import Buffer

from dumpstream._errors import DumpFormatError
from dumpstream.codec import SUFFIXES
from dumpstream.format.header import DumpHeader, HeaderCollector, Tensor, parse_header, parse_version_1
from dumpstream.format.opname import parse_name
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.statistics.columns import SAID
from dumpstream.statistics.devicestats import DeviceText
from dumpstream.statistics.running import RunningStatistics
from dumpstream.statistics.table import COLUMNS, HOST, Provenance, TensorRow, TensorStatistics

_TEXT_SUFFIXES = (TEXT_SUFFIX, *(f"{TEXT_SUFFIX}{suffix}" for suffix in SUFFIXES))

# What a name says, what a row begins with, and what is computed, in the order of the columns.
_SAID = attrgetter(*SAID)
_ORIGIN = attrgetter(*list(COLUMNS)[: list(COLUMNS).index("io")])
_NUMBERS = attrgetter(*(field.name for field in fields(TensorStatistics)))


class FileStatistics(Protocol):
    """The statistics of one file."""

    def add(self, piece: memoryview) -> None:
        """Take the next bytes of the file; never fails on what they are."""

    def finish(self) -> list[TensorRow]:
        """Return the rows; a file that cannot be understood has one, with the problem and no `io`."""


def begin_file(origin: TensorRow, *, histogram: bool = False) -> FileStatistics:
    """Return what computes the rows of the file *origin* tells of: statistics text by its name, or a dump."""
    return DeviceText(origin) if is_text(origin.file) else DumpStatistics(origin, histogram=histogram)


def whole_file(origin: TensorRow, content: Buffer, *, histogram: bool = False) -> list[TensorRow]:
    """Return the rows of a file that is in memory, as `FileStatistics` does; also of one of version 1."""
    view = memoryview(content)
    data = view.cast("B") if view.nbytes else memoryview(b"")
    if is_text(origin.file):
        text = DeviceText(origin)
        text.add(data)
        return text.finish()
    try:
        header = parse_header(data, len(data))
    except DumpFormatError as exc:
        try:
            header = parse_version_1(data)
        except DumpFormatError:
            return [replace(origin, problem=str(exc))]
    measured = {}
    for number, tensor in enumerate(header.tensors):
        if tensor.stored:
            running = RunningStatistics(tensor, histogram=histogram)
            running.update(data[tensor.start : tensor.stop])
            measured[number] = _Measured.of(running)
    return _rows(origin, header, measured, surplus=max(len(data) - header.length, 0))


def origin_of(
    name: str,
    label: str | None = None,
    of: Provenance = Provenance(),  # noqa: B008 - never changes
    step: int | None = None,
) -> TensorRow:
    """Return what the name of a file says, as the beginning of its rows; *label* is what they call it.

    *step* is the iteration if the name has none.
    """
    parsed = parse_name(name)
    if parsed.iteration is None:
        parsed = parsed._replace(iteration=step)
    *said, model_id = _SAID(parsed)
    called = name if label is None else label
    return TensorRow(called, *said, model_id=model_id, **of._asdict())  # type: ignore[misc]  # *said* has 8 values


def is_text(name: str) -> bool:
    """Whether a file of this name is taken for statistics text."""
    return name.endswith(_TEXT_SUFFIXES)


class DumpStatistics:
    """Computes the rows of a dump file of version 2; keeps its header, and the sums of one tensor at a time.

    If a tensor has no address, only the length of the file tells whether its bytes are there. Both are
    computed then.
    """

    def __init__(self, origin: TensorRow, *, histogram: bool = False) -> None:
        self._origin = origin
        self._histogram = histogram
        self._collector: HeaderCollector | None = HeaderCollector()
        self._header: DumpHeader | None = None
        self._walks: list[_Walk] = []
        self._problem = "ends inside its header; dump it again"

    def add(self, piece: memoryview) -> None:
        if self._collector is not None:
            piece = self._add_to_header(self._collector, piece)
        for walk in self._walks:
            walk.add(piece)

    def finish(self) -> list[TensorRow]:
        if self._header is None:
            return [replace(self._origin, problem=self._problem)]
        walk = self._walks[-1 if self._walks[0].surplus else 0]
        return _rows(self._origin, self._header, walk.finish(), surplus=walk.surplus)

    def _add_to_header(self, collector: HeaderCollector, piece: memoryview) -> memoryview:
        """Return what of *piece* lies behind the header, for the walks that begin when all of it is there."""
        try:
            rest = collector.add(piece)
        except DumpFormatError as exc:
            self._problem, self._collector = str(exc), None
            return piece
        if collector.header is None or rest is None:
            return piece
        self._header, self._collector = collector.header, None
        numbered = list(enumerate(self._header.tensors))
        stored = [(number, tensor) for number, tensor in numbered if tensor.stored]
        self._walks = [_Walk(stored, histogram=self._histogram)]
        if self._header.ambiguous:
            self._walks.append(_Walk(numbered, histogram=self._histogram))
        return rest


class _Walk:
    """Hands the bytes behind a header to the tensors they belong to, which follow each other."""

    def __init__(self, tensors: Iterable[tuple[int, Tensor]], *, histogram: bool) -> None:
        self._tensors = iter(tensors)
        self._histogram = histogram
        self._number = 0
        self._running: RunningStatistics | None = None
        self._measured: dict[int, _Measured] = {}
        self.surplus = 0  #: bytes behind the last tensor
        self._begin_next()

    def add(self, data: memoryview) -> None:
        """Take the next bytes."""
        while self._running is not None:
            left = self._running.tensor.size - self._running.bytes
            self._running.update(data[:left])
            if len(data) < left:
                return
            data = data[left:]
            self._begin_next()
        self.surplus += len(data)

    def finish(self) -> dict[int, _Measured]:
        """Return what was found, by the numbers of the tensors; all of them are in it."""
        while self._running is not None:
            self._begin_next()
        return self._measured

    def _begin_next(self) -> None:
        """Write down the tensor that is running, and begin the next."""
        if self._running is not None:
            self._measured[self._number] = _Measured.of(self._running)
        self._number, tensor = next(self._tensors, (0, None))
        self._running = None if tensor is None else RunningStatistics(tensor, histogram=self._histogram)


class _Measured(NamedTuple):
    """What is known of a tensor once no more of it will come."""

    statistics: TensorStatistics
    bytes: int
    problem: str | None

    @classmethod
    def of(cls, running: RunningStatistics) -> _Measured:
        size, came = running.tensor.size, running.bytes
        if came == size:
            return cls(running.result(), came, running.problem)
        statistics = running.result() if came else _NOTHING
        return cls(statistics, came, f"{running.tensor.label} has {came} of its {size} bytes")


_NOTHING = TensorStatistics()
_NOT_DUMPED = _Measured(_NOTHING, 0, None)


def _rows(
    origin: TensorRow, header: DumpHeader, measured: Mapping[int, _Measured], *, surplus: int
) -> list[TensorRow]:
    """Return a row for each tensor of *header*; those that are not in *measured* were not dumped."""
    if origin.op_name is None and header.op_name:
        origin = replace(origin, op_name=header.op_name)
    if surplus:
        problem = f"has {surplus} bytes more than its header says; a slice may be in it twice"
        origin = replace(origin, problem=problem)
    return [
        _row(origin, tensor, measured.get(number, _NOT_DUMPED))
        for number, tensor in enumerate(header.tensors)
    ]


def _row(origin: TensorRow, tensor: Tensor, measured: _Measured) -> TensorRow:
    values: tuple[Any, ...] = (
        *_ORIGIN(origin),
        tensor.io.value,
        tensor.index,
        tensor.dtype.short,
        tensor.format.name,
        tensor.shape,
        *_NUMBERS(measured.statistics),
        tensor.original_shape,
        tensor.size,
        measured.bytes,
        tensor.address or None,
        origin.model_id,
        HOST,
        measured.problem or origin.problem,
        origin.host,
        origin.rank,
        origin.capture,
    )
    return TensorRow(*values)
