"""Metrics: two tensors' elements in, how they differ out, in one native pass over both."""

from __future__ import annotations

import math
from functools import lru_cache

from dumpstream._native import Comparison, ComparisonSummary
from dumpstream.comparison.elements import Elements
from dumpstream.comparison.precision import is_numeric, precision_of
from dumpstream.comparison.table import Metrics, Worst
from dumpstream.format.dtypes import DType
from dumpstream.statistics.kernels import encoding_of
from dumpstream.statistics.table import Number

_BYTE_BITS = 8
#: Packed elements are taken in multiples of so many: whole bytes, whatever their bits.
_PACKED_ELEMENTS = 8
_BYTES = ("u1", None, True, 0, 0)


def compare_elements(mine: Elements, golden: Elements, *, kl: bool = False) -> Metrics:
    """Return how *mine* and *golden* differ; their types may differ, the number of elements may not.

    Takes memory for a block of each, whatever their size; *kl* takes a second pass over both. Elements that
    are not numbers are compared as bytes: only `count` and `bit_equal` are known then. Complex numbers count
    as two numbers each; `worst` has the coordinates of the element, and the values of the component.

    - `cosine` is 1 if all elements of both are 0, and NaN if only those of one side are.
    - `rel_euclidean` is infinite if the golden is all 0 and mine is not.
    - `acc_rel`, `max_rel` and `mean_rel` count golden elements up to 2.2e-16 as if they had no error.
    - `beyond_1_1000` and `beyond_5_1000` do count them, as if the golden element were 2.2e-16.
    - `max_ulp` is in units in the last place that the larger of the two numbers has in the coarser type, so
      it stays below 2 to the power of that type's digits plus 2, also across zero. None for two types of
      integers.
    - `bit_equal` counts elements of one type with the same bits, and of two types with equal values, the sign
      of a zero included; a NaN is not equal to one of another type.
    - `worst` is the first of the elements with the largest `max_abs`. If no finite elements differ, it is the
      first where a NaN or an infinity has no equal, and None if there is none.

    Against floats, integers of 8 bytes are rounded to doubles, but for `bit_equal`.
    Without a pair of finite elements, everything but the counts is None.

    Raises:
        ValueError: they do not have the same number of elements.
    """
    numeric = is_numeric(mine.dtype) and is_numeric(golden.dtype)
    counts = [_count(side, numeric=numeric) for side in (mine, golden)]
    if counts[0] != counts[1]:
        raise ValueError(f"{counts[0]} elements cannot be compared with {counts[1]}")
    sides = [native_side(side.dtype, packed=side.packed) if numeric else _BYTES for side in (mine, golden)]
    comparison = Comparison(sides[0], sides[1], kl=kl and numeric)
    _take(comparison, mine, golden, counts[0], numeric=numeric)
    if kl and numeric:
        comparison.again()
        _take(comparison, mine, golden, counts[0], numeric=numeric)
    found = comparison.result()
    if not numeric:
        return Metrics(count=found.count, bit_equal=found.bit_equal)
    return metrics_of(found, mine.dtype, golden.dtype, golden.shape)


def _components(dtype: DType) -> int:
    return 2 if dtype.numpy.kind == "c" else 1


