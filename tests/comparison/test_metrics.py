"""Every metric, held against sums in long double, for all pairs of data types."""

from __future__ import annotations

import math
import threading
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.comparison.stored import NUMERIC, StoredElements, converted, near, noise

from dumpstream._native import Comparison, use_kernels
from dumpstream.comparison.elements import elements_of
from dumpstream.comparison.metrics import compare_elements
from dumpstream.comparison.precision import coarser_of
from dumpstream.comparison.table import Metrics
from dumpstream.format.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_BLOCK = 1024
_TINY = 2.2e-16
_STRING = 13

thorough = settings(max_examples=150)
counts = st.integers(0, 40) | st.sampled_from([_BLOCK - 1, _BLOCK, _BLOCK + 1, 2 * _BLOCK + 333])
splits = st.lists(st.floats(0, 1), max_size=4)
seeds = st.integers(0, 2**32)
dtypes = st.sampled_from(NUMERIC)


@pytest.fixture(params=sorted({"portable", use_kernels("auto")}), autouse=True, scope="module")
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run every test with every set of kernels that this machine has."""
    yield use_kernels(request.param)
    use_kernels("auto")


@st.composite
def pairs(draw: st.DrawFn) -> tuple[StoredElements, StoredElements]:
    """Draw two tensors: unrelated, or one near the other, or rounded to another type."""
    random = np.random.default_rng(draw(seeds))
    dtype, count = draw(dtypes), draw(counts)
    packed = dtype.bits < 8 and draw(st.booleans())
    golden = noise(dtype, count, random, packed=packed)
    way = draw(st.sampled_from(["near", "rounded", "any"]))
    if way == "near":
        return near(golden, random, draw(st.sampled_from([0.0, 0.01, 1.0]))), golden
    other = draw(dtypes)
    if way == "rounded" and other.kernel != "byte" and "c" not in other.numpy.kind + dtype.numpy.kind:
        return converted(golden, other), golden
    if (dtype.numpy.kind == "c") != (other.numpy.kind == "c"):
        other = dtype
    return noise(other, count, random), golden


def numbers(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.longdouble)


def expected_equal(mine: StoredElements, golden: StoredElements) -> int:
    if mine.dtype == golden.dtype and mine.dtype.bits >= 8:
        return int((mine.bits() == golden.bits()).sum())
    x, y = numbers(mine.values()), numbers(golden.values())
    exact = [a == b for a, b in zip(mine.values(), golden.values(), strict=True)]
    return int((np.array(exact, bool) & (np.signbit(x) == np.signbit(y))).sum())


def expected_ulp(mine: StoredElements, golden: StoredElements, x: Any, y: Any, error: Any) -> float | None:
    coarser = coarser_of(mine.dtype, golden.dtype)
    if coarser is None:
        return None
    larger = np.maximum(np.maximum(np.abs(x), np.abs(y)), np.ldexp(np.longdouble(1), coarser.exponent))
    exponents = np.frexp(larger)[1] - 1
    return float((error / np.ldexp(np.longdouble(1), exponents - coarser.digits)).max())


def expected(mine: StoredElements, golden: StoredElements) -> dict[str, Any]:
    """Return the metrics by name, computed one by one."""
    exact_x, exact_y = mine.values_beside(golden), golden.values_beside(mine)
    all_x, all_y = numbers(exact_x), numbers(exact_y)
    nan_x, nan_y = np.isnan(all_x), np.isnan(all_y)
    infinite = (np.isinf(all_x) | np.isinf(all_y)) & ~nan_x & ~nan_y
    found: dict[str, Any] = {
        "count": len(all_x),
        "nan_both": int((nan_x & nan_y).sum()),
        "nan_mine": int((nan_x & ~nan_y).sum()),
        "nan_golden": int((~nan_x & nan_y).sum()),
        "inf_differs": int((infinite & (all_x != all_y)).sum()),
        "bit_equal": expected_equal(mine, golden),
    }
    finite = np.isfinite(all_x) & np.isfinite(all_y)
    if not finite.any():
        return found
    x, y = all_x[finite], all_y[finite]
    error = np.abs(numbers(exact_x[finite] - exact_y[finite]))
    size = np.abs(y)
    ratio = error / np.maximum(size, _TINY)
    relative = np.where(size > _TINY, ratio, 0)
    xx, yy, squares = (x * x).sum(), (y * y).sum(), (error * error).sum()
    return found | {
        "max_abs": max(abs(a - b) for a, b in zip(exact_x[finite], exact_y[finite], strict=True)),
        "mean_abs": float(error.mean()),
        "rmse": float(np.sqrt(squares / len(x))),
        "acc_rel": float(relative.sum()),
        "max_rel": float(relative.max()),
        "mean_rel": float(relative.mean()),
        "cosine": _cosine(xx, yy, (x * y).sum()),
        "rel_euclidean": float(np.sqrt(squares / yy)) if yy else (math.inf if squares else 0.0),
        "rel": float(squares / (xx + yy)) if xx + yy else 0.0,
        "max_ulp": expected_ulp(mine, golden, x, y, error),
        "beyond_1_1000": float((ratio > 1e-3).mean()),
        "beyond_5_1000": float((ratio > 5e-3).mean()),
        "mean": float(x.mean()),
        "golden_mean": float(y.mean()),
        "std": float(x.std()),
        "golden_std": float(y.std()),
    }


def _cosine(xx: Any, yy: Any, xy: Any) -> float:
    if xx == 0 and yy == 0:
        return 1.0
    return float(xy / np.sqrt(xx) / np.sqrt(yy)) if xx and yy else math.nan


def values_of(metrics: Metrics) -> dict[str, Any]:
    return {it.name: value for it, value in zip(fields(metrics), astuple(metrics), strict=True)}


#: Of these, the error is small in relation to the sum of magnitudes, not to the value itself.
_CANCELLING = {"cosine", "mean", "golden_mean", "std", "golden_std"}


@given(pairs())
@thorough
def test_every_metric_is_what_long_doubles_give(pair: tuple[StoredElements, StoredElements]) -> None:
    mine, golden = pair

    found = values_of(compare_elements(mine, golden))

    wanted = expected(mine, golden)
    scale = max(abs(wanted.get(name) or 0) for name in ("mean", "std", "golden_mean", "golden_std"))
    for name, value in wanted.items():
        if isinstance(value, int) or value is None or name.startswith("beyond"):
            assert found[name] == value, name
        else:
            slack = 1e-12 * (1 if name == "cosine" else scale) if name in _CANCELLING else 0
            assert found[name] == pytest.approx(float(value), rel=1e-12, abs=slack, nan_ok=True), name


@given(pairs())
@thorough
def test_the_worst_element_has_the_largest_error(pair: tuple[StoredElements, StoredElements]) -> None:
    mine, golden = pair

    worst = compare_elements(mine, golden).worst

    x, y = mine.values_beside(golden), golden.values_beside(mine)
    if np.longdouble in (x.dtype, y.dtype):
        x, y = x.astype(np.float64), y.astype(np.float64)  # errors that are the same as doubles are the same
    errors = [abs(a - b) if math.isfinite(a) and math.isfinite(b) else 0 for a, b in zip(x, y, strict=True)]
    largest = max(errors, default=0)
    if largest == 0:
        differs = [
            place
            for place, (a, b) in enumerate(zip(x, y, strict=True))
            if a != b and not (math.isnan(a) and math.isnan(b))
        ]
        at = differs[0] if differs else None
    else:
        at = errors.index(largest)
    if at is None:
        assert worst is None
    else:
        parts = 2 if golden.dtype.numpy.kind == "c" else 1
        assert worst is not None
        assert worst.index == (at // parts,)
        assert worst.mine == x[at] or math.isnan(x[at])
        assert worst.golden == y[at] or math.isnan(y[at])


@given(pair=pairs(), ours=splits, theirs=splits, kl=st.booleans())
def test_splits_do_not_matter(
    pair: tuple[StoredElements, StoredElements], ours: list[float], theirs: list[float], *, kl: bool
) -> None:
    mine, golden = pair

    parts = compare_elements(replaced(mine, ours), replaced(golden, theirs), kl=kl)

    assert repr(parts) == repr(compare_elements(mine, golden, kl=kl))


def replaced(stored: StoredElements, splits: list[float]) -> StoredElements:
    return StoredElements(
        dtype=stored.dtype, shape=stored.shape, data=stored.data, packed=stored.packed, splits=splits
    )


@given(pair=pairs(), kl=st.booleans())
@thorough
def test_all_kernels_agree_to_the_last_digit(
    kernels: str, pair: tuple[StoredElements, StoredElements], *, kl: bool
) -> None:
    mine, golden = pair
    found = compare_elements(mine, golden, kl=kl)

    use_kernels("portable")
    portable = compare_elements(mine, golden, kl=kl)
    use_kernels(kernels)

    assert repr(found) == repr(portable)


@given(dtypes, counts, seeds)
def test_a_tensor_is_identical_with_itself(dtype: Any, count: int, seed: int) -> None:
    stored = noise(dtype, count, np.random.default_rng(seed))

    found = compare_elements(stored, stored, kl=True)

    assert found.bit_equal == found.count
    assert found.nan_mine == found.nan_golden == found.inf_differs == 0
    assert found.worst is None
    if found.max_abs is not None:
        assert found.cosine == 1
        assert found.max_abs == found.rmse == found.rel == found.rel_euclidean == found.kl == 0
        assert (found.mean, found.std) == (found.golden_mean, found.golden_std)


_SYMMETRIC = (
    "cosine",
    "max_abs",
    "mean_abs",
    "rmse",
    "rel",
    "max_ulp",
    "nan_both",
    "inf_differs",
    "bit_equal",
)


@given(pairs())
def test_symmetric_metrics_are_symmetric(pair: tuple[StoredElements, StoredElements]) -> None:
    there, back = compare_elements(*pair), compare_elements(*reversed(pair))

    assert repr([getattr(there, name) for name in _SYMMETRIC]) == repr(
        [getattr(back, name) for name in _SYMMETRIC]
    )
    assert (there.nan_mine, there.nan_golden) == (back.nan_golden, back.nan_mine)
    assert repr((there.mean, there.std)) == repr((back.golden_mean, back.golden_std))


@given(pairs())
def test_the_divergence_is_that_of_the_scaled_sides(pair: tuple[StoredElements, StoredElements]) -> None:
    mine, golden = pair
    x, y = numbers(mine.values_beside(golden)), numbers(golden.values_beside(mine))
    finite = np.isfinite(x) & np.isfinite(y)
    assume(finite.any())

    found = compare_elements(mine, golden, kl=True).kl

    def scaled(side: NDArray[Any]) -> NDArray[Any]:
        spread = side.max() - side.min()
        share = (side - side.min()) / spread if spread else np.zeros_like(side)
        raised = np.maximum(share, np.finfo(np.float32).eps)
        return raised / raised.sum()  # type: ignore[no-any-return]

    p, q = scaled(x[finite]), scaled(y[finite])
    assert found == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-9, abs=1e-12)


# Single facts


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
