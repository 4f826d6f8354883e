"""Every metric, held against sums in long double, for all pairs of data types."""

from __future__ import annotations

import math
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.comparison.stored import NUMERIC, StoredElements, converted, near, noise

from dumpstream._native import use_kernels
from dumpstream.comparison.metrics import compare_elements
from dumpstream.comparison.precision import coarser_of
from dumpstream.comparison.table import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_BLOCK = 1024
_TINY = 2.2e-16

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
