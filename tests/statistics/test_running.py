"""Statistics of one tensor, beside numpy; the kernels have tests of their own."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.format.dtypes import DTYPES, DYNAMIC, decode
from dumpstream.format.formats import format_of
from dumpstream.format.header import IO, Tensor
from dumpstream.statistics.running import RunningStatistics, tensor_statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NUMBERS = {dtype.short: dtype.number for dtype in DTYPES.values()}
MEASURED = [dtype.short for dtype in DTYPES.values() if dtype.kernel is not None]
OPAQUE = [dtype.short for dtype in DTYPES.values() if dtype.kernel is None]


def tensor(dtype: str, shape: Sequence[int], size: int) -> Tensor:
    described = (format_of(2), tuple(shape), tuple(shape), 0, size, 1, 0, 0, 0, 0, (), None, 0, size, b"")
    return Tensor(IO.OUTPUT, 0, DTYPES[NUMBERS[dtype]], *described)


def values_of(tensor: Tensor, data: bytes) -> NDArray[Any]:
    """Return the elements as numbers that numpy can compute with."""
    array = decode(tensor.dtype, tensor.shape, tensor.size, data).reshape(-1)
    if array.dtype.kind == "c":
        array = array.view(array.real.dtype)
    return array.astype(np.int64 if array.dtype.kind in "iub" else np.float64)


def sample(dtype: str) -> bytes:
    """Return a multiple of 24 elements, with every code of those that have few."""
    random = np.random.default_rng(1)
    floats = {"f8": "<f8", "f4": "<f4", "f2": "<f2", "bf16": ml_dtypes.bfloat16}
    kernel = DTYPES[NUMBERS[dtype]].kernel or ""
    if kernel in floats:
        return random.normal(size=960).astype(floats[kernel]).tobytes()
    if kernel == "u8":
        return random.integers(0, 1 << 62, 960, np.uint64).tobytes()  # the reference computes in int64
    return random.permutation(np.arange(768, dtype=np.uint16).astype(np.uint8)).tobytes()


@pytest.mark.parametrize("dtype", MEASURED)
def test_every_type_has_the_statistics_that_numpy_gives(dtype: str) -> None:
    data = sample(dtype)
    of = tensor(dtype, [len(data) * 8 // DTYPES[NUMBERS[dtype]].bits], len(data))

    found = tensor_statistics(of, data)

    values = values_of(of, data)
    finite = values[np.isfinite(values)]
    assert found.count == values.size
    assert found.nan == np.isnan(values).sum()
    assert found.pos_inf == np.isposinf(values).sum()
    assert found.neg_inf == np.isneginf(values).sum()
    assert found.zero == (values == 0).sum()
    assert found.negative == (values < 0).sum()
    assert found.finite_max == finite.max()
    assert found.finite_min == finite.min()
    assert found.finite_mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-12)
    if finite.size == values.size:
        assert (found.max, found.min) == (values.max(), values.min())
        assert found.std == pytest.approx(values.std(), rel=1e-9)
        assert found.l2norm == pytest.approx(math.sqrt((values.astype(np.float64) ** 2).sum()), rel=1e-9)
    assert found.hash == xxhash.xxh3_64_hexdigest(data)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8", "int4", "bool", "uint1"])
def test_extremes_of_integers_are_exact_integers(dtype: str) -> None:
    size = max(DTYPES[NUMBERS[dtype]].bits // 8, 1)

    found = tensor_statistics(tensor(dtype, [], 2 * size), b"\xff" * size + b"\x00" * size)

    expected = {"uint64": 2**64 - 1, "bool": 1, "uint1": 1}.get(dtype, 0)
    assert (found.max, type(found.max), type(found.finite_min)) == (expected, int, int)


def test_a_nan_shows_in_everything_but_the_finite() -> None:
    data = np.array([1, np.nan, -np.inf, 3], "<f4").tobytes()

    found = tensor_statistics(tensor("float32", [4], 16), data)

    assert all(
        math.isnan(value or 0) for value in (found.max, found.min, found.mean, found.l2norm, found.std)
    )
    assert (found.finite_max, found.finite_min, found.finite_mean) == (3, 1, 2)
    assert (found.nan, found.neg_inf, found.pos_inf, found.negative) == (1, 1, 0, 1)


@pytest.mark.parametrize("dtype", OPAQUE)
def test_what_is_no_number_has_only_a_hash(dtype: str) -> None:
    found = tensor_statistics(tensor(dtype, [3], 3), b"abc")

    assert found.hash == xxhash.xxh3_64_hexdigest(b"abc")
    assert (found.count, found.max, found.nan) == (None, None, None)


def test_bytes_behind_the_last_element_do_not_count() -> None:
    data = np.array([1, 2, np.nan], "<f4").tobytes()

    found = tensor_statistics(tensor("float32", [2], 12), data)

    assert (found.count, found.nan, found.max) == (2, 0, 2)
    assert found.hash == xxhash.xxh3_64_hexdigest(data[:8])


def test_bits_behind_the_last_packed_element_do_not_count() -> None:
    found = tensor_statistics(tensor("int4", [3], 2), bytes([0x21, 0xF3]))

    assert (found.count, found.max, found.min) == (3, 3, 1)


def test_packed_elements_that_have_a_byte_each_are_read_so() -> None:
    found = tensor_statistics(tensor("int4", [2], 2), bytes([0x01, 0x0F]))

    assert (found.count, found.max, found.min) == (2, 1, -1)


@pytest.mark.parametrize("shape", [[], [DYNAMIC, 2]], ids=["none", "dynamic"])
def test_without_a_usable_shape_all_bytes_count(shape: list[int]) -> None:
    found = tensor_statistics(tensor("int32", shape, 12), np.arange(3, dtype="<i4").tobytes())

    assert (found.count, found.max) == (3, 2)


def test_a_shape_that_does_not_fit_is_a_problem_and_all_bytes_count() -> None:
    running = RunningStatistics(tensor("int32", [4], 12))
    running.update(memoryview(np.arange(3, dtype="<i4").tobytes()))

    assert running.result().count == 3
    assert running.problem == "int32[4] needs 16 bytes and has 12"


@pytest.mark.parametrize(("dtype", "largest"), [("float8_e4m3fn", 448.0), ("hifloat8", 2.0**15)])
def test_the_share_of_saturated_elements_is_known_of_8_bit_floats(dtype: str, largest: float) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = values_of(tensor(dtype, [256], 256), codes.tobytes())
    saturated = codes[values == largest]

    found = tensor_statistics(tensor(dtype, [4], 4), bytes([saturated[0], 0, 0, 0]))

    assert found.saturated == 0.25
    assert tensor_statistics(tensor("int8", [1], 1), b"\x7f").saturated is None


def test_subnormals_are_those_of_the_type() -> None:
    e5m2 = np.array([2.0**-14, 2.0**-15, 2.0**-16], ml_dtypes.float8_e5m2).tobytes()

    assert tensor_statistics(tensor("float8_e5m2", [3], 3), e5m2).subnormal == 2
    assert tensor_statistics(tensor("float4_e1m2", [4], 4), bytes([1, 2, 3, 4])).subnormal == 3
    assert tensor_statistics(tensor("int8", [3], 3), bytes([1, 2, 3])).subnormal == 0


def test_a_histogram_is_there_on_request_and_for_floats() -> None:
    data = np.array([1, 1.5, 2, 0], "<f4").tobytes()

    found = tensor_statistics(tensor("float32", [4], 16), data, histogram=True)

    assert found.histogram is not None
    assert {bin_: count for bin_, count in enumerate(found.histogram) if count} == {127: 2, 128: 1, 0: 1}
    assert tensor_statistics(tensor("float32", [4], 16), data).histogram is None
    assert tensor_statistics(tensor("int32", [4], 16), data, histogram=True).histogram is None


def test_parts_of_complex_numbers_are_elements() -> None:
    found = tensor_statistics(tensor("complex64", [2], 16), np.array([3 + 4j, 0], "<c8").tobytes())

    assert (found.count, found.l2norm, found.max) == (4, 5, 4)


def test_no_elements_have_no_extremes() -> None:
    found = tensor_statistics(tensor("float32", [0], 0), b"")

    assert (found.count, found.max, found.mean, found.nan) == (0, None, None, 0)


@pytest.mark.parametrize("size", [256 << 10, 1 << 20], ids=["small", "large"])
def test_blocks_of_any_size_give_the_same(size: int) -> None:
    data = np.random.default_rng(1).normal(size=size // 4).astype("<f4").tobytes()
    of = tensor("float32", [size // 4], size)

    running = RunningStatistics(of)
    for start in range(0, size, 1001):
        running.update(memoryview(data)[start : start + 1001])

    assert running.result() == tensor_statistics(of, data)
    assert running.result().hash == xxhash.xxh3_64_hexdigest(data)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6), st.sampled_from(MEASURED))
@settings(max_examples=150, deadline=None)
def test_every_split_gives_the_same(data: bytes, cuts: list[int], dtype: str) -> None:
    of = tensor(dtype, [], len(data))

    running = RunningStatistics(of, histogram=True)
    for start, stop in pairwise([0, *sorted(cuts), len(data)]):
        running.update(memoryview(data)[start:stop])

    # Told apart as text, since NaN equals nothing.
    assert repr(running.result()) == repr(tensor_statistics(of, data, histogram=True))
    assert running.bytes == len(data)
