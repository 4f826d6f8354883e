"""CaptureTables: the tables that the statistics sink left in a capture, and the files that they cover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import IO, NamedTuple

from dumpstream._errors import PartError
from dumpstream.analysis.sources import StoredTable, has_start, left_by_sink, table_text
from dumpstream.archive.rows import FileRow
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import is_readable

_PARQUET = ".parquet"


class NewTable(NamedTuple):
    """A table that is to be read."""

    portions: list[StoredTable]
    stored: bool  #: whether the bytes of its files are stored as well


class CaptureTables:
    """The tables of *capture*, as far as the files that were asked for name them."""

    def __init__(self, capture: StoredCapture) -> None:
        self._capture = capture
        self._exist: dict[str, bool] = {}
        self._new: list[NewTable] = []
        self.lines: list[bytes] = []  #: what is in the lines of files that are in a table; becomes more

    def cover(self, row: FileRow) -> bool:
        """Whether the tensors of the file of *row* are in a table."""
        covered = False
        for path in paths_of(row):
            if path not in self._exist:
                self._exist[path] = self._is_there(path)
                if self._exist[path]:
                    self._use(path, stored=has_start(row))
            covered |= self._exist[path]
        return covered

    def take_new(self) -> Iterator[NewTable]:
        """Yield the tables that were not known before."""
        while self._new:
            yield self._new.pop(0)

    def _use(self, path: str, *, stored: bool) -> None:
        # The files that follow in the journal are most likely in this one.
        self.lines.insert(0, table_text(path))
        table = StoredTable(path, partial(self._open, path))
        # A store would be asked again for each portion.
        self._new.append(NewTable([table] if self._capture.remote else table.portions(), stored))

    def _is_there(self, path: str) -> bool:
        with suppress(PartError):
            self._open(path).close()
            return True
        return False

    def _open(self, path: str) -> IO[bytes]:
        return self._capture.open_stored(path).file


def paths_of(row: FileRow) -> list[str]:
    """Return the paths of the tables that have the tensors of the file of *row*."""
    only_bytes = len(row.stored) == 1 and is_readable(row.stored[0])
    return [] if only_bytes else left_by_sink(row, _PARQUET)
