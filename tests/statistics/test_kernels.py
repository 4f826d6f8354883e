from __future__ import annotations

import math
import threading
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.format.test_dtypes import pack

from dumpstream._native import Statistics, Summary, use_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

FLOATS = {"f8": np.float64, "f4": np.float32, "f2": np.float16, "bf16": ml_dtypes.bfloat16}
INTEGERS = {it: np.dtype(it) for it in ("i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1")}
DTYPES = {name: np.dtype(it) for name, it in (FLOATS | INTEGERS | {"bool": np.uint8}).items()}
TABLES = {"byte": np.linspace(-3, 5, 256)} | {
    f"bits{bits}": np.linspace(-3, 5, 1 << bits) for bits in (6, 4, 2, 1)
}
BLOCK_BYTES = 16 << 10
NOISE = np.random.default_rng(1).bytes(3 * BLOCK_BYTES + 77)

quick = settings(max_examples=30, deadline=None)


@pytest.fixture(params=sorted({"portable", use_kernels("auto")}), autouse=True, scope="module")
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run every test with every set of kernels that this machine has."""
    yield use_kernels(request.param)
    use_kernels("auto")


def summarise(kind: str, *pieces: Any, **options: Any) -> Summary:
    statistics = Statistics(kind, **options)
    for piece in pieces:
        statistics.update(piece)
    return statistics.result()


def info(dtype: Any) -> Any:
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def min_normal(dtype: Any) -> float:
    return float(info(dtype).smallest_normal)


def special_codes(dtype: np.dtype[Any]) -> list[int]:
    """Return the elements where kernels go wrong, as unsigned integers of the same width."""
    bits = dtype.itemsize * 8
    top = 1 << bits - 1
    codes = [0, 1, 2, top - 1, top, top + 1, 2 * top - 1]
    if dtype.kind == "f" or dtype == ml_dtypes.bfloat16:
        normal = 1 << info(dtype).nmant
        infinity = top - normal
        magnitudes = [0, 1, normal - 1, normal, infinity - 1, infinity, infinity + 1, infinity + normal // 2]
        codes = [sign | it for it in magnitudes for sign in (0, top)]
    return codes


def elements(kind: str) -> st.SearchStrategy[bytes]:
    dtype = DTYPES[kind]
    code = st.sampled_from(special_codes(dtype)) | st.integers(0, (1 << dtype.itemsize * 8) - 1)
    one = code.map(lambda it: it.to_bytes(dtype.itemsize, "little"))
    return st.lists(one, max_size=200).map(b"".join)


def widened(kind: str, data: bytes) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return np.frombuffer(data, DTYPES[kind]).astype(np.float64)


def check_floats(found: Summary, values: NDArray[Any], smallest_normal: float) -> None:
    """Compare with what numpy says of the same elements, widened."""
    finite = values[np.isfinite(values)]
    magnitudes = np.abs(finite)
    assert found.count == len(values)
    assert found.nan == np.isnan(values).sum()
    assert found.pos_inf == np.isposinf(values).sum()
    assert found.neg_inf == np.isneginf(values).sum()
    assert found.zero == (values == 0).sum()
    assert found.negative == (values < 0).sum()
    assert found.subnormal == ((magnitudes > 0) & (magnitudes < smallest_normal)).sum()
    same(found.max, values.max() if len(values) else None)
    same(found.min, values.min() if len(values) else None)
    same(found.finite_max, finite.max() if len(finite) else None)
    same(found.finite_min, finite.min() if len(finite) else None)
    check_sums(found, values, finite)


def check_sums(found: Summary, values: NDArray[Any], finite: NDArray[Any]) -> None:
    wide = finite.astype(np.longdouble)
    if np.abs(wide).sum() > 1e300 or np.square(wide).sum() > 1e300:
        return  # doubles may overflow on the way
    allowed = 1e-12 * float(np.abs(wide).sum())
    if len(finite):
        close(found.finite_mean, float(wide.mean()), allowed / len(finite))
    if not len(values):
        assert (found.sum, found.mean, found.l2norm, found.std) == (0, None, 0, None)
    elif len(finite) < len(values):
        with np.errstate(invalid="ignore"):
            same(found.sum, values.sum())
            same(found.mean, values.mean())
            same(found.l2norm, np.sqrt(np.square(values).sum()))
            same(found.std, values.std())
    else:
        close(found.sum, float(wide.sum()), allowed)
        close(found.mean, float(wide.mean()), allowed / len(finite))
        close(found.l2norm, float(np.sqrt(np.square(wide).sum())), 0)
        close(found.std, float(wide.std()), 0)


def same(found: float | None, expected: float | None) -> None:
    assert (found is None) == (expected is None)
    assert found == expected or (found != found and expected != expected)  # noqa: PLR0124 - NaN


def close(found: float | None, expected: float, allowed: float) -> None:
    assert found == pytest.approx(expected, rel=1e-10, abs=max(allowed, 1e-160))


def check_integers(found: Summary, values: list[int]) -> None:
    squares = sum(it * it for it in values)
    assert found.count == len(values)
    assert (found.nan, found.pos_inf, found.neg_inf, found.subnormal) == (0, 0, 0, 0)
    assert found.zero == values.count(0)
    assert found.negative == sum(it < 0 for it in values)
    assert found.sum == sum(values)
    assert found.max == found.finite_max == max(values, default=None)
    assert found.min == found.finite_min == min(values, default=None)
    if values:
        assert {type(found.max), type(found.min), type(found.sum)} == {int}
        assert found.mean == found.finite_mean == pytest.approx(sum(values) / len(values), rel=1e-15)
        variance = Fraction(len(values) * squares - sum(values) ** 2, len(values) ** 2)
        close(found.std, math.sqrt(variance), 2**-50 * max(abs(it) for it in values))
    close(found.l2norm, math.sqrt(squares), 0)


@pytest.mark.parametrize("kind", FLOATS)
@quick
@given(st.data(), st.integers(0, 15))
def test_floats_are_summed_up_as_numpy_does(kind: str, drawn: st.DataObject, shift: int) -> None:
    data = drawn.draw(elements(kind))
    values = widened(kind, data)

    found = summarise(kind, memoryview(bytes(shift) + data)[shift:])

    check_floats(found, values, min_normal(FLOATS[kind]))


@pytest.mark.parametrize("kind", [*INTEGERS, "bool"])
@quick
@given(st.data(), st.integers(0, 15))
def test_integers_are_summed_up_exactly(kind: str, drawn: st.DataObject, shift: int) -> None:
    data = drawn.draw(elements(kind))
    array = np.frombuffer(data, DTYPES[kind])
    values = [int(it) for it in (array != 0 if kind == "bool" else array)]

    found = summarise(kind, memoryview(bytes(shift) + data)[shift:])

    check_integers(found, values)


@pytest.mark.parametrize("kind", DTYPES)
def test_every_length_is_summed_up_to_its_last_element(kind: str) -> None:
    dtype = DTYPES[kind]
    array = np.arange(1, 201).astype(dtype)

    for length in range(201):
        data = array[:length]
        found = summarise(kind, data.view(np.uint8))
        values = data != 0 if kind == "bool" else data.astype(np.float64)

        assert found.count == length
        assert found.sum == values.sum()
        assert found.max == (values.max() if length else None)
        assert found.min == (values.min() if length else None)


@pytest.mark.parametrize("kind", [*DTYPES, *TABLES])
@quick
@given(cuts=st.lists(st.integers(0, len(NOISE)), max_size=6).map(sorted))
def test_every_split_gives_the_same_answer(kind: str, cuts: list[int]) -> None:
    table = TABLES.get(kind)
    pieces = [NOISE[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(NOISE)], strict=True)]

    found = summarise(kind, *pieces, table=table, histogram=True)

    assert repr(found) == repr(summarise(kind, NOISE, table=table, histogram=True))


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("special", [[], [np.nan], [np.inf], [-np.inf], [np.nan, np.inf, -np.inf]])
def test_large_tensors_show_a_single_special_value(kind: str, special: list[float]) -> None:
    array = np.random.default_rng(2).standard_normal(50_001).astype(FLOATS[kind])
    array[20_000 : 20_000 + len(special)] = special

    found = summarise(kind, array.view(np.uint8))

    check_floats(found, array.astype(np.float64), min_normal(FLOATS[kind]))


@pytest.mark.parametrize(("kind", "mean", "std"), [("f8", 1e9, 1.0), ("f4", 1e4, 0.5), ("i4", 2**30, 5)])
def test_a_small_spread_around_a_large_mean_is_not_rounded_away(kind: str, mean: float, std: float) -> None:
    array = np.random.default_rng(3).normal(mean, std, 100_000).astype(kind)

    found = summarise(kind, array)

    assert found.std == pytest.approx(float(array.astype(np.longdouble).std()), rel=1e-9)


def test_a_spread_between_blocks_counts() -> None:
    array = np.repeat([5.0, -3.0], BLOCK_BYTES)

    found = summarise("f8", array)

    assert (found.mean, found.std, found.l2norm) == (1, 4, math.sqrt(17 * 2 * BLOCK_BYTES))


def test_the_sum_of_doubles_is_at_least_as_exact_as_that_of_numpy() -> None:
    errors = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        array = random.standard_normal(100_000) * np.exp(random.uniform(-20, 20, 100_000))
        exact = math.fsum(array)
        errors.append((abs(summarise("f8", array).sum - exact), abs(float(array.sum()) - exact)))

    assert sum(ours for ours, _ in errors) <= sum(theirs for _, theirs in errors)


def test_sums_that_overflow_are_infinite_as_in_numpy() -> None:
    found = summarise("f8", np.full(10_000, 1e308))

    assert (found.sum, found.mean, found.l2norm) == (np.inf, np.inf, np.inf)
    assert (found.max, found.finite_max, found.pos_inf) == (1e308, 1e308, 0)


def test_int64_sums_beyond_64_bits_are_exact() -> None:
    array = np.full(10_000, -(2**63), np.int64)

    assert summarise("i8", array).sum == -(2**63) * 10_000
    assert summarise("u8", array).sum == 2**63 * 10_000


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu], ids=str
)
@quick
@given(codes=st.binary(max_size=200))
def test_one_byte_floats_are_summed_up_by_their_table(dtype: Any, codes: bytes) -> None:
    table = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    values = table[np.frombuffer(codes, np.uint8)]

    found = summarise("byte", codes, table=table, min_normal=min_normal(dtype))

    check_floats(found, values, min_normal(dtype))
    assert found.saturated == (np.abs(values) == float(info(dtype).max)).sum()


@pytest.mark.parametrize("bits", [6, 4, 2, 1])
@quick
@given(drawn=st.data())
def test_packed_elements_lie_as_they_are_decoded_and_padding_does_not_count(
    bits: int, drawn: st.DataObject
) -> None:
    codes = drawn.draw(st.lists(st.integers(0, (1 << bits) - 1), max_size=100))
    table = np.arange(1 << bits) - (1 << bits) / 4
    data = pack(codes, bits) + b"\xa5"

    found = summarise(f"bits{bits}", data, table=table, elements=len(codes))

    check_floats(found, table[codes], 0)


@pytest.mark.parametrize("bits", [6, 4, 2, 1])
def test_padding_behind_a_whole_block_does_not_count(bits: int) -> None:
    table = np.ones(1 << bits)
    count = 3 * BLOCK_BYTES * 8 // bits - 1

    found = summarise(f"bits{bits}", bytes(3 * BLOCK_BYTES), table=table, elements=count)

    assert found.count == found.sum == count


def test_a_short_table_ignores_the_upper_bits_of_a_byte() -> None:
    found = summarise("byte", bytes([0x03, 0xF3, 0x05]), table=np.arange(16) * 2.0)

    assert (found.count, found.max, found.min) == (3, 10, 6)


@pytest.mark.parametrize("kind", FLOATS)
@quick
@given(drawn=st.data())
def test_the_histogram_counts_powers_of_two(kind: str, drawn: st.DataObject) -> None:
    data = drawn.draw(elements(kind))
    magnitudes = np.abs(widened(kind, data))
    finite = np.isfinite(magnitudes)
    exponents = np.frexp(np.where(finite, magnitudes, 0))[1] - 1
    normal = magnitudes >= max(min_normal(FLOATS[kind]), 2.0**-126)
    bins = np.where(finite, np.where(normal, np.clip(exponents + 127, 1, 254), 0), 255)

    found = summarise(kind, data, histogram=True)

    assert found.histogram == np.bincount(bins, minlength=256).tolist()


def test_the_histogram_of_a_table_counts_powers_of_two() -> None:
    table = np.zeros(256)
    table[:8] = [1, -1.5, 2, np.inf, np.nan, 0.25, 2.0**130, 2.0**-130]

    found = summarise("byte", bytes(range(8)), table=table, min_normal=0.5, histogram=True)

    assert found.histogram is not None
    assert {bin_: count for bin_, count in enumerate(found.histogram) if count} == {
        0: 2,
        127: 2,
        128: 1,
        254: 1,
        255: 2,
    }


def test_a_result_does_not_end_the_statistics() -> None:
    statistics = Statistics("u2")
    statistics.update(b"\x01\x00\x02")

    first = statistics.result()
    statistics.update(b"\x00")

    assert (first.count, first.sum) == (1, 1)
    assert (statistics.result().count, statistics.result().sum) == (2, 3)


def test_a_second_thread_is_refused_while_the_first_updates() -> None:
    statistics = Statistics("f4")
    thread = threading.Thread(target=statistics.update, args=(np.zeros(64 << 20, np.float32),))
    thread.start()

    with pytest.raises(RuntimeError, match="one at a time"):  # noqa: PT012 - it may take a few tries
        while thread.is_alive():
            statistics.result()
    thread.join()

    assert statistics.result().count == 64 << 20


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("f3", {}, "no kind f3; there are: f8 f4 .* bits1"),
        ("byte", {}, "needs a table"),
        ("f4", {"table": np.zeros(256)}, "takes no table"),
        ("i4", {"min_normal": 1.0}, "takes no min_normal"),
        ("bits4", {"table": np.zeros(15)}, "16 doubles"),
        ("bits4", {"table": np.zeros(16, np.int64)}, "16 doubles"),
        ("byte", {"table": np.zeros(0)}, "256 doubles"),
    ],
)
def test_what_does_not_fit_together_is_refused(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Statistics(kind, **options)


def test_kernels_that_this_machine_does_not_have_are_refused(kernels: str) -> None:
    with pytest.raises(ValueError, match="no kernels sse9"):
        use_kernels("sse9")

    assert use_kernels(kernels) == kernels
