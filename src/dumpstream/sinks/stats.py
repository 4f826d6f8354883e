"""The statistics sink: a row for every tensor of every dump file, computed while the bytes go by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

import anyio
from anyio.to_thread import run_sync
from typing_extensions import Buffer

from dumpstream._errors import DumpstreamError, SinkError
from dumpstream.archive.manifest import STATS
from dumpstream.remote.destination import RemoteDestination
from dumpstream.sinks import SinkSettings, Stored, WholeFile, sink_directory
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks._frames import view_bytes
from dumpstream.sinks._parts import CsvFiles, Output, ParquetParts, Tables, TreeTables
from dumpstream.sinks._storetables import StoreTables
from dumpstream.sinks.null import NullFile, NullSink
from dumpstream.sinks.resources import Resources
from dumpstream.statistics.canncsv import DEFAULT_SELECTION, CannCsv
from dumpstream.statistics.engine import measure_whole
from dumpstream.statistics.files import FileStatistics, begin_file, origin_of
from dumpstream.statistics.parquet import require_pyarrow
from dumpstream.statistics.table import TensorRow
from dumpstream.system.durable import Fsync
from dumpstream.system.tree import TRANSIENT_DESCRIPTORS, Tree

# A thread is worth its wake-up for so many bytes.
_THREAD_BYTES = 4 << 20
_NOTHING = Stored()


class StatsOptions(NamedTuple):
    """What the part of a location behind ``?`` says."""

    format: str = "parquet"  #: or ``csv``: a file in CANN's format for each dump file
    select: tuple[str, ...] = DEFAULT_SELECTION  #: of CANN's statistics, for csv
    histogram: bool = False  #: count the exponents of floats

    @classmethod
    def parse(cls, query: str) -> StatsOptions:
        """Return the options that ``format=csv&select=Max,Min&histogram=on`` stands for.

        Raises:
            SinkError: there is no such option, or it does not take this value.
        """
        values = dict(parse_qsl(query, keep_blank_values=True))
        format_, histogram = values.pop("format", "parquet"), values.pop("histogram", "off")
        select = values.pop("select", ",".join(DEFAULT_SELECTION))
        if values or format_ not in {"parquet", "csv"} or histogram not in {"on", "off"}:
            raise SinkError(
                f"cannot understand stats:?{query}; write stats:DIR?format=parquet|csv, "
                "with &select=Max,Min,... for csv and &histogram=on for parquet"
            )
        return cls(format_, tuple(select.split(",")), histogram == "on")


class StatsSink:
    """Keeps statistics of every tensor, and no bytes.

    They go below the directory that *location* begins with, or if it names none, below ``stats`` in the
    capture, also if that is *inside* a store; behind a ``?`` are options (`StatsOptions`).

    Raises:
        SinkError: *location* cannot be understood, or pyarrow is missing.
    """

    stores_bytes = False

    def __init__(
        self,
        location: str,
        settings: SinkSettings,
        resources: Resources | None = None,
        *,
        inside: RemoteDestination | None = None,
    ) -> None:
        root = sink_directory("stats", location)
        options = StatsOptions.parse(location.partition("?")[2])
        self._threads = max(settings.workers, 1)
        self._tables: Tables
        if inside is not None and root is None:
            assert resources is not None
            self._tables = StoreTables(inside, settings, resources, f".{options.format}")
        else:
            self._tables = _tree_tables(root, settings, f".{options.format}", self._threads)
        self._histogram = options.histogram
        self._output = _make_output(self._tables, options)
        self._limiter = (resources and resources.threads) or anyio.CapacityLimiter(self._threads)
        self._rows_wanted = resources.rows_wanted if resources is not None else bool
        self._closed = False

    async def prepare(self) -> None:
        """Find out whether tables can be stored; raises `SinkError` if not."""
        await self._tables.prepare()

    async def open(self, name: str, *, offset: int = 0, step: int | None = None) -> _StatsFile | NullFile:
        self._check_open()
        # It is not known which tensors the bytes behind a gap belong to.
        if offset:
            return NullFile(NullSink())
        return _StatsFile(self, name, begin_file(origin_of(name, step=step), histogram=self._histogram))

    async def put(
        self, files: Sequence[WholeFile], steps: Sequence[int | None] | None = None
    ) -> list[Stored | SinkError]:
        self._check_open()
        try:
            await self._tables.ready()
        except SinkError as exc:
            return [exc] * len(files)
        results: list[Stored | SinkError] = [_NOTHING] * len(files)
        shares = _shares(files)
        marked = [None] * len(files) if steps is None else steps
        # Several threads share the iterator.
        work = partial(self._work_through, files, marked, iter(shares), results)
        with anyio.CancelScope(shield=True):  # what is kept must be reported
            async with anyio.create_task_group() as group:
                for _ in range(min(self._threads, len(shares))):
                    group.start_soon(partial(run_sync, work, limiter=self._limiter))
        return results

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                with anyio.CancelScope(shield=True):
                    await run_sync(self._close, limiter=self._limiter)
            finally:
                await self._tables.aclose()

    async def keep(self, name: str, statistics: FileStatistics) -> Stored:
        """Keep the rows of a file that is all there."""
        self._check_open()
        await self._tables.ready()
        with anyio.CancelScope(shield=True):  # what is kept must be reported
            stored = await run_sync(self._keep, name, statistics, limiter=self._limiter)
        return stored  # noqa: RET504 - inside the scope, it would seem that the scope may go on without

    async def add(self, statistics: FileStatistics, pieces: Sequence[Buffer]) -> None:
        """Let *statistics* take *pieces*."""
        self._check_open()
        await run_sync(_add, statistics, pieces, limiter=self._limiter)

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
        """Keep the rows of *files*: those that are columns together, the others file by file."""
        measured = measure_whole(files, histogram=self._histogram, steps=steps)
        wanted = self._rows_wanted()
        if wanted or not isinstance(self._output, ParquetParts):
            by_file = measured.by_file()
            rows = [by_file.get(number, []) for number in range(len(files))]
        if not isinstance(self._output, ParquetParts):
            stored_files = self._output.add(
                [(file.name, some) for file, some in zip(files, rows, strict=True)]
            )
            return _with_rows(stored_files, rows) if wanted else stored_files
        stored: dict[int, Stored] = {}
        if measured.numbers:
            stored = dict.fromkeys(measured.numbers, self._output.add_columns(measured.columns))
        others = [(files[number].name, rows) for number, rows in measured.rows.items()]
        stored |= zip(measured.rows, self._output.add(others) if others else [], strict=True)
        parts = [stored[number] for number in range(len(files))]
        return _with_rows(parts, rows) if wanted else parts

    def _keep(self, name: str, statistics: FileStatistics) -> Stored:
        try:
            rows = statistics.finish()
            stored = self._output.add([(name, rows)])
            return _with_rows(stored, [rows])[0] if self._rows_wanted() else stored[0]
        except OSError as exc:
            raise sink_error(f"write the statistics of {name!r}", exc) from None

    def _close(self) -> None:
        try:
            try:
                self._output.close()
            finally:
                self._tables.finish()
        except OSError as exc:
            raise sink_error("write the statistics", exc) from None


class _StatsFile:
    """A file of which sums are kept."""

    __slots__ = ("_name", "_sink", "_statistics")

    def __init__(self, sink: StatsSink, name: str, statistics: FileStatistics) -> None:
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


def _with_rows(stored: Sequence[Stored], rows: Sequence[Sequence[TensorRow]]) -> list[Stored]:
    return [part._replace(rows=some) for part, some in zip(stored, rows, strict=True)]


def _tree_tables(root: Path | None, settings: SinkSettings, suffix: str, threads: int) -> TreeTables:
    tree = Tree(
        settings.directory if root is None else root,
        below=(STATS,) if root is None else (),
        suffix=suffix,
        base=settings.base,
        directories=max(settings.max_descriptors - threads * TRANSIENT_DESCRIPTORS - 1, threads),
        durable=settings.fsync is Fsync.FILE,
    )
    return TreeTables(tree, sync=settings.fsync is Fsync.CAPTURE)


def _make_output(tables: Tables, options: StatsOptions) -> Output:
    if options.format == "csv":
        try:
            return CsvFiles(tables, CannCsv(options.select))
        except ValueError as exc:
            raise SinkError(f"stats: {exc}") from None
    try:
        require_pyarrow()
    except DumpstreamError as exc:
        raise SinkError(f"stats: {exc} (stats:?format=csv)") from None
    return ParquetParts(tables)


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
