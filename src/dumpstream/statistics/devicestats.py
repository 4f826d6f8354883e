"""Device statistics: the text that the runtime sends when it computes statistics itself.

The text has habits of its own: lines that are one cell short, a header that has ``Count`` twice, headers in
the middle, and extremes of some types printed as if they were 32-bit integers. What cannot be put right is
None, and the row has a problem. Text with the operator's name in front of each line, as CANN's documents
describe it and msprobe writes it, is read as well.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dumpstream.format.dtypes import DTYPES
from dumpstream.statistics.canncsv import COUNT, DEFAULT_SELECTION, DESCRIPTION, SELECTABLE, CannCsv
from dumpstream.statistics.table import COLUMNS, DEVICE, Kind, Number, TensorRow

#: More lines than this in one file are not read: CANN writes one for each tensor of an operator.
MAX_LINES = 1 << 16
_LONGEST_LINE = 1 << 16

_COLUMNS = {cell.lower(): column for cell, column in [*DESCRIPTION.items(), *SELECTABLE.values()]}
_COLUMNS |= {
    COUNT.lower(): "count",
    "slot": "index",
    "l2norm value": "l2norm",
    "op type": "op_type",
    "op name": "op_name",
    "task id": "task",
    "stream id": "stream",
    "timestamp": "timestamp",
}
_IO_CELL = next(iter(DESCRIPTION))
_DEFAULT_HEADER = CannCsv(DEFAULT_SELECTION).header.strip().split(",")
_COUNT_AT = 3  #: statistics before the count, in lines without values

_IO = {"Input": "input", "Output": "output", "input": "input", "output": "output"}
# The words of a cell that the column has in another form.
_WORDS = {"io": _IO, "dtype": {dtype.name: dtype.short for dtype in DTYPES.values()}}
_ABSENT = {"", "-", "NA", "UNKNOW"}
# No integer of 64 bits has more digits.
_NUMBER = re.compile(
    r"(?P<whole>[-+]?\d{1,20})|[-+]?(\d*\.?\d+|\d+\.)(e[-+]?\d+)?|[-+]?(nan|inf)", re.ASCII | re.IGNORECASE
)
_UNSIGNED = 1 << 32
_LARGEST = (1 << 63) - 1
# The types whose extremes every producer prints as what they are.
_TRUSTED = {
    *("float32", "float16", "bfloat16", "hifloat8", "float8_e5m2", "float8_e4m3fn"),
    *("int64", "int32", "int16", "int8", "uint32", "uint16", "uint8", "bool"),
}
# Floats have six digits in the text, and an exponent if they need more.
_ROUNDING = 1e-4
_LARGEST_PLAIN = 10**6


class DeviceText:
    """Takes the text of one statistics file in pieces and gives its rows.

    *origin* is what every row says of its file, and *source* what computed the rows.
    """

    def __init__(self, origin: TensorRow, *, source: str = DEVICE) -> None:
        self._origin = replace(origin, source=source)
        self._rest = b""  #: the beginning of a line
        self._header: Sequence[str] = ()
        self._lines = 0
        self._rows: list[TensorRow] = []
        self._problem: str | None = None  #: the first
        self.stopped = False  #: whether the rest is not read

    def add(self, piece: memoryview) -> None:
        """Take the next piece."""
        for start in range(0, len(piece), _LONGEST_LINE):
            if self.stopped:
                return
            *lines, self._rest = (self._rest + piece[start : start + _LONGEST_LINE]).split(b"\n")
            for line in lines:
                self._take(line)
            if len(self._rest) > _LONGEST_LINE:
                self._stop(f"is not statistics text: a line has more than {_LONGEST_LINE} bytes")

    def finish(self) -> list[TensorRow]:
        """Return the rows, and one more for the file if not all of it could be read."""
        self._take(self._rest, ended=False)
        if self._problem is None:
            return self._rows
        return [*self._rows, replace(self._origin, problem=self._problem)]

    def _take(self, line: bytes, *, ended: bool = True) -> None:
        text = line.replace(b"\0", b"").decode("utf-8", "replace").strip()
        if not text or self.stopped:
            return
        self._lines += 1
        if self._lines > MAX_LINES:
            self._stop(f"has more than {MAX_LINES} lines; the rest is not read")
            return
        cells = [cell.strip() for cell in text.split(",")]
        # A file that goes on after a pause has no header; CANN's default is the likely one.
        header = self._header or _DEFAULT_HEADER
        at = header.index(_IO_CELL)
        if _IO_CELL in cells:
            self._header = cells
        elif at < len(cells) and cells[at] in _IO:
            self._add_row(header, cells, ended=ended)
        elif self._header or self._rows:
            self._note("does not begin with Input or Output")
        else:
            self._stop(f"is not statistics text: it begins with {cells[0]!r:.40}")

    def _add_row(self, header: Sequence[str], cells: list[str], *, ended: bool) -> None:
        try:
            values = _values(_aligned(header, cells, ended=ended), cells)
        except ValueError as exc:
            self._note(str(exc))
        else:
            self._rows.append(_repaired(replace(self._origin, **values)))

    def _note(self, problem: str) -> None:
        self._problem = self._problem or f"is damaged: line {self._lines} {problem}; dump it again"

    def _stop(self, problem: str) -> None:
        self._problem = self._problem or problem
        self.stopped, self._rest = True, b""


def _aligned(header: Sequence[str], cells: Sequence[str], *, ended: bool) -> Sequence[str]:
    """Return the names of *cells*, which need not be those that their *header* has.

    CANN forgets to reset a flag: after the default statistics were computed, any other selection has its
    count, if at all, before the NaNs, while the header still begins with ``Count``. A line without values
    has the count in the fourth place, or nowhere. A line that is not *ended* may lack its last cells.
    """
    front = header.index(_IO_CELL) + len(DESCRIPTION)
    titles, values = header[front:], cells[front:]
    statistics = [title for title in titles if title != COUNT]
    has_count = len(values) == len(statistics) + 1
    if COUNT in titles and (has_count or len(values) == len(statistics)):
        counts = [_COUNT_AT] if has_count else []
        if values and all(value == "NA" for place, value in enumerate(values) if place not in counts):
            statistics[_COUNT_AT:_COUNT_AT] = [COUNT] * len(counts)
            return [*header[:front], *statistics]
    if len(cells) == len(header) - 1 and titles[:1] == [COUNT] and ended:
        return [*header[:front], *titles[1:]]
    if len(cells) != len(header):
        raise ValueError(f"has {len(cells)} cells, and its header {len(header)}")
    return header


def _values(header: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    """Return the known values of the columns in *header*; of one that is there twice, the first."""
    values: dict[str, Any] = {}
    for name, cell in zip(header, cells, strict=True):
        column = _COLUMNS.get(name.lower())
        if column is not None and cell not in _ABSENT:
            values.setdefault(column, _value(column, cell))
    return values


def _value(column: str, cell: str) -> Any:
    if column in _WORDS:
        return _WORDS[column].get(cell, cell)
    return _READERS[COLUMNS[column]](cell)


def _count(cell: str) -> int:
    count = _whole(cell)
    return count if count >= 0 else count + _UNSIGNED  # printed as 32 bits, whatever they are


def _shape(cell: str) -> tuple[int, ...]:
    shape = tuple([_whole(part) for part in cell.split("x")])
    if min(shape) < 0:
        raise ValueError(f"has the shape {cell!r:.40}, which no tensor has")
    return shape


def _whole(cell: str) -> int:
    number = _number(cell)
    if not isinstance(number, int) or abs(number) > _LARGEST:
        raise ValueError(f"has {cell!r:.40}, which is not an integer of 64 bits")
    return number


def _number(cell: str) -> Number:
    match = _NUMBER.fullmatch(cell)
    if match is None:
        raise ValueError(f"has {cell!r:.40}, which is not a number")
    return int(cell) if match["whole"] else float(cell)


_READERS: dict[Kind, Callable[[str], Any]] = {
    Kind.TEXT: str,
    Kind.WHOLE: _count,
    Kind.REAL: lambda cell: float(_number(cell)),
    Kind.EXACT: _number,
    Kind.LIST: _shape,
}


def _repaired(row: TensorRow) -> TensorRow:
    """Return *row* with the extremes that its type must have, or without them."""
    known: dict[str, Any] = {"max": row.max, "min": row.min}
    known = {name: value for name, value in known.items() if value is not None}
    if not known:
        return row
    if row.dtype in {"uint32", "uint64"}:
        known = {name: value + _UNSIGNED if value < 0 else value for name, value in known.items()}
    if row.dtype not in _TRUSTED and not _credible(row, known):
        problem = f"max and min are unknown: the runtime printed 32 bits of each {row.dtype or 'value'}"
        return replace(row, max=None, min=None, problem=problem)
    if row.dtype is not None and "float" in row.dtype:
        known = {name: float(value) for name, value in known.items()}  # the text of 1.0 is 1
    return replace(row, **known)


def _credible(row: TensorRow, known: Mapping[str, Number]) -> bool:
    """Whether the extremes *known* are those of the tensor and not what 32 bits of them look like."""
    if any(isinstance(value, float) for value in known.values()):
        return True
    largest, mean = max(map(abs, known.values())), row.mean
    if "float" in (row.dtype or "") and largest >= _LARGEST_PLAIN:
        return False
    if mean is None or not math.isfinite(mean):
        return False
    slack = _ROUNDING * max(abs(mean), largest)
    return known.get("min", mean) <= mean + slack and mean <= known.get("max", mean) + slack
