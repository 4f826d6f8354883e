"""Tables: blocks of values in, aligned lines out, no wider than the terminal."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO, TypeAlias

from dumpstream.cli._display import printable
from dumpstream.cli.screen.area import size_of
from dumpstream.cli.screen.colour import Style
from dumpstream.cli.screen.layout import (
    GAP,
    Column,
    cells_of,
    common_beginning,
    fit,
    plain_lines,
    shorten,
    shorten_number,
    wrap_path,
)
from dumpstream.cli.screen.options import is_coloured

#: The cells of each column; in one text, which takes less memory, except those of the last block.
_Block: TypeAlias = Sequence[str | list[str]]

_ELLIPSIS, _PLAIN_ELLIPSIS = "…", "~"


class Table:
    """A table with *columns*, whose rows come in blocks.

    The layout is made for the rows that were added before the first lines were asked for. On a terminal,
    columns and texts that do not fit are left out or shortened, and the layout stays until the terminal is
    resized; elsewhere everything is written in full, and later texts that are longer stick out. The columns
    *leads* come first, but each only if a row has a value there. Lines begin with *indent* spaces.
    If it *grows* after the first lines, its columns have some space for later texts.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        leads: Sequence[Column] = (),
        file: TextIO | None = None,
        indent: int = 0,
        grows: bool = False,
    ) -> None:
        self.rows = 0
        self.waiting = 0  #: rows of which the lines were not asked for yet
        self._file = sys.stdout if file is None else file
        self._columns = [*leads, *columns]
        self._empty = {*range(len(leads))}  # the places of leads without a value so far
        self._indent = " " * indent
        self._grows = grows
        #: The column whose texts have their common beginning shown once.
        self._folded = next((place for place, it in enumerate(self._columns) if it.folds), None)
        self._blocks: list[_Block] = []
        self._layout: dict[int, int] | None = None  #: the width of each column that is shown, by its place
        self._available: int | None = None  #: the columns of the terminal; None if it is not one
        self._beginning = ""  #: what all texts of the column that folds begin with

    def add(self, block: Mapping[str, Sequence[Any]]) -> None:
        """Add the rows in *block*, which has all columns by their names."""
        cells = [_texts(column, block[column.name]) for column in self._columns]
        if cells[0]:
            self.rows += len(cells[0])
            self.waiting += len(cells[0])
            if self._blocks:
                self._blocks[-1] = ["\n".join(_split(column)) for column in self._blocks[-1]]
            self._blocks.append(cells)
            for place in [*self._empty]:
                if any(value is not None for value in block[self._columns[place].name]):
                    self._empty.discard(place)
                    self._layout = None

    @property
    def left_out(self) -> list[str]:
        """The names of the columns that did not fit."""
        shown = self._layout
        return [] if shown is None else [self._columns[it].name for it in self._used if it not in shown]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the rows added since the last call, with newlines, behind the titles."""
        blocks, self._blocks, self.waiting = self._blocks, [], 0
        if not blocks:
            return
        available = size_of(self._file).columns - len(self._indent) if self._file.isatty() else None
        if self._layout is None or available != self._available:
            self._available = available
            self._beginning = self._common_beginning(blocks)
            self._layout = self._fit(blocks)
            yield from self._heading()
            yield f"{self._indent}{self._title()}\n"
        for cells in blocks:  # one at a time, because apart they take several times as much memory
            block = [*map(_split, cells)]
            if not all(text.startswith(self._beginning) for text in self._folding(block)):
                self._beginning = self._common_beginning([block])
                yield from self._heading()
            yield from self._lines_of(block)

    def _folding(self, block: _Block) -> Sequence[str]:
        """Return the texts whose common beginning is shown once, if any."""
        return () if self._folded is None or self._available is None else _split(block[self._folded])

    def _common_beginning(self, blocks: Sequence[_Block]) -> str:
        texts = [text for block in blocks for text in self._folding(block)]
        return common_beginning(texts)

    def _fit(self, blocks: Sequence[_Block]) -> dict[int, int]:
        widths = []
        for place, column in enumerate(self._columns):
            cut = len(self._beginning) if place == self._folded else 0
            longest = max(cells_of(text) - cut for block in blocks for text in _split(block[place]))
            widths.append(max(longest, cells_of(column.name), column.at_least))
        if self._available is None:
            return {place: widths[place] for place in self._used}
        columns = [self._columns[place] for place in self._used]
        shown = fit(columns, [widths[place] for place in self._used], self._available, ample=self._grows)
        return {self._used[number]: width for number, width in shown.items()}

    @property
    def _used(self) -> list[int]:
        """The places of the columns that may be shown."""
        return [place for place in range(len(self._columns)) if place not in self._empty]

    def _heading(self) -> Iterator[str]:
        """Yield what all names begin with, if it is left out of them."""
        if self._beginning and self._available is not None and self._folded is not None:
            how = "below" if self._beginning.endswith("/") else "begins with"
            text = f"{self._columns[self._folded].name} {how} {self._beginning}"
            for line in wrap_path(text, self._available):
                yield f"{self._indent}{self._styled(line, Style.FAINT)}\n"

    def _title(self) -> str:
        assert self._layout is not None
        last = [*self._layout][-1]
        cells = []
        for place, width in self._layout.items():
            name = shorten(self._columns[place].name, width, self._mark)
            cells.append(self._styled(name, Style.STRONG) if self._available is not None else name)
            padding = " " * (width - cells_of(name))
            if self._columns[place].numeric:
                cells[-1] = padding + cells[-1]
            elif place != last:
                cells[-1] += padding
        return (" " * GAP).join(cells)

    def _lines_of(self, block: Sequence[Sequence[str]]) -> Iterator[str]:
        assert self._layout is not None
        if self._available is None and not is_coloured(self._file):
            shown = [(self._columns[place], width, block[place]) for place, width in self._layout.items()]
            yield plain_lines(shown, self._indent)
            return
        cells = [self._drawn(place, width, block[place]) for place, width in self._layout.items()]
        rows = zip(*cells, strict=True)
        yield "".join(f"{self._indent}{(' ' * GAP).join(row).rstrip()}\n" for row in rows)

    def _drawn(self, place: int, width: int, texts: Sequence[str]) -> Iterator[str]:
        """Yield *texts* as cells that are *width* columns wide."""
        column = self._columns[place]
        cut = len(self._beginning) if place == self._folded else 0
        mark = "" if self._beginning.endswith("/") or not cut else self._mark
        for whole in texts:
            text = mark + whole[cut:]
            if self._available is not None:
                text = shorten_number(text, width) if column.numeric else shorten(text, width, self._mark)
            padding = " " * (width - cells_of(text))
            drawn = text if column.style is None else self._styled(text, column.style(whole))
            yield padding + drawn if column.numeric else drawn + padding

    @property
    def _mark(self) -> str:
        """What stands for characters that are left out."""
        try:
            _ELLIPSIS.encode(self._file.encoding or "ascii")
        except UnicodeEncodeError:
            return _PLAIN_ELLIPSIS
        return _ELLIPSIS

    def _styled(self, text: str, style: Style) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if style and text and is_coloured(self._file) else text


def _split(cells: str | list[str]) -> list[str]:
    return cells.split("\n") if isinstance(cells, str) else cells


def _texts(column: Column, values: Sequence[Any]) -> list[str]:
    if column.repeats:
        texts = {value: column.text(value) for value in set(values)}
        return [*map(texts.__getitem__, values)] if len(texts) > 1 else [*texts.values()] * len(values)
    if column.text is printable and "".join(values).isprintable():
        return [*values]
    return [column.text(value) for value in values]
