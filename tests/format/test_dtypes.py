"""Data types, each against how another library reads the same bytes."""

from __future__ import annotations

import math

import en_dtypes
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.format.dtypes import DTYPES, DType, decode, dtype_of, element_shape, needed_bytes
from dumpstream.format.formats import FORMATS, format_of

CODES = np.arange(256, dtype=np.uint8)
NARROW = [dtype for dtype in DTYPES.values() if dtype.bits < 8]

#: How others read a byte each of those that have a table here.
OTHERS = {
    "hifloat8": en_dtypes.hifloat8,
    "float6_e3m2": en_dtypes.float6_e3m2,
    "float6_e2m3": en_dtypes.float6_e2m3,
    "float4_e2m1": en_dtypes.float4_e2m1,
    "float4_e1m2": en_dtypes.float4_e1m2,
    "int4": ml_dtypes.int4,
    "int2": ml_dtypes.int2,
    "uint2": ml_dtypes.uint2,
}


def by_short(short: str) -> int:
    return next(number for number, dtype in DTYPES.items() if dtype.short == short)


def test_every_number_of_the_dump_enumeration_has_a_type_and_a_name() -> None:
    assert sorted(DTYPES) == list(range(43))
    assert all(dtype.name.startswith("DT_") for dtype in DTYPES.values())
    assert len({dtype.name for dtype in DTYPES.values()}) == 43
    assert len({dtype.short for dtype in DTYPES.values()}) == 43


@pytest.mark.parametrize(
    ("number", "numpy"),
    [
        (0, "i1"), (1, "f4"), (2, "f2"), (3, "i1"), (4, "u1"), (5, "i2"), (6, "u2"), (7, "i4"), (8, "i8"),
        (9, "u4"), (10, "u8"), (12, "f8"), (14, "i1"), (15, "u1"), (16, "c8"), (17, "c16"), (18, "i1"),
        (19, "i2"), (20, "i4"), (21, "u1"), (22, "u2"), (27, ml_dtypes.bfloat16),
        (34, ml_dtypes.float8_e5m2), (35, ml_dtypes.float8_e4m3fn), (36, ml_dtypes.float8_e8m0fnu),
    ],
)  # fmt: skip
def test_elements_that_numpy_knows_are_a_view_of_the_bytes(number: int, numpy: str) -> None:
    data = np.random.default_rng(number).integers(0, 256, 16 * 6, np.uint8)
    expected = data.view(numpy).reshape(2, -1)

    array = decode(dtype_of(number), expected.shape, data.nbytes, data.data)

    assert array.dtype == expected.dtype
    assert np.shares_memory(array, data)
    assert array.tobytes() == expected.tobytes()


def test_unaligned_elements_are_read_in_place() -> None:
    data = b"x" + np.arange(5, dtype="<f8").tobytes()

    array = decode(dtype_of(12), (5,), 40, memoryview(data)[1:])

    np.testing.assert_array_equal(array, np.arange(5))


def test_any_byte_but_zero_is_true() -> None:
    array = decode(dtype_of(11), (4,), 4, b"\x00\x01\x02\xff")

    assert array.dtype == np.bool_
    assert array.tolist() == [False, True, True, True]


def test_complex32_is_two_halves() -> None:
    halves = np.array([1.5, -2, np.inf, 0.25], "<f2")

    array = decode(dtype_of(32), (2,), 8, halves.data.cast("B"))

    assert array.dtype == np.complex64
    assert array.tolist() == [1.5 - 2j, complex(np.inf, 0.25)]


@pytest.mark.parametrize("number", [13, 24, 25, 26, 41, 42, 43, 99, -1])
def test_what_is_no_number_is_given_as_bytes(number: int) -> None:
    array = decode(dtype_of(number), (2, 2), 5, b"bytes")

    assert array.dtype == np.uint8
    assert array.tobytes() == b"bytes"
    assert dtype_of(number).kernel is None


def test_resources_are_integers_of_eight_bytes_in_their_shape() -> None:
    handles = np.array([[1, -2], [2**62, 4]], np.int64)

    array = decode(dtype_of(23), (2, 2), 40, handles.tobytes() + b"padding!")

    assert array.dtype == np.int64
    assert np.array_equal(array, handles)


@pytest.mark.parametrize("short", OTHERS)
def test_every_code_has_the_value_others_give_it(short: str) -> None:
    dtype = dtype_of(by_short(short))
    codes = CODES[: 1 << dtype.bits]
    expected = codes.view(OTHERS[short]).astype(np.float64)

    array = decode(dtype, codes.shape, codes.nbytes, codes.data)

    np.testing.assert_array_equal(array.astype(np.float64), expected)
    np.testing.assert_array_equal(np.signbit(array.astype(np.float64)), np.signbit(expected))


def pack(codes: list[int], bits: int) -> bytes:
    """Return the bytes with *codes*: the first in the low bits, but single bits as numpy packs them."""
    if bits == 1:
        return np.packbits(np.array(codes, np.uint8)).tobytes()
    packed = sum(code << bits * place for place, code in enumerate(codes))
    return packed.to_bytes(math.ceil(len(codes) * bits / 8), "little")


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.short)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_narrow_elements_are_packed_low_bits_first_but_bits_high_bits_first(
    dtype: DType, data: st.DataObject
) -> None:
    codes = data.draw(st.lists(st.integers(0, (1 << dtype.bits) - 1), min_size=2, max_size=50))
    size = math.ceil(len(codes) * dtype.bits / 8)
    padding = data.draw(st.integers(0, 100).filter(lambda padding: size + padding != len(codes)))
    stored = pack(codes, dtype.bits) + bytes(padding)

    array = decode(dtype, (len(codes),), len(stored), stored)

    assert dtype.table is not None
    assert needed_bytes(dtype, (len(codes),), len(stored)) == size
    assert array.tobytes() == dtype.table[codes].tobytes()


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.short)
def test_as_many_bytes_as_elements_hold_one_each(dtype: DType) -> None:
    array = decode(dtype, (16, 16), 256, CODES.tobytes())

    assert dtype.table is not None
    assert not dtype.is_packed(256, 256)
    assert array.tobytes() == dtype.table[CODES & (1 << dtype.bits) - 1].tobytes()


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.short)
def test_narrow_elements_without_a_shape_are_all_that_fit(dtype: DType) -> None:
    assert element_shape(dtype, (), 10) == (80 // dtype.bits,)
    assert decode(dtype, (), 10, bytes(10)).shape == (80 // dtype.bits,)


def test_shape_that_does_not_fit_names_both_sizes() -> None:
    with pytest.raises(ValueError, match=r"float32\[2, 3\] needs 24 bytes and has 23"):
        decode(dtype_of(1), (2, 3), 23, bytes(23))
    with pytest.raises(ValueError, match=r"int4\[9\] needs 5 bytes and has 4"):
        decode(dtype_of(28), (9,), 4, bytes(4))


def test_formats_are_named_by_their_numbers() -> None:
    assert [FORMATS[number].name for number in (0, 1, 2, 3, 4, 16, 25, 27, 29, 32, 33, 49, 54, 255)] == [
        "NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "HWCN", "C1HWNCoC0", "NDHWC", "FRACTAL_NZ", "NDC1HWC0",
        "FRACTAL_Z_3D", "C1HWC0", "FRACTAL_NZ_C0_8", "MAX",
    ]  # fmt: skip
    assert format_of(60) == (60, "UNKNOWN_60")
