"""Measurement: the statistics of files that are already stored, computed or read back, several at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import IO, Any, NamedTuple
from weakref import WeakKeyDictionary

from dumpstream._errors import PartError
from dumpstream.analysis.missingtables import MissingTables
from dumpstream.analysis.sources import (
    CSV,
    Batch,
    Item,
    Measured,
    Paths,
    StoredFiles,
    StoredTable,
    StoredTables,
    Wanted,
    has_start,
    left_by_sink,
    table_text,
)
from dumpstream.archive.rows import FileRow
from dumpstream.reading.inputs import Input, find_inputs
from dumpstream.reading.problem import Problem
from dumpstream.reading.selection import Selection
from dumpstream.reading.stored import StoredCapture
from dumpstream.statistics.table import Provenance
from dumpstream.statistics.tensors import TensorRows, rows_of
from dumpstream.system.batches import run_batches
from dumpstream.system.location import Prefix

_PARQUET = ".parquet"
_BATCH_FILES = 256
_TABLE_BYTES = 4 << 20  #: how large a portion of a table counts: it is a batch by itself


def measure(
    paths: Iterable[Path | Prefix],
    *,
    ranks: Sequence[int] = (),
    hosts: Sequence[str] = (),
    histogram: bool = False,
    workers: int | None = None,
) -> Iterator[Measured]:
    """Yield the statistics of what *paths*, *ranks* and *hosts* stand for, as `find_inputs` finds it.

    What the statistics sink left in a capture is read; what it left out, or lost in a part that a kill cut
    short, is computed from the stored bytes. So is everything, where there are bytes, if a *histogram* is
    wanted. A Parquet file is a table that was written before. Behind the files of a capture comes why it may
    have others, if so.

    Raises:
        DumpstreamError: there is nothing at a path, or it cannot be read.
    """
    for batch in measure_batches(
        paths, Wanted(histogram=histogram), ranks=ranks, hosts=hosts, workers=workers
    ):
        rows = iter(rows_of(batch.tensors))
        for file, count in zip(batch.files, batch.counts, strict=True):
            yield file._replace(rows=[*islice(rows, count)])


def measure_batches(
    paths: Iterable[Path | Prefix],
    wanted: Wanted,
    *,
    ranks: Sequence[int] = (),
    hosts: Sequence[str] = (),
    workers: int | None = None,
) -> Iterator[Batch]:
    """Yield what `measure` does, many files at once, and of the tensors only what is *wanted*."""
    tables = _UsedTables()
    lacking: list[Problem] = []
    inputs = find_inputs(paths, ranks, wanted.patterns, tables.lines_of, hosts=hosts, lacking=lacking.append)
    return _measured(inputs, wanted, tables, workers, lacking)


def measure_selected(
    find: Callable[[Selection], Iterable[Input]],
    wanted: Wanted,
    lacking: list[Problem],
    *,
    workers: int | None = None,
) -> Generator[Batch, None, None]:
    """Yield what `measure_batches` does for what *find* returns of the files that are *wanted*.

    While the files come, more and more may be *lacking*: why there may be others.
    """
    tables = _UsedTables()
    return _measured(find(Selection(wanted.patterns, tables.lines_of)), wanted, tables, workers, lacking)


def _measured(
    inputs: Iterable[Input],
    wanted: Wanted,
    tables: _UsedTables,
    workers: int | None,
    lacking: list[Problem],
) -> Generator[Batch, None, None]:
    return run_batches(
        _run,
        _tasks(inputs, wanted, tables, lacking),
        bytes_of=lambda task: task.bytes,
        most_items=_BATCH_FILES,
        workers=workers,
        is_remote=lambda task: task.remote,
    )


class _Lacking:
    """Why captures may have further files: *problems*, which become more while they are read."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def tasks(self) -> Iterator[_Task]:
        """Yield what has to be said by now, once."""
        while self._problems:
            yield _Task(self, self._problems.pop(0))

    def measure(self, items: Sequence[Problem]) -> Iterator[Batch]:
        """Yield a batch without tensors for each of *items*."""
        for it in items:
            yield Batch([Measured(it.subject, problems=[it.text])], TensorRows(), [0])


class _Task(NamedTuple):
    source: Paths | StoredFiles | StoredTables | MissingTables | _Lacking
    item: Any
    bytes: int = 0
    remote: bool = False


def _run(tasks: Sequence[_Task]) -> list[Batch]:
    groups = groupby(tasks, key=lambda task: task.source)
    return [batch for source, of in groups for batch in source.measure([task.item for task in of])]


