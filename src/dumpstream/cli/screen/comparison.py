"""The table of a comparison: which rows are shown, in which order, and their columns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from dumpstream.cli._display import printable
from dumpstream.cli.screen.colour import Style, style_of
from dumpstream.cli.screen.layout import Column
from dumpstream.comparison.divergence import severity
from dumpstream.comparison.table import Agreement, ComparisonRow, Role
from dumpstream.statistics.sorting import sort_blocks
from dumpstream.statistics.table import SortKey

_UNKNOWN = "-"
_BLOCK_ROWS = 1000
_COMPARED = {str(it) for it in (Agreement.IDENTICAL, Agreement.CLOSE, Agreement.DIFFERENT)}
_ROLES = {Role.ADDED: Style.BAD, Role.UNDECIDED: Style.FAIR, Role.INHERITED: Style.FAINT}
_WORST = (SortKey("severity", True), SortKey("not_finite", True), SortKey("error", True), SortKey("number"))
_IN_ORDER = (SortKey("number"),)


def comparison_columns(block: Mapping[str, Sequence[Any]]) -> list[Column]:
    """Return the columns for rows such as those in *block*, without the rank, which only some have.

    Reasons matter most where something could not be compared, and models where there are several.
    """
    lost = not _COMPARED.issuperset(block["verdict"])
    columns = [
        _column("step", 3, numeric=True),
        _column("model", 7, least=8),
        _column("op_type", 15, least=8),
        _column("op_name", 0, least=20, folds=True),
        _column("tensor", 1),
        _column("verdict", 2, style=style_of),
        _column("role", 6, style=_style_of_role),
        _column("rel", 5, numeric=True),
        _column("max_abs", 8, numeric=True),
        _column("max_ulp", 13, numeric=True),
        _column("input_error", 10, numeric=True),
        _column("added", 9, numeric=True),
        _column("dtype", 14),
        _column("shape", 12, least=7),
        _column("reason", 4 if lost else 11, least=32),
    ]
    return columns if len({*block["model"]}) > 1 else [it for it in columns if it.name != "model"]


def rank_column() -> Column:
    """Return the column of the rank."""
    return _column("rank", 3, numeric=True)


def ordered_blocks(
    rows: Iterable[tuple[int, ComparisonRow]], *, worst_first: bool
) -> Iterator[dict[str, list[Any]]]:
    """Yield the numbered *rows* as blocks for the table, once all have come; on disk where they are many."""
    return (dict(it) for it in sort_blocks(_blocks(rows), _WORST if worst_first else _IN_ORDER))


def block_of(rows: Sequence[ComparisonRow]) -> dict[str, list[Any]] | None:
    """Return *rows* as a block for the table, in their order; None if there are none."""
    return next(_blocks(enumerate(rows)), None)


def _blocks(rows: Iterable[tuple[int, ComparisonRow]]) -> Iterator[dict[str, list[Any]]]:
    remaining = iter(rows)
    while some := [_cells(number, row) for number, row in islice(remaining, _BLOCK_ROWS)]:
        yield {name: [it[name] for it in some] for name in some[0]}


def _cells(number: int, row: ComparisonRow) -> dict[str, Any]:
    metrics = row.metrics
    severe, not_finite, error = severity(row)
    return {
        "number": number,
        "severity": severe,
        "not_finite": not_finite,
        "error": error,
        "rank": row.rank,
        "step": row.step,
        "model": row.model,
        "op_type": row.op_type,
        "op_name": row.op_name or "",
        "tensor": _UNKNOWN if row.io is None else f"{row.io} {row.index}",
        "verdict": str(row.verdict),
        "role": None if row.role is None else str(row.role),
        "rel": metrics.rel,
        "max_abs": metrics.max_abs,
        "max_ulp": metrics.max_ulp,
        "input_error": row.input_error,
        "added": row.added,
        "dtype": _both(row.dtype, row.golden_dtype),
        "shape": row.shape,
        "reason": row.cause,
    }


def _both(mine: str | None, golden: str | None) -> str | None:
    """Return what both have, or ``mine/golden``."""
    return mine or golden if mine == golden or not (mine and golden) else f"{mine}/{golden}"


def _column(name: str, place: int, **facts: Any) -> Column:
    repeats = not facts.get("numeric") and name not in {"op_name", "reason"}
    return Column(name=name, text=_text, importance=-place, repeats=repeats, **facts)


def _style_of_role(text: str) -> Style:
    return _ROLES[Role(text)] if text in {*Role} else Style.PLAIN


def _text(value: Any) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or "scalar"
    return printable(str(value))