def _count(side: Elements, *, numeric: bool) -> int:
    count = math.prod(side.shape)
    if numeric:
        return count * _components(side.dtype)
    bits = side.dtype.bits if side.packed else -(-side.dtype.bits // _BYTE_BITS) * _BYTE_BITS
    return -(-count * bits // _BYTE_BITS)


@lru_cache(256)
def native_side(dtype: DType, *, packed: bool) -> tuple[str, memoryview | None, bool, int, int]:
    """Return how native code is told to read the elements of *dtype*, which are numbers."""
    encoding = encoding_of(dtype.number, packed=packed)
    assert encoding is not None  # it is numeric
    digits, exponent = precision_of(dtype) or (0, 0)
    table = None if encoding.table is None else memoryview(encoding.table)
    return encoding.kind, table, encoding.is_integer, digits, exponent


# Blocks of both


class _Cursor:
    """A place in the elements of one side."""

    __slots__ = ("_bits", "_blocks", "left", "view")

    def __init__(self, side: Elements, *, numeric: bool) -> None:
        self._blocks = side.blocks()
        width = side.dtype.bits // _components(side.dtype)
        self._bits = width if side.packed else -(-width // _BYTE_BITS) * _BYTE_BITS
        if not numeric:
            self._bits = _BYTE_BITS
        self.view = memoryview(b"")
        self.left = 0  #: elements of the view

    def fill(self) -> None:
        """Add the next block."""
        rest = bytes(self.view)  # as the next block may take its place
        block = next(self._blocks, None)
        if block is None:
            raise ValueError("a tensor has fewer elements than its shape; dump it again")
        self.view = memoryview(rest + block) if rest else block
        self.left = len(self.view) * _BYTE_BITS // self._bits

    def skip(self, count: int) -> None:
        """Leave *count* elements behind, which end with a byte or are all."""
        self.view = self.view[-(-count * self._bits // _BYTE_BITS) :]
        self.left -= count


def _take(comparison: Comparison, mine: Elements, golden: Elements, count: int, *, numeric: bool) -> None:
    cursors = [_Cursor(side, numeric=numeric) for side in (mine, golden)]
    step = _PACKED_ELEMENTS if numeric and (mine.packed or golden.packed) else 1
    while count > 0:
        taken = min(count, *(cursor.left for cursor in cursors))
        if taken < count:
            taken -= taken % step
        if taken == 0:
            shorter = min(cursors, key=lambda cursor: cursor.left)
            shorter.fill()
            continue
        comparison.update(cursors[0].view, cursors[1].view, taken)
        for cursor in cursors:
            cursor.skip(taken)
        count -= taken


# Results


def metrics_of(found: ComparisonSummary, mine: DType, golden: DType, shape: tuple[int, ...]) -> Metrics:
    """Return the metrics of two tensors of the same *shape*, and of the types *mine* and *golden*."""
    counts = {
        "count": found.count,
        "nan_both": found.nan_both,
        "nan_mine": found.nan_mine,
        "nan_golden": found.nan_golden,
        "inf_differs": found.inf_differs,
        "bit_equal": found.bit_equal,
    }
    worst = _worst(found, mine, golden, shape)
    finite = found.finite
    if finite == 0:
        return Metrics(**counts, worst=worst)
    return Metrics(
        **counts,
        cosine=_cosine(found),
        max_abs=found.max_error,
        mean_abs=found.errors / finite,
        rmse=found.rmse,
        acc_rel=found.relative,
        max_rel=found.max_relative,
        mean_rel=found.relative / finite,
        rel_euclidean=_rel_euclidean(found),
        kl=found.kl,
        rel=_rel(found),
        max_ulp=found.max_ulp,
        beyond_1_1000=found.beyond_1 / finite,
        beyond_5_1000=found.beyond_5 / finite,
        mean=found.mean,
        std=found.std,
        golden_mean=found.golden_mean,
        golden_std=found.golden_std,
        worst=worst,
    )


def _cosine(found: ComparisonSummary) -> float:
    if found.xx == found.yy == found.xy:  # also if both are 0
        return 1.0
    norms = math.sqrt(found.xx) * math.sqrt(found.yy)
    return max(-1.0, min(1.0, found.xy / norms)) if norms else math.nan


def _rel_euclidean(found: ComparisonSummary) -> float:
    if found.yy:
        return math.sqrt(found.squares / found.yy)
    return math.inf if found.squares else 0.0


def _rel(found: ComparisonSummary) -> float:
    # The sum of squared errors is xx + yy - 2 xy, without the digits that this would lose.
    return found.squares / (found.xx + found.yy) if found.xx or found.yy else 0.0


def _worst(found: ComparisonSummary, mine: DType, golden: DType, shape: tuple[int, ...]) -> Worst | None:
    if found.worst is None or found.worst_mine is None or found.worst_golden is None:
        return None
    index = _coordinates(found.worst // _components(golden), shape)
    return Worst(index, _number(mine, found.worst_mine), _number(golden, found.worst_golden))


def _coordinates(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    found = []
    for length in reversed(shape):
        place, at = divmod(place, length)
        found.append(at)
    return tuple(reversed(found))


def _number(dtype: DType, value: Number) -> Number:
    return int(value) if dtype.numpy.kind in "iub" else value
