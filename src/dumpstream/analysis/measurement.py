"""Measurement: the statistics of files that are already stored, computed or read back, several at once."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from dumpstream._errors import PartError
from dumpstream.analysis.sources import (
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
)
from dumpstream.archive.rows import FileRow
from dumpstream.reading.inputs import Input, find_inputs
from dumpstream.reading.stored import StoredCapture
from dumpstream.statistics.table import rows_of
from dumpstream.system.batches import run_batches
from dumpstream.system.location import Prefix

_PARQUET = ".parquet"
_BATCH_FILES = 256
_TABLE_BYTES = 4 << 20  #: how large a portion of a table counts: it is a batch by itself


def measure(
    paths: Iterable[Path | Prefix],
    *,
    ranks: Sequence[int] = (),
    histogram: bool = False,
    workers: int | None = None,
) -> Iterator[Measured]:
    """Yield the statistics of everything that *paths* and *ranks* stand for, as `find_inputs` finds it.

    What the statistics sink left in a capture is read; what it left out, or lost in a part that a kill cut
    short, is computed from the stored bytes. So is everything, where there are bytes, if a *histogram* is
    wanted. A Parquet file is a table that was written before.

    Raises:
        DumpstreamError: there is nothing at a path, or it cannot be read.
    """
    for batch in measure_batches(paths, Wanted(histogram=histogram), ranks=ranks, workers=workers):
        rows = iter(rows_of(batch.tensors))
        for file, count in zip(batch.files, batch.counts, strict=True):
            yield file._replace(rows=[*islice(rows, count)])


def measure_batches(
    paths: Iterable[Path | Prefix],
    wanted: Wanted,
    *,
    ranks: Sequence[int] = (),
    workers: int | None = None,
) -> Iterator[Batch]:
    """Yield what `measure` does, many files at once, and of the tensors only what is *wanted*."""
    return run_batches(
        _run,
        _tasks(find_inputs(paths, ranks), wanted),
        bytes_of=lambda task: task.bytes,
        most_items=_BATCH_FILES,
        workers=workers,
        is_remote=lambda task: task.remote,
    )


class _Task(NamedTuple):
    source: Paths | StoredFiles | StoredTables
    item: Any
    bytes: int = 0
    remote: bool = False


def _run(tasks: Sequence[_Task]) -> list[Batch]:
    groups = groupby(tasks, key=lambda task: task.source)
    return [batch for source, of in groups for batch in source.measure([task.item for task in of])]


def _tasks(inputs: Iterable[Input], wanted: Wanted) -> Iterator[_Task]:
    paths, tables = Paths(wanted), StoredTables(wanted)
    capture: _Capture | None = None
    for item in inputs:
        if item.path is not None:
            if item.path.suffix == _PARQUET:
                table = StoredTable(item.label, partial(_open_file, item.path), item.bytes)
                yield from (_Task(tables, portion, _TABLE_BYTES) for portion in table.portions())
            else:
                file = Item(item.full_name, item.label, item.bytes, item.path, may_be_foreign=not item.named)
                yield _Task(paths, file, item.bytes)
        elif item.capture is not None and item.file is not None:
            if capture is None or capture.stored is not item.capture:
                capture = _Capture(item.capture, wanted, item.prefix, item.rank)
            for row in item.file.rows:
                yield from capture.tasks(row)


def _open_file(path: Path) -> IO[bytes]:
    return path.open("rb")


class _Capture:
    """The tasks of a capture: each table that the statistics sink left, once, and what is in none."""

    def __init__(self, stored: StoredCapture, wanted: Wanted, prefix: str, rank: int | None) -> None:
        self.stored = stored
        self._histogram, self._prefix = wanted.histogram, prefix
        self._tables = StoredTables(wanted, prefix, rank)
        self._files = StoredFiles(stored, wanted, prefix, rank)
        self._is_used: dict[str, bool] = {}  #: whether a table is, by its path

    def tasks(self, row: FileRow) -> Iterator[_Task]:
        """Yield what has to be done for *row*; nothing if its table is read already."""
        remote = self.stored.remote
        for path in left_by_sink(row, _PARQUET):
            if self._is_used.get(path):
                return
            if path not in self._is_used:
                self._is_used[path] = not (self._histogram and has_start(row)) and self._exists(path)
                if self._is_used[path]:
                    table = StoredTable(path, partial(self._open, path))
                    # A store would be asked again for each portion.
                    portions = [table] if remote else table.portions()
                    yield from (_Task(self._tables, it, _TABLE_BYTES, remote) for it in portions)
                    return
        file = Item(row.name, self._prefix + row.name, row.bytes, row, may_be_foreign=row.verdict.whole)
        yield _Task(self._files, file, row.bytes if has_start(row) else 0, remote)

    def _exists(self, path: str) -> bool:
        try:
            self._open(path).close()
        except PartError:
            return False
        return True

    def _open(self, path: str) -> IO[bytes]:
        return self.stored.open_stored(path).file