class _UsedTables:
    """The tables of captures that are read, so that the files in them need not be found."""

    def __init__(self) -> None:
        self._lines: WeakKeyDictionary[StoredCapture, list[bytes]] = WeakKeyDictionary()

    def lines_of(self, capture: StoredCapture) -> list[bytes]:
        """Return what is in the lines of files that are in a used table of *capture*; becomes more."""
        return self._lines.setdefault(capture, [])

    def add(self, capture: StoredCapture, path: str) -> None:
        """Take note that the table at *path* is used."""
        # Those that follow in the journal are most likely in this one.
        self.lines_of(capture).insert(0, table_text(path))


def _tasks(
    inputs: Iterable[Input], wanted: Wanted, used: _UsedTables, lacking: list[Problem]
) -> Iterator[_Task]:
    """Yield what has to be done for *inputs*; while these come, more and more may be *lacking*."""
    paths, tables, further = Paths(wanted), StoredTables(wanted), _Lacking(lacking)
    capture: _Capture | None = None
    given: str | None = None
    for item in inputs:
        is_table = item.path is not None and item.path.endswith(_PARQUET)
        # The rows of a dump file that was named have its path as `file`.
        of = Provenance(item.rank, None if item.named and not is_table else item.given, item.host)
        if capture is not None and capture.stored is not item.capture:
            yield from capture.missing_tables()
            capture = None
        yield from further.tasks()
        if of.capture != given:
            given = of.capture
            paths, tables = Paths(wanted, of=of), StoredTables(wanted, of=of)
        if item.path is not None:
            if is_table:
                table = StoredTable.at(item.path, item.label, item.bytes)
                yield from (_Task(tables, portion, _TABLE_BYTES) for portion in table.portions())
            else:
                file = Item(item.full_name, item.label, item.bytes, item.path, may_be_foreign=not item.named)
                yield _Task(paths, file, item.bytes)
        elif item.capture is not None and item.file is not None:
            if capture is None:
                capture = _Capture(item.capture, wanted, item.prefix, of, used)
            for row in item.file.rows:
                yield from capture.tasks(row)
    if capture is not None:
        yield from capture.missing_tables()
    yield from further.tasks()


class _Capture:
    """The tasks of a capture: each table that the statistics sink left, once, and what is in none."""

    def __init__(
        self, stored: StoredCapture, wanted: Wanted, prefix: str, of: Provenance, used: _UsedTables
    ) -> None:
        self.stored, self._used = stored, used
        self._histogram, self._prefix = wanted.histogram, prefix
        self._tables = StoredTables(wanted, prefix, of)
        self._files = StoredFiles(stored, wanted, prefix, of)
        self._is_used: dict[str, bool] = {}  #: whether a table is, by its path
        self._absent: set[str] = set()  #: tables that are not there
        self._missing = MissingTables(prefix)

    def tasks(self, row: FileRow) -> Iterator[_Task]:
        """Yield what has to be done for *row*; nothing if its table is read already."""
        remote = self.stored.remote
        for path in left_by_sink(row, _PARQUET):
            if self._is_used.get(path):
                return
            if path not in self._is_used:
                exists = self._exists(path)
                self._is_used[path] = exists and not (self._histogram and has_start(row))
                self._absent |= set() if exists else {path}
                if self._is_used[path]:
                    self._used.add(self.stored, path)
                    table = StoredTable(path, partial(self._open, path))
                    # A store would be asked again for each portion.
                    portions = [table] if remote else table.portions()
                    yield from (_Task(self._tables, it, _TABLE_BYTES, remote) for it in portions)
                    return
        if not has_start(row) and (lost := self._find_missing(row)) is not None:
            self._missing.add(lost)
            return
        file = Item(row.name, self._prefix + row.name, row.bytes, row, row.verdict.whole, row.step)
        yield _Task(self._files, file, row.bytes if has_start(row) else 0, remote)

    def missing_tables(self) -> Iterator[_Task]:
        """Yield what has to be said about tables that are missing, and whose rows nothing else has."""
        if self._missing:
            yield _Task(self._missing, None)

    def _find_missing(self, row: FileRow) -> str | None:
        """Return the path of a table of *row* that is not there.

        Text inside the capture is not looked for: it is a file by itself, and is read next.
        """
        tables = (path for path in left_by_sink(row, _PARQUET) if path in self._absent)
        texts = (path for path in left_by_sink(row, CSV) if path.startswith("/") and not self._exists(path))
        return next(chain(tables, texts), None)

    def _exists(self, path: str) -> bool:
        try:
            self._open(path).close()
        except PartError:
            return False
        return True

    def _open(self, path: str) -> IO[bytes]:
        return self.stored.open_stored(path).file
