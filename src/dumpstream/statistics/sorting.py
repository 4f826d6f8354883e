"""Sorting: the rows of columns in order, on disk where they are many."""

import heapq
import marshal
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import total_ordering
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, Any

from dumpstream.statistics.table import SortKey, sort_columns

_ROWS_IN_MEMORY = 100_000
_ROWS_AT_ONCE = 1000

_Columns = Mapping[str, list[Any]]
_Row = tuple[Any, ...]


def sort_blocks(blocks: Iterable[_Columns], keys: Sequence[SortKey]) -> Iterator[_Columns]:
    """Yield the rows of all *blocks*, which have the same columns, as `sort_columns` orders them.

    Rows that do not fit are sorted in portions, which wait in a temporary file until they are merged.
    """
    with TemporaryFile() as file:
        portions: list[Iterator[_Row]] = []
        rows: dict[str, list[Any]] = {}
        for block in blocks:
            for name, values in block.items():
                rows.setdefault(name, []).extend(values)
            if rows and len(rows[keys[0].column]) >= _ROWS_IN_MEMORY:
                portions.append(_spill(file, sort_columns(rows, keys)))
                rows = {name: [] for name in rows}
        if not rows:
            return
        last = sort_columns(rows, keys)
        if not portions:
            yield last
            return
        merged = heapq.merge(*portions, zip(*last.values(), strict=True), key=_order(list(last), keys))
        while some := list(islice(merged, _ROWS_AT_ONCE)):
            yield dict(zip(last, map(list, zip(*some, strict=True)), strict=True))


def _spill(file: IO[bytes], columns: _Columns) -> Iterator[_Row]:
    """Write the rows of *columns* to *file*; return what reads them back, a few at a time."""
    rows = zip(*columns.values(), strict=True)
    places = []
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        places.append((file.tell(), file.write(marshal.dumps(some))))
    file.flush()
    fd = file.fileno()
    # The bytes are those that were written above: the file does not have a name.
    return (row for start, size in places for row in marshal.loads(os.pread(fd, size, start)))  # noqa: S302


def _order(names: Sequence[str], keys: Sequence[SortKey]) -> Callable[[_Row], list[Any]]:
    """Return what rows are compared by: NaN comes behind all numbers, and None behind NaN."""
    places = [(names.index(key.column), key.descending) for key in keys]

    def of_row(row: _Row) -> list[Any]:
        return [_place(row[place], descending=descending) for place, descending in places]

    return of_row


def _place(value: Any, *, descending: bool) -> tuple[int, Any]:
    if value is None:
        return 2, 0
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return 1, 0
    return 0, _Descending(value) if descending else value


@total_ordering
class _Descending:
    """A value that is less than another if it is greater."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self._value == other._value)

    def __lt__(self, other: "_Descending") -> bool:
        return bool(other._value < self._value)

    __hash__ = None  # type: ignore[assignment]
