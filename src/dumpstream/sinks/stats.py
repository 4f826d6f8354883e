"""The statistics sink: a row for every tensor of every dump file, computed while the bytes go by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError, SinkError
from dumpstream.archive.manifest import STATS
from dumpstream.remote.destination import RemoteDestination
from dumpstream.sinks import SinkSettings, Stored, WholeFile, sink_directory
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks.measuring import MeasuringSink
from dumpstream.sinks.resources import Resources
from dumpstream.sinks.tables.parts import CsvFiles, Output, ParquetParts, Tables, TreeTables
from dumpstream.sinks.tables.storetables import StoreTables
from dumpstream.statistics.canncsv import DEFAULT_SELECTION, CannCsv
from dumpstream.statistics.engine import MeasuredFiles
from dumpstream.statistics.parquet import require_pyarrow
from dumpstream.statistics.table import TensorRow
from dumpstream.system.durable import Fsync
from dumpstream.system.tree import TRANSIENT_DESCRIPTORS, Tree


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


class StatsSink(MeasuringSink):
    """Keeps statistics of every tensor, and no bytes.

    They go below the directory that *location* begins with, or if it names none, below ``stats`` in the
    capture, also if that is *inside* a store; behind a ``?`` are options (`StatsOptions`).

    Raises:
        SinkError: *location* cannot be understood, or pyarrow is missing.
    """

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
        super().__init__(
            max(settings.workers, 1),
            None if resources is None else resources.threads,
            histogram=options.histogram,
            listener=None if resources is None else resources.listener,
        )
        self._tables: Tables
        if inside is not None and root is None:
            assert resources is not None
            self._tables = StoreTables(inside, settings, resources, f".{options.format}")
        else:
            self._tables = _tree_tables(root, settings, f".{options.format}", self._threads)
        self._output = _make_output(self._tables, options)
        self._rows_wanted = resources.rows_wanted if resources is not None else bool

    async def prepare(self) -> None:
        """Find out whether tables can be stored; raises `SinkError` if not."""
        await self._tables.prepare()

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                with anyio.CancelScope(shield=True):
                    await run_sync(self._close, limiter=self._limiter)
            finally:
                await self._tables.aclose()

    async def _ready(self) -> None:
        await self._tables.ready()

    def _keep_files(self, files: Sequence[WholeFile], measured: MeasuredFiles) -> list[Stored]:
        """Keep the rows of *files*: those that are columns together, the others file by file."""
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

    def _keep_rows(self, name: str, rows: Sequence[TensorRow]) -> Stored:
        stored = self._output.add([(name, rows)])
        return _with_rows(stored, [rows])[0] if self._rows_wanted() else stored[0]

    def _close(self) -> None:
        try:
            try:
                self._output.close()
            finally:
                self._tables.finish()
        except OSError as exc:
            raise sink_error("write the statistics", exc) from None


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
