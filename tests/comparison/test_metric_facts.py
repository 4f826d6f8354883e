"""Metrics of single pairs: what numbers, NaN, infinities, zeros and strings come to."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.comparison.stored import StoredElements

from dumpstream._native import Comparison, use_kernels
from dumpstream.comparison.elements import elements_of
from dumpstream.comparison.metrics import compare_elements
from dumpstream.comparison.table import Metrics
from dumpstream.format.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator


_STRING = 13


@pytest.fixture(params=sorted({"portable", use_kernels("auto")}), autouse=True, scope="module")
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run every test with every set of kernels that this machine has."""
    yield use_kernels(request.param)
    use_kernels("auto")


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e150, 1e300])
def test_doubles_whose_squares_no_double_holds_are_compared(size: float) -> None:
    random = np.random.default_rng(3)
    golden = random.standard_normal(3000)
    mine = golden * (1 + 1e-3 * random.standard_normal(3000))
    usual = compare(mine, golden, np.float64)

    found = compare(mine * size, golden * size, np.float64)

    near = 1e-3 if size < 1e-300 else 1e-12  # subnormal doubles have fewer digits
    assert found.cosine == pytest.approx(usual.cosine, rel=near)
    assert found.rel_euclidean == pytest.approx(usual.rel_euclidean, rel=near)
    assert found.rel == pytest.approx(usual.rel, rel=near)
    assert found.rmse == pytest.approx((usual.rmse or 0) * size, rel=near)


def test_the_deviation_of_doubles_whose_squares_vanish_is_a_number() -> None:
    found = compare(np.full(1024, 1e-163), np.full(1024, 2e-163), np.float64)

    assert (found.std, found.golden_std) == (0, 0)


def test_the_largest_doubles_are_some_ulps_apart() -> None:
    largest = np.finfo(np.float64).max

    assert compare(largest, np.nextafter(largest, 0), np.float64).max_ulp == 1


def test_tensors_of_very_different_doubles_count_as_the_larger() -> None:
    found = compare([1e300] * 1024 + [1.0] * 1024, [1e300] * 1024 + [2.0] * 1024, np.float64)

    assert found.cosine == pytest.approx(1)
    assert found.rmse == pytest.approx(math.sqrt(0.5))


def test_an_integer_that_no_double_holds_is_not_equal_to_a_double() -> None:
    found = compare_elements(elements_of(np.array([2**53 + 1, 5])), elements_of(np.array([2.0**53, 5.0])))

    assert found.bit_equal == 1


def compare(mine: Any, golden: Any, dtype: Any = np.float32, *, kl: bool = False) -> Metrics:
    return compare_elements(elements_of(np.array(mine, dtype)), elements_of(np.array(golden, dtype)), kl=kl)


def test_integers_beyond_2_to_the_53rd_are_subtracted_exactly() -> None:
    mine, golden = np.array([2**63 - 1, 2**62 + 1]), np.array([2**64 - 1, 2**62], np.uint64)

    found = compare_elements(elements_of(mine), elements_of(golden))

    assert found.max_abs == 2**63
    assert compare_elements(elements_of(mine[1:]), elements_of(golden[1:])).max_abs == 1
    assert compare_elements(elements_of(mine[1:]), elements_of(golden[1:])).bit_equal == 0


def test_a_difference_that_no_double_holds_is_exact_even_if_both_integers_are_doubles() -> None:
    assert compare([2**53 - 1, 0], [2 - 2**53, 0], np.int64).max_abs == 2**54 - 3


def test_the_difference_of_signed_and_unsigned_may_take_more_than_64_bits() -> None:
    found = compare_elements(elements_of(np.array([-(2**63)])), elements_of(np.array([2**64 - 1], np.uint64)))

    assert found.max_abs == 2**64 + 2**63 - 1
    assert found.worst == ((0,), -(2**63), 2**64 - 1)


def test_cosine_of_zeros_is_as_in_canns_tool() -> None:
    assert compare([0, 0], [0, 0]).cosine == 1
    assert math.isnan(compare([0, 0], [1, 0]).cosine or 0)
    assert math.isnan(compare([1, 0], [0, 0]).cosine or 0)


def test_a_golden_of_zeros_is_infinitely_far_away() -> None:
    assert compare([0, 1], [0, 0]).rel_euclidean == math.inf
    assert compare([0, 0], [0, 0]).rel_euclidean == 0


def test_a_tiny_golden_has_no_relative_error_but_counts_as_beyond() -> None:
    found = compare([1, 1], [0, 1])

    assert found.max_rel == found.acc_rel == 0
    assert found.beyond_1_1000 == found.beyond_5_1000 == 0.5


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_neighbours_above_a_power_of_two_are_one_ulp_apart(dtype: Any) -> None:
    assert compare(np.nextafter(dtype(1), dtype(2)), dtype(1), dtype).max_ulp == 1
    assert compare(np.nextafter(dtype(0), dtype(1)), dtype(0), dtype).max_ulp == 1
    assert compare(np.nextafter(dtype(0), dtype(1)), -np.nextafter(dtype(0), dtype(1)), dtype).max_ulp == 2


