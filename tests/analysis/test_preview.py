from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dumpstream.analysis.preview import Histogram, count_bins, count_exponents, pick_values


@pytest.mark.parametrize(
    ("values", "dtype", "counts"),
    [
        ([0, 1, 2, 3, 4], np.float32, (1, 1, 1, 2)),
        ([-1.7e308, 1.7e308, 0], np.float64, (1, 0, 1, 1)),
        ([-(2**63), 2**63 - 1], np.int64, (1, 0, 0, 1)),
        ([0, 255, 200], np.uint8, (1, 0, 0, 2)),
        ([False, True, True], np.bool_, (1, 0, 0, 2)),
        ([7, 7, 7], np.int8, (3, 0, 0, 0)),
        ([0, 1, 4], ml_dtypes.bfloat16, (1, 1, 0, 1)),
        ([0, 1e-320], np.float64, (1, 0, 0, 1)),
        ([5e-324, 0], np.float64, (2, 0, 0, 0)),
    ],
)
def test_every_element_is_counted_where_it_lies(
    values: list[Any], dtype: Any, counts: tuple[int, ...]
) -> None:
    array = np.array(values, dtype)
    numbers = array.astype(np.float64)

    found = count_bins([array], float(numbers.min()), float(numbers.max()), 4)

    assert found.counts == counts


def test_zeros_that_dwarf_nothing_are_among_the_others() -> None:
    array = np.array([0, 0, 0, 1, 0, 3], np.int8)

    found = count_bins([array[:3], array[3:]], 0, 4, 4)

    assert found.zeros == 4
    assert count_bins([array[1:]], 0, 4, 4) == (0, 4, (3, 1, 0, 1), 0)
    assert count_bins([np.array([0, -1, 1])], -1, 1, 2) == (-1, 1, (1, 2), 0)


def test_zeros_are_counted_apart_from_what_they_would_dwarf() -> None:
    array = np.array([0.0, -0.0, 0.0, 0.0, 1.0, 4.0, np.nan], np.float32)

    found = count_bins([array], 0, 4, 4)

    assert (found.zeros, found.counts) == (4, (0, 1, 0, 1))


def test_what_is_not_finite_is_not_counted() -> None:
    array = np.array([np.nan, np.inf, -np.inf, 1, 2], np.float32)

    assert sum(count_bins([array], 1, 2, 4).counts) == 2


@pytest.mark.parametrize(
    ("signalling", "dtype"), [(0x7F800001, np.float32), (0x7F81, ml_dtypes.bfloat16), (0x7C01, np.float16)]
)
def test_a_nan_that_signals_gives_no_warning(signalling: int, dtype: Any) -> None:
    bits = np.array([signalling, 0] * 64, f"u{np.dtype(dtype).itemsize}")

    assert count_bins([bits.view(dtype)], 0, 1, 4).zeros == 64


def test_more_than_a_block_is_counted() -> None:
    array = np.arange(1 << 21, dtype=np.float32).reshape(2, -1)

    assert count_bins([array], 0, float(array.max()), 4).counts == (1 << 19,) * 4


def test_bars_rise_with_the_counts_and_are_blank_without_any() -> None:
    histogram = Histogram(0, 1, (0, 1, 500, 1000))

    assert histogram.bars() == " ▁▄█"
    assert histogram.bars(ascii_only=True) == " .=@"


def test_few_values_are_all_first() -> None:
    assert pick_values([np.arange(4).reshape(2, 2)], 3, 1) == ([0, 1, 2, 3], [])
    assert pick_values([np.arange(5)], 3, 1) == ([0, 1, 2], [4])
    assert pick_values([np.array([1.5], ml_dtypes.float8_e5m2)], 1, 1) == ([1.5], [])


def test_values_are_picked_from_blocks_as_from_one() -> None:
    blocks = [np.arange(2), np.arange(2, 3), np.arange(3, 3), np.arange(3, 12)]

    assert pick_values(blocks, 4, 2) == ([0, 1, 2, 3], [10, 11])
    assert pick_values(blocks, 10, 5) == ([*range(12)], [])
    assert pick_values([], 4, 2) == ([], [])


def test_exponents_of_the_smallest_and_largest_doubles_share_few_counts() -> None:
    smallest, largest = 5e-324, np.finfo(np.float64).max

    found = count_exponents([np.array([smallest, -largest, 0, np.nan, np.inf])], 48)

    assert (found.low, found.zeros, len(found.counts)) == (-1074, 1, 48)
    assert sum(found.counts) == 2
    assert found.low + found.width * len(found.counts) > 1023


def test_values_without_exponents_have_no_counts() -> None:
    assert count_exponents([np.zeros(3), np.array([np.nan])], 48) == (0, 1, (), 3)
