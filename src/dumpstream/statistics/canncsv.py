"""CANN's statistics text: a header line and a line per tensor, written as CANN writes them.

CANN has no lines for buffers and spaces, so there are none here. Where CANN leaves the count out of a line
without values, it is written, so that every line has as many cells as the header.
"""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from dumpstream.format.dtypes import DTYPES
from dumpstream.format.formats import FORMATS
from dumpstream.format.header import IO
from dumpstream.statistics.table import Number

#: The cells that every line begins with, and the column each is.
DESCRIPTION = {
    "Input/Output": "io",
    "Index": "index",
    "Data Size": "size",
    "Data Type": "dtype",
    "Format": "format",
    "Shape": "shape",
}
COUNT = "Count"
#: What can be selected (``dump_stats``), with the cell's name and the column it is, in CANN's order.
SELECTABLE = {
    "Max": ("Max Value", "max"),
    "Min": ("Min Value", "min"),
    "Avg": ("Avg Value", "mean"),
    "Nan": ("Nan Count", "nan"),
    "Negative Inf": ("Negative Inf Count", "neg_inf"),
    "Positive Inf": ("Positive Inf Count", "pos_inf"),
    "L2norm": ("l2norm", "l2norm"),
}
#: What CANN computes unless told.
DEFAULT_SELECTION = tuple(name for name in SELECTABLE if name != "L2norm")

_COUNT_AT_DEFAULT = 3  # behind Max, Min and Avg; with any other selection it comes first
_NAMES = {dtype.short: dtype.name for dtype in DTYPES.values()}
_FORMATS = {format_.name for format_ in FORMATS.values()}
_UNKNOWN, _NOTHING, _ABSENT = "UNKNOW", "-", "NA"  # as CANN spells them
_LABELS = {IO.INPUT.value: "Input", IO.OUTPUT.value: "Output"}


class CannCsv:
    """Writes rows as CANN does, with the statistics in *selection*, behind the columns in *front*.

    Raises:
        ValueError: *selection* has a name that CANN does not know; the message lists those it does.
    """

    def __init__(self, selection: Sequence[str] = DEFAULT_SELECTION, front: Sequence[str] = ()) -> None:
        for name in selection:
            if name not in SELECTABLE:
                raise ValueError(f"no statistic {name!r}; dump_stats knows {', '.join(SELECTABLE)}")
        cells = [SELECTABLE[name] for name in SELECTABLE if name in selection]
        at = _COUNT_AT_DEFAULT if set(selection) == set(DEFAULT_SELECTION) else 0
        cells.insert(at, (COUNT, "count"))
        self._front = len(front)
        #: What `lines` needs.
        self.columns = (*front, *DESCRIPTION.values(), *(column for _, column in cells))
        #: The first line.
        self.header = ",".join([*front, *DESCRIPTION, *(name for name, _ in cells)]) + "\n"

    def lines(self, columns: Mapping[str, Sequence[Any]]) -> str:
        """Return the lines of those rows in *columns* that are inputs or outputs."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for row in zip(*(columns[name] for name in self.columns), strict=True):
            io, index, size, dtype, format_, shape, *numbers = row[self._front :]
            if io in _LABELS:
                writer.writerow(
                    [
                        *map(_text, row[: self._front]),
                        _LABELS[io],
                        _number(index),
                        _number(size),
                        _NAMES.get(dtype or "", _UNKNOWN),
                        format_ if format_ in _FORMATS else _UNKNOWN,
                        "x".join(map(str, shape)) if shape else _NOTHING,
                        *map(_number, numbers),
                    ]
                )
        return text.getvalue()


def _number(value: Number | None) -> str:
    """Return *value* in at most six digits, but an integer in all it has."""
    if value is None:
        return _ABSENT
    return f"{value:g}" if isinstance(value, float) else str(value)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return "" if value is None else str(value)
