"""The columns of tables of tensors."""

from collections.abc import Sequence
from typing import Any

from dumpstream.cli._display import printable
from dumpstream.cli.screen.colour import Style
from dumpstream.cli.screen.layout import Column
from dumpstream.statistics.table import COLUMNS, Kind

_UNKNOWN = "-"
#: The most important first; all others are less important.
_IMPORTANT = (
    *("op_name", "nan", "max", "min", "host", "rank", "iteration", "io", "index", "shape", "pos_inf"),
    *("neg_inf", "finite_max", "finite_min", "mean", "op_type", "dtype", "count", "model"),
)
#: How short texts may become.
_LEAST = {"op_name": 20, "file": 24, "op_type": 8, "model": 8, "shape": 7, "problem": 16, "histogram": 8}
#: What later rows of a table may need.
_AMPLE = {"op_name": 28, "file": 100, "shape": 10}
_AMPLE_KINDS = {Kind.WHOLE: 6, Kind.REAL: 9, Kind.EXACT: 9}
#: Counts that are bad news if they are not 0.
_BAD = {"nan", "pos_inf", "neg_inf"}


def tensor_columns(names: Sequence[str]) -> list[Column]:
    """Return the columns of a table that shows these *names* of statistics."""
    return [tensor_column(name) for name in names]


def tensor_column(name: str) -> Column:
    """Return the column that shows one of the statistics."""
    kind = COLUMNS[name]
    folds = name in {"op_name", "file"}
    return Column(
        name=name,
        text=_text,
        numeric=kind.numeric,
        importance=-_IMPORTANT.index(name) if name in _IMPORTANT else -len(_IMPORTANT),
        least=_LEAST.get(name),
        ample=_AMPLE.get(name) or _AMPLE_KINDS.get(kind, 0),
        folds=folds,
        repeats=not kind.numeric and not folds,
        style=_style_of_count if name in _BAD else None,
    )


def _style_of_count(text: str) -> Style:
    return Style.PLAIN if text in {"0", _UNKNOWN} else Style.BAD


def _text(value: Any) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or _UNKNOWN
    return printable(str(value))
