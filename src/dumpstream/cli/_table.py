"""Tables on the terminal: the columns of statistics in, aligned lines out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dumpstream.cli._display import printable
from dumpstream.statistics.table import COLUMNS, Kind

_UNKNOWN = "-"


class Table:
    """A table with *columns*, whose rows come in blocks.

    A line is as wide as the widest of all rows that were added before it was asked for. The column *lead*
    comes first, but only if a row has a value there.
    """

    def __init__(self, columns: Sequence[str], lead: str | None = None) -> None:
        self.rows = 0
        self.waiting = 0  #: rows of which the lines were not asked for yet
        self._columns = [*columns] if lead is None else [lead, *columns]
        self._first = 0 if lead is None else 1
        self._widths = [*map(len, self._columns)]
        self._blocks: list[list[str]] = []  #: the cells of each column in one text, which takes less memory
        self._titled = False

    def add(self, block: Mapping[str, Sequence[Any]]) -> None:
        """Add the rows in *block*, which has all columns."""
        cells = [_cells(name, block[name]) for name in self._columns]
        if cells[0]:
            self.rows += len(cells[0])
            self.waiting += len(cells[0])
            self._widths = [max(width, *map(len, it)) for width, it in zip(self._widths, cells, strict=True)]
            self._blocks.append(["\n".join(column) for column in cells])
            if self._first and any(value is not None for value in block[self._columns[0]]):
                self._first, self._titled = 0, False

    def lines(self) -> Iterator[str]:
        """Yield the lines of the rows added since the last call, with newlines, behind the titles."""
        columns = [*zip(self._columns, self._widths, strict=True)][self._first :]
        line = "  ".join([f"%{'' if COLUMNS[name].numeric else '-'}{width}s" for name, width in columns])
        if self._blocks and not self._titled:
            self._titled = True
            yield f"{(line % tuple(self._columns[self._first :])).rstrip()}\n"
        for block in self._blocks:
            cells = zip(*(column.split("\n") for column in block[self._first :]), strict=True)
            yield "".join([f"{(line % row).rstrip()}\n" for row in cells])
        self._blocks = []
        self.waiting = 0


def _cells(name: str, values: Sequence[Any]) -> list[str]:
    if COLUMNS[name] in {Kind.REAL, Kind.EXACT}:
        return [_cell(value) for value in values]
    texts = {value: _cell(value) for value in set(values)}  # most values are repeated
    return [texts[value] for value in values]


def _cell(value: Any) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or _UNKNOWN
    return printable(str(value))