def test_rounding_to_a_coarser_type_is_at_most_half_an_ulp_of_it() -> None:
    golden = np.random.default_rng(1).standard_normal(5000).astype(np.float32)
    golden[:100] *= 1e-7

    found = compare_elements(elements_of(golden.astype(np.float16)), elements_of(golden))

    assert found.max_ulp is not None
    assert 0.49 < found.max_ulp <= 0.5


def test_the_ulps_between_a_number_and_zero_are_bounded() -> None:
    assert compare([1e-3], [0]).max_ulp == pytest.approx(1e-3 / 2.0**-33)
    assert (compare([1e30], [-1e-30]).max_ulp or 0) < 2**25


def test_nan_and_infinities_are_told_apart_by_side_and_sign() -> None:
    nan, inf = math.nan, math.inf

    found = compare([nan, nan, 1, inf, inf, -inf, 1, inf], [nan, 1, nan, inf, -inf, 1, inf, nan])

    assert (found.nan_both, found.nan_mine, found.nan_golden, found.inf_differs) == (1, 1, 2, 3)
    assert found.bit_equal == 2
    assert found.max_abs is None
    assert found.worst is not None
    assert (found.worst.index, found.worst.golden) == ((1,), 1)


def test_nan_of_other_bits_are_not_equal() -> None:
    quiet, other = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)

    assert compare(quiet, other).bit_equal == 0
    assert compare(quiet, quiet).bit_equal == 1


def test_zeros_of_other_signs_are_not_equal_but_have_no_error() -> None:
    found = compare([0.0, 1], [-0.0, 1])

    assert (found.bit_equal, found.max_abs, found.worst) == (1, 0, None)


def test_the_worst_of_equal_errors_is_the_first_and_has_coordinates() -> None:
    golden = np.zeros((3, 700, 2), np.float32)
    mine = golden.copy()
    mine[1, 5, 1] = mine[2, 600, 0] = 2

    found = compare_elements(elements_of(mine), elements_of(golden))

    assert found.worst == ((1, 5, 1), 2, 0)


def test_tensors_without_elements_have_counts_only() -> None:
    found = compare(np.zeros((3, 0)), np.zeros((3, 0)), kl=True)

    assert found == Metrics(
        count=0, nan_both=0, nan_mine=0, nan_golden=0, inf_differs=0, bit_equal=0, worst=None
    )


def test_a_scalar_has_no_coordinates() -> None:
    assert compare(3, 1).worst == ((), 3, 1)


def test_what_is_not_a_number_is_compared_as_bytes() -> None:
    sides = [
        StoredElements(dtype=DTYPES[_STRING], shape=(3,), data=data, splits=[0.5])
        for data in (b"abc", b"abx")
    ]

    assert compare_elements(sides[0], sides[1], kl=True) == Metrics(count=3, bit_equal=2)


def test_other_numbers_of_elements_are_refused() -> None:
    with pytest.raises(ValueError, match="2 elements cannot be compared with 3"):
        compare([1, 2], [1, 2, 3])


def test_elements_that_end_early_are_refused() -> None:
    short = StoredElements(dtype=DTYPES[1], shape=(3,), data=bytes(8))

    with pytest.raises(ValueError, match="fewer elements than its shape"):
        compare_elements(short, elements_of(np.zeros(3, np.float32)))


@pytest.mark.parametrize(
    ("side", "message"),
    [
        (("f3", None, False, 1, 0), "no kind f3"),
        (("byte", None, False, 1, 0), "needs a table"),
        (("f4", None, False, 99, 0), "digits must be 0 to 52"),
        (("f4", None, False, 23, 5), "exponent -1022 to 0"),
    ],
)
def test_sides_that_cannot_be_are_refused(side: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparison(side, ("f4", None, False, 23, -126))


def test_more_elements_than_the_bytes_have_are_refused() -> None:
    comparison = Comparison(("f4", None, False, 23, -126), ("f2", None, False, 10, -14))

    for count in (3, -1):
        with pytest.raises(ValueError, match=f"the bytes have 2 elements, not {count}"):
            comparison.update(bytes(8), bytes(8), count)


def test_a_second_thread_is_refused_while_the_first_updates() -> None:
    comparison = Comparison(("f4", None, False, 23, -126), ("f4", None, False, 23, -126))
    zeros = np.zeros(32 << 20, np.float32)
    thread = threading.Thread(target=comparison.update, args=(zeros, zeros, len(zeros)))
    thread.start()

    with pytest.raises(RuntimeError, match="one at a time"):  # noqa: PT012 - it may take a few tries
        while thread.is_alive():
            comparison.result()
    thread.join()

    assert comparison.result().count == len(zeros)


def test_a_second_pass_follows_only_if_it_was_announced() -> None:
    comparison = Comparison(("f4", None, False, 23, -126), ("f4", None, False, 23, -126))

    with pytest.raises(ValueError, match="kl=True"):
        comparison.again()
