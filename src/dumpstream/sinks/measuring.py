"""The measuring sink: the numbers of every tensor, computed while the bytes go by, for those who listen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Protocol

import anyio
from anyio.to_thread import run_sync
from typing_extensions import Buffer

from dumpstream._errors import SinkError
from dumpstream.format.opname import OVERFLOW_OPERATOR, Scheme, parse_name
from dumpstream.sinks import Stored, WholeFile
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks._frames import view_bytes
from dumpstream.sinks.null import NullFile, NullSink
from dumpstream.statistics.columns import FileColumns
from dumpstream.statistics.engine import MeasuredFiles, measure_whole
from dumpstream.statistics.files import FileStatistics, begin_file, origin_of
from dumpstream.statistics.table import TensorRow
from dumpstream.statistics.tensors import TensorRows


class Listener(Protocol):
    """Hears what sinks measure, in the threads that have measured it."""

    def hear(self, measured: FileColumns | TensorRows) -> None:
        """Take rows of some files."""

    def hear_record(self, name: str, data: Buffer) -> None:
        """Take the record of an overflow, a file whose bytes are valid until this call returns."""


#: A thread is worth its wake-up for so many bytes.
_THREAD_BYTES = 4 << 20
NOTHING = Stored()


class MeasuringSink:
    """Measures every tensor, and keeps nothing.

    Args:
        threads: how many may measure at the same time.
        limiter: of threads, if the sink shares it with others.
        histogram: whether exponents of floats are counted.
        listener: hears what was measured.
    """

    stores_bytes = False
    takes_repeated_names = True

    def __init__(
        self,
        threads: int,
        limiter: anyio.CapacityLimiter | None = None,
        *,
        histogram: bool = False,
        listener: Listener | None = None,
    ) -> None:
        self._threads = threads
        self._limiter = limiter or anyio.CapacityLimiter(threads)
        self._histogram = histogram
        self._listener = listener
        self._closed = False

    async def open(self, name: str, *, offset: int = 0, step: int | None = None) -> _MeasuredFile | NullFile:
        self._check_open()
        # It is not known which tensors the bytes behind a gap belong to.
        if offset:
            return NullFile(NullSink())
        return _MeasuredFile(self, name, begin_file(origin_of(name, step=step), histogram=self._histogram))

    async def put(
        self, files: Sequence[WholeFile], steps: Sequence[int | None] | None = None
    ) -> list[Stored | SinkError]:
        self._check_open()
        try:
            await self._ready()
        except SinkError as exc:
            return [exc] * len(files)
        results: list[Stored | SinkError] = [NOTHING] * len(files)
        shares = _shares(files)
        marked = [None] * len(files) if steps is None else steps
        # Several threads share the iterator, but the files of one name keep their order.
        threads = self._threads if len({file.name for file in files}) == len(files) else 1
        work = partial(self._work_through, files, marked, iter(shares), results)
        with anyio.CancelScope(shield=True):  # what is kept must be reported
            async with anyio.create_task_group() as group:
                for _ in range(min(threads, len(shares))):
                    group.start_soon(partial(run_sync, work, limiter=self._limiter))
        return results

    async def aclose(self) -> None:
        self._closed = True

    async def keep(self, name: str, statistics: FileStatistics) -> Stored:
        """Take the rows of a file that is all there."""
        self._check_open()
        await self._ready()
        with anyio.CancelScope(shield=True):  # what is kept must be reported
            stored = await run_sync(self._keep, name, statistics, limiter=self._limiter)
        return stored  # noqa: RET504 - inside the scope, it would seem that the scope may go on without

    async def add(self, statistics: FileStatistics, pieces: Sequence[Buffer]) -> None:
        """Let *statistics* take *pieces*."""
        self._check_open()
        await run_sync(_add, statistics, pieces, limiter=self._limiter)

    # What a sink that keeps the numbers does besides

    async def _ready(self) -> None:
        """Return when numbers can be kept; raises `SinkError` if they cannot."""

    def _keep_files(self, files: Sequence[WholeFile], measured: MeasuredFiles) -> list[Stored]:
        """Keep what was *measured*; may raise `OSError`."""
        del measured
        return [NOTHING] * len(files)

    def _keep_rows(self, name: str, rows: Sequence[TensorRow]) -> Stored:
        """Keep the rows of one file; may raise `OSError`."""
        del name, rows
        return NOTHING

    def _check_open(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError

    def _work_through(
        self,
        files: Sequence[WholeFile],
        steps: Sequence[int | None],
        shares: Iterator[slice],
        results: list[Stored | SinkError],
    ) -> None:
        for share in shares:
            stored: Sequence[Stored | SinkError]
            try:
                stored = self._measure(files[share], steps[share])
            except OSError as exc:
                stored = [sink_error("write the statistics", exc)] * len(files[share])
            results[share] = stored

    def _measure(self, files: Sequence[WholeFile], steps: Sequence[int | None]) -> list[Stored]:
        measured = measure_whole(files, histogram=self._histogram, steps=steps)
        if self._listener is not None:
            self._tell(self._listener, files, measured)
        return self._keep_files(files, measured)

    def _tell(self, listener: Listener, files: Sequence[WholeFile], measured: MeasuredFiles) -> None:
        columns, rows = measured.columns, TensorRows(chain.from_iterable(measured.rows.values()))
        types = [*columns.said["op_type"], *(row.op_type for row in rows)]
        if OVERFLOW_OPERATOR[0] in types:
            for file in files:
                if parse_name(file.name).scheme is Scheme.OVERFLOW:
                    listener.hear_record(file.name, file.data)
        listener.hear(columns)
        listener.hear(rows)

    def _keep(self, name: str, statistics: FileStatistics) -> Stored:
        rows = statistics.finish()
        if self._listener is not None:
            self._listener.hear(TensorRows(rows))
        try:
            return self._keep_rows(name, rows)
        except OSError as exc:
            raise sink_error(f"write the statistics of {name!r}", exc) from None


class _MeasuredFile:
    """A file of which sums are kept."""

    __slots__ = ("_name", "_sink", "_statistics")

    def __init__(self, sink: MeasuringSink, name: str, statistics: FileStatistics) -> None:
        self._sink, self._name = sink, name
        self._statistics: FileStatistics | None = statistics

    async def write(self, pieces: Sequence[Buffer]) -> None:
        statistics = self._take()
        await self._sink.add(statistics, pieces)
        self._statistics = statistics

    async def commit(self) -> Stored:
        return await self._sink.keep(self._name, self._take())

    async def abort(self) -> None:
        self._statistics = None

    def _take(self) -> FileStatistics:
        """Return the sums; they are gone until a call that uses them has succeeded."""
        statistics, self._statistics = self._statistics, None
        if statistics is None:
            raise anyio.ClosedResourceError
        return statistics


def _shares(files: Sequence[WholeFile]) -> list[slice]:
    """Divide *files* into shares worth a thread's while."""
    shares = []
    first = size = 0
    for number, file in enumerate(files, 1):
        size += memoryview(file.data).nbytes
        if size >= _THREAD_BYTES or number == len(files):
            shares.append(slice(first, number))
            first, size = number, 0
    return shares


def _add(statistics: FileStatistics, pieces: Sequence[Buffer]) -> None:
    for piece in pieces:
        statistics.add(view_bytes(piece))
