"""Where the rows of the statistics sink go: Parquet part files, or a CSV file for each dump file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Lock, Timer
from typing import IO, Protocol

from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.sinks import Stored
from dumpstream.statistics.canncsv import CannCsv
from dumpstream.statistics.columns import FileColumns
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.table import COLUMNS, TensorRow
from dumpstream.statistics.tensors import TensorRows
from dumpstream.system.tree import Tree

_GROUP_ROWS = 8192
_NOTHING = Stored()


class Table(Protocol):
    """A file that is being written to *file*, and where it will be. Every method blocks."""

    file: IO[bytes]
    stored: Stored

    def publish(self) -> None:
        """Make it visible; raises `OSError`."""

    def discard(self) -> None:
        """Leave nothing of it, as far as that is possible."""


class Tables(Protocol):
    """Where tables go. The methods that are not async block, raise `OSError`, and may run in any thread."""

    #: A table is published so many seconds after its first row, whether or not more come.
    seconds: float

    async def prepare(self) -> None:
        """Find out whether tables can be stored; raises `SinkError` if not."""

    async def ready(self) -> None:
        """Return when another table may be begun or stored; raises `SinkError` if one could not be stored."""

    def begin(self, name: str) -> Table:
        """Begin the table *name*."""

    def store(self, name: str, data: bytes) -> Stored:
        """Store *data* as the table *name*, and return where it is."""

    def finish(self) -> None:
        """Release what is on the disk; no table is begun any more."""

    async def aclose(self) -> None:
        """Wait until all tables are stored; raises `SinkError` if one is not."""


class TreeTables:
    """Tables in *tree*; with *sync* they are on the disk when the sink is closed."""

    seconds = 30.0

    def __init__(self, tree: Tree, *, sync: bool) -> None:
        self._tree, self._sync = tree, sync

    async def prepare(self) -> None:
        """Do nothing; the first table makes the directories."""

    async def ready(self) -> None:
        """Return at once."""

    def begin(self, name: str) -> _TreeTable:
        return _TreeTable(self._tree, name)

    def store(self, name: str, data: bytes) -> Stored:
        table = _TreeTable(self._tree, name)
        try:
            table.file.write(data)
            table.publish()
        except OSError:
            table.discard()
            raise
        return table.stored._replace(bytes=len(data))

    def finish(self) -> None:
        try:
            if self._sync:
                self._tree.sync()
        finally:
            self._tree.close()

    async def aclose(self) -> None:
        """Do nothing; every table is stored when it is published."""


class _TreeTable:
    """A draft in *tree*."""

    def __init__(self, tree: Tree, name: str) -> None:
        self._tree = tree
        self._draft, fd = tree.create(name)
        self.file: IO[bytes] = os.fdopen(fd, "wb")
        self.stored = Stored(tree.path(self._draft))

    def publish(self) -> None:
        self.file.close()
        self.stored = Stored(self._tree.publish(self._draft))

    def discard(self) -> None:
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self._tree.discard(self._draft)


class Output(Protocol):
    """Keeps rows. Called from several threads; every method blocks and raises `OSError`."""

    def add(self, files: Sequence[tuple[str, Sequence[TensorRow]]]) -> list[Stored]:
        """Take the rows of whole files, each with its name; return where each goes."""

    def close(self) -> None:
        """Finish everything."""


class ParquetParts:
    """Rows of many files in one Parquet file after the other, each under a temporary name until it is whole.

    A part ends when it has *rows* rows or more, or *seconds* after its first, whether or not more come. Where
    a file goes is known before the part is whole: a process that is killed leaves names of a part that never
    appeared.
    """

    def __init__(self, tables: Tables, *, rows: int = 100_000, seconds: float | None = None) -> None:
        self._tables = tables
        self._rows, self._seconds = rows, tables.seconds if seconds is None else seconds
        self._run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        self._number = 0
        self._lock = Lock()
        self._part: _Part | None = None
        self._timer: Timer | None = None
        self._error: OSError | None = None

    def add(self, files: Sequence[tuple[str, Sequence[TensorRow]]]) -> list[Stored]:
        with self._adding():
            return [self._add(rows) if rows else _NOTHING for _, rows in files]

    def add_columns(self, files: FileColumns) -> Stored:
        """Take the rows of *files*, of which there is at least one, and return where they go."""
        with self._adding():
            return self._add([], [files])

    def close(self) -> None:
        with self._lock:
            timer = self._timer
            self._end()
        if timer is not None:
            timer.join()
        self._raise_error()

    @contextmanager
    def _adding(self) -> Iterator[None]:
        with self._lock:
            self._raise_error()
            try:
                yield
            except OSError as exc:
                self._fail(exc)
                raise

    def _add(self, rows: Sequence[TensorRow], files: Sequence[FileColumns] = ()) -> Stored:
        if self._part is None:
            self._number += 1
            self._part = _Part(self._tables, f"{self._run}-{self._number:05}")
            self._timer = Timer(self._seconds, self._expire, [self._part])
            self._timer.daemon = True
            self._timer.start()
        stored = self._part.stored
        self._part.add(rows, files)
        if self._part.rows >= self._rows:
            self._end()
        return stored

    def _expire(self, part: _Part) -> None:
        with self._lock:
            if self._part is part:
                self._end()

    def _end(self) -> None:
        """Publish the part that is being written; a failure is kept, to be raised by whoever comes next."""
        part, self._part = self._part, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if part is not None:
            try:
                part.publish()
            except OSError as exc:
                part.discard()
                self._error = exc

    def _fail(self, error: OSError) -> None:
        self._error = error
        if self._part is not None:
            self._part.discard()
            self._part = None

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


class _Part:
    """A Parquet file that is being written."""

    def __init__(self, tables: Tables, name: str) -> None:
        self._table = tables.begin(name)
        self._writer = ParquetWriter(self._table.file)
        self._waiting = TensorRows()  # for a row group, as are those of files
        self._waiting_files: list[FileColumns] = []
        self._waiting_rows = 0
        self.stored = self._table.stored  #: where it will be
        self.rows = 0

    def add(self, rows: Sequence[TensorRow], files: Sequence[FileColumns]) -> None:
        self._waiting += rows
        self._waiting_files += files
        added = len(rows) + sum(file.rows for file in files)
        self.rows += added
        self._waiting_rows += added
        if self._waiting_rows >= _GROUP_ROWS:
            self._flush()

    def publish(self) -> None:
        self._flush()
        self._writer.close()
        self._table.publish()

    def discard(self) -> None:
        """Leave nothing of it, as far as that is possible."""
        self._writer.discard()
        self._table.discard()

    def _flush(self) -> None:
        if self._waiting_rows:
            self._writer.write(self._waiting.columns(COLUMNS), self._waiting_files)
            self._waiting, self._waiting_files, self._waiting_rows = TensorRows(), [], 0


class CsvFiles:
    """CANN's statistics text in a file for each dump file, under its name and ``.csv``, as CANN has them."""

    def __init__(self, tables: Tables, format_: CannCsv) -> None:
        self._tables, self._format = tables, format_

    def add(self, files: Sequence[tuple[str, Sequence[TensorRow]]]) -> list[Stored]:
        columns = self._format.columns
        return [
            self._write(name, self._format.lines(TensorRows(rows).columns(columns))) for name, rows in files
        ]

    def close(self) -> None:
        """Do nothing; every file is finished."""

    def _write(self, name: str, lines: str) -> Stored:
        if not lines:
            return _NOTHING
        text = (self._format.header + lines).encode("utf-8", "backslashreplace")
        return self._tables.store(name.removesuffix(TEXT_SUFFIX) or name, text)
