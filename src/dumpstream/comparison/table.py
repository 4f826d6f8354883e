"""Table: the rows of a comparison, one for each tensor of either side; the columns are declared here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from dumpstream.statistics.table import Number, json_value


class Agreement(StrEnum):
    """How far two tensors agree, the worst last."""

    IDENTICAL = "identical"
    CLOSE = "close"
    DIFFERENT = "different"
    UNMATCHED = "unmatched"  #: the other side does not have it
    UNREADABLE = "unreadable"


class Role(StrEnum):
    """The part that an operator has in the error of its outputs."""

    ADDED = "added here"  #: its inputs agree and its outputs do not
    INHERITED = "inherits"  #: an input differs already
    UNDECIDED = "undecided"  #: its inputs prove nothing


class Worst(NamedTuple):
    """The element with the largest error."""

    index: tuple[int, ...]  # type: ignore[assignment]  # hides tuple.index
    mine: Number
    golden: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """How two tensors differ, over the elements that are finite on both sides; None for what is not known."""

    count: int | None = None  #: elements
    cosine: float | None = None
    max_abs: Number | None = None  #: exact for integers
    mean_abs: float | None = None
    rmse: float | None = None
    acc_rel: float | None = None  #: sum of the relative errors
    max_rel: float | None = None
    mean_rel: float | None = None
    rel_euclidean: float | None = None
    kl: float | None = None
    rel: float | None = None  #: 1 - 2 sum(xy) / (sum(x^2) + sum(y^2))
    max_ulp: float | None = None  #: in units in the last place of the coarser type
    beyond_1_1000: float | None = None  #: share of elements whose relative error is above 1/1000
    beyond_5_1000: float | None = None
    nan_both: int | None = None
    nan_mine: int | None = None  #: NaN only in mine
    nan_golden: int | None = None
    inf_differs: int | None = None  #: infinite with other signs, or on one side only and finite on the other
    bit_equal: int | None = None  #: elements
    mean: float | None = None
    std: float | None = None
    golden_mean: float | None = None
    golden_std: float | None = None
    worst: Worst | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One tensor of either side, or a pair of them; None where a value is not known."""

    rank: int | None = None
    model: str | None = None
    step: int | None = None
    op_type: str | None = None
    op_name: str | None = None
    io: str | None = None
    index: int | None = None
    occurrence: int | None = None
    mine: str | None = None  #: the name of the file
    golden: str | None = None
    dtype: str | None = None
    golden_dtype: str | None = None
    shape: tuple[int, ...] | None = None
    verdict: Agreement
    reason: str | None = None  #: why the verdict is not better, or what the pair rests on
    metrics: Metrics
    input_error: float | None = None  #: the largest `rel` among the inputs of the operator
    added: float | None = None  #: how much larger the error of this output is than that of the inputs
    role: Role | None = None  #: of an operator whose outputs differ; `reason` begins with it

    @property
    def cause(self) -> str | None:
        """The reason without the role that it begins with."""
        if self.reason is None or self.role is None:
            return self.reason
        return self.reason.removeprefix(str(self.role)).lstrip(":; ") or None


#: The columns of every output format, in order; those of `Metrics` are beside the others.
COLUMNS: tuple[str, ...] = tuple(
    name
    for field in fields(ComparisonRow)
    if field.name != "role"
    for name in ([it.name for it in fields(Metrics)] if field.name == "metrics" else [field.name])
)
_METRIC_NAMES = tuple(field.name for field in fields(Metrics))
_OF_METRICS = frozenset(_METRIC_NAMES)
_OWN_NAMES = tuple(name for name in COLUMNS if name not in _OF_METRICS)
_OWN, _MEASURED = attrgetter(*_OWN_NAMES), attrgetter(*_METRIC_NAMES)


def column_value(row: ComparisonRow, name: str) -> Any:
    """Return the value of *row* in one of `COLUMNS`."""
    return getattr(row.metrics if name in _OF_METRICS else row, name)


def columns_of(rows: Sequence[ComparisonRow]) -> dict[str, list[Any]]:
    """Return *rows*, of which there is one at least, as `COLUMNS`."""
    own = zip(*map(_OWN, rows), strict=True)
    found = dict(zip(_OWN_NAMES, map(list, own), strict=True))
    measured = zip(*map(_MEASURED, (row.metrics for row in rows)), strict=True)
    found |= dict(zip(_METRIC_NAMES, map(list, measured), strict=True))
    return {name: found[name] for name in COLUMNS}


def json_row(row: ComparisonRow) -> dict[str, Any]:
    """Return *row* as JSON can hold it: what is not finite becomes a string."""
    return {name: _json_of(column_value(row, name)) for name in COLUMNS}


def _json_of(value: Any) -> Any:
    if isinstance(value, Worst):
        return {"index": [*value.index], "mine": json_value(value.mine), "golden": json_value(value.golden)}
    return [*value] if isinstance(value, tuple) else json_value(value)


def csv_row(row: ComparisonRow) -> list[str]:
    """Return *row* as texts; lists and `worst` are JSON, and what is not known is empty."""
    values = (_json_of(column_value(row, name)) for name in COLUMNS)
    return ["" if it is None else json.dumps(it) if isinstance(it, list | dict) else str(it) for it in values]
