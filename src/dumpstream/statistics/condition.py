"""Conditions on the rows of the table: comparisons of a column with a value, joined by and, or and not.

Every condition is true or false of a row. A comparison with a value that is not known is false, also by
``!=`` and ``!~``. NaN compares as in IEEE 754: of the comparisons with a number, only ``!=`` is true of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dumpstream.statistics.table import COLUMNS, Number

#: Whether something is true, row by row.
Mask: TypeAlias = NDArray[np.bool_]

#: The operators that compare numbers,
ORDERING: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
#: those that compare text,
MATCHING: dict[str, Callable[[str, str], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "~": fnmatchcase,
    "!~": lambda text, pattern: not fnmatchcase(text, pattern),
}
#: and those that compare with nothing.
IS_NULL, IS_NAN = "is null", "is nan"

_EXACT_DOUBLES = 1 << 53  # every integer below is one
_Result = TypeVar("_Result")


class Bounds(NamedTuple):
    """The least and the greatest value that a column has in some rows, without nulls and NaNs."""

    low: Any
    high: Any


class Comparison(NamedTuple):
    """A comparison of a column with a number or with text."""

    column: str
    operator: str
    value: Number | str | None = None  #: text as `comparable` returns it

    def holds(self, value: Any) -> bool:
        """Whether it is true of a row whose column has *value*."""
        if value is None or self.operator == IS_NULL:
            return value is None and self.operator == IS_NULL
        if self.operator == IS_NAN:
            return bool(value != value)  # noqa: PLR0124 - only NaN differs from itself
        if isinstance(self.value, str):
            return MATCHING[self.operator](comparable(value), self.value)
        return bool(ORDERING[self.operator](value, self.value))

    def mask_of(self, values: Iterable[Any]) -> Mask:
        """Return of which of *values* it is true."""
        return np.array([*map(self.holds, values)], np.bool_)

    def mask_of_numbers(self, values: NDArray[Any], known: Mask) -> Mask:
        """Return of which of *values* it is true, if it `suits_doubles`; they count only where *known*."""
        if self.operator == IS_NULL:
            return ~known
        doubles = values.astype(np.float64)
        if self.operator == IS_NAN:
            return known & np.isnan(doubles)
        true: Mask = ORDERING[self.operator](doubles, self.value)
        return known & true

    @property
    def suits_doubles(self) -> bool:
        """Whether it compares numbers, and is true of an integer if it is true of the nearest double."""
        if isinstance(self.value, str) or not COLUMNS[self.column].numeric:
            return False
        return self.value is None or abs(self.value) < _EXACT_DOUBLES

    def may_hold(self, bounds: Bounds | None) -> bool:
        """Whether it may be true of one of the rows whose column has these *bounds*."""
        if bounds is None or not (isinstance(self.value, str) or self.suits_doubles):
            return True
        if isinstance(self.value, str) is not isinstance(bounds.low, str):  # a column of another writer
            return True
        match self.operator:
            case "==":
                return bool(bounds.low <= self.value <= bounds.high)
            case "<" | "<=":
                return self.holds(bounds.low)
            case ">" | ">=":
                return self.holds(bounds.high)
        return True


class Every(NamedTuple):
    """True if all *parts* are."""

    parts: Sequence[Condition]


class Either(NamedTuple):
    """True if one of *parts* is."""

    parts: Sequence[Condition]


class Not(NamedTuple):
    """True if *part* is not."""

    part: Condition


Condition: TypeAlias = Comparison | Every | Either | Not


def comparable(value: Any) -> str:
    """Return *value* as text is compared: as Parquet can hold it, and a shape as ``8x128``."""
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """Yield every comparison in *condition*."""
    match condition:
        case Comparison():
            yield condition
        case Not():
            yield from comparisons(condition.part)
        case _:
            for part in condition.parts:
                yield from comparisons(part)


def columns_of(conditions: Iterable[Condition]) -> set[str]:
    """Return the columns that *conditions* compare."""
    return {it.column for condition in conditions for it in comparisons(condition)}


def mask_of(conditions: Sequence[Condition], of_comparison: Callable[[Comparison], Mask]) -> Mask:
    """Return the rows of which all *conditions* are true, given those of which a comparison is."""
    every, either = np.logical_and.reduce, np.logical_or.reduce
    mask: Mask = _evaluate(Every(conditions), of_comparison, every, either, np.logical_not)
    return mask


def holds(conditions: Sequence[Condition], value_of: Callable[[str], Any]) -> bool:
    """Whether all *conditions* are true of a row that has *value_of(name)* in the column *name*."""
    return _evaluate(
        Every(conditions), lambda it: it.holds(value_of(it.column)), all, any, lambda part: not part
    )


def may_hold(conditions: Sequence[Condition], bounds_of: Callable[[str], Bounds | None]) -> bool:
    """Whether all *conditions* may be true of one of the rows that have these bounds, as far as known."""
    # Bounds say where a comparison is true nowhere, not where it is true everywhere.
    return _evaluate(
        Every(conditions), lambda it: it.may_hold(bounds_of(it.column)), all, any, lambda _: True
    )


def _evaluate(
    condition: Condition,
    of_comparison: Callable[[Comparison], _Result],
    every: Callable[[list[_Result]], _Result],
    either: Callable[[list[_Result]], _Result],
    negated: Callable[[_Result], _Result],
) -> _Result:
    def of(condition: Condition) -> _Result:
        match condition:
            case Comparison():
                return of_comparison(condition)
            case Not(part):
                return negated(of(part))
            case Every(parts):
                return every([of(part) for part in parts])
            case Either(parts):
                return either([of(part) for part in parts])

    return of(condition)
