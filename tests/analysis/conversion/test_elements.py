"""Elements of every type, as numpy and text have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from dumpstream.analysis.tensorfiles import FileFormat

from .conftest import FLOATS, NAME, Rig, dump, output, stored

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.mark.parametrize(
    "short", ["float32", "float16", "float64", "int8", "uint8", "int16", "int64", "uint64", "complex64"]
)
def test_types_that_numpy_knows_are_kept(rig: Rig, short: str) -> None:
    array = np.arange(6).astype(short).reshape(3, 2)

    loaded = rig.array(stored(array, short))

    assert loaded.dtype == array.dtype
    assert np.array_equal(loaded, array)


@pytest.mark.parametrize(
    ("short", "numpy"),
    [
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8_e5m2", ml_dtypes.float8_e5m2),
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        ("float8_e8m0", ml_dtypes.float8_e8m0fnu),
    ],
)
def test_narrow_floats_become_float32(rig: Rig, short: str, numpy: Any) -> None:
    array = np.array([0.5, 1, 2, 4]).astype(numpy)

    loaded = rig.array(stored(array, short))

    assert loaded.dtype == np.float32
    assert loaded.tolist() == [0.5, 1, 2, 4]


def test_more_than_a_block_of_narrow_floats_is_converted(rig: Rig) -> None:
    array = (np.arange(700_001) % 256).astype(ml_dtypes.bfloat16)

    loaded = rig.array(stored(array, "bfloat16"))

    assert np.array_equal(loaded, array.astype(np.float32))


@pytest.mark.parametrize(
    ("short", "data", "expected"),
    [
        ("int4", b"\x71\xf8", np.array([1, 7, -8, -1], np.int8)),
        ("uint1", b"\xa0", np.array([1, 0, 1, 0], np.uint8)),
        ("resource", np.arange(4, dtype="<i8").tobytes(), np.arange(4, dtype="<i8")),
        ("int2", b"\x1b", np.array([-1, -2, 1, 0], np.int8)),
        ("float4_e2m1", b"\x21\x97", np.array([0.5, 1, 6, -0.5], np.float32)),
        ("float6_e2m3", bytes([8, 16, 24, 40]), np.array([1, 2, 4, -1], np.float32)),
        ("hifloat8", b"\x08\x88\x00\x6f", np.array([1, -1, 0, np.inf], np.float32)),
        ("bool", b"\x00\x01\x02\x00", np.array([False, True, True, False])),
        ("complex32", np.arange(8, dtype="<f2").tobytes(), np.array([1j, 2 + 3j, 4 + 5j, 6 + 7j], "<c8")),
        ("string", b"abcd", np.frombuffer(b"abcd", np.uint8)),
    ],
)
def test_coded_elements_become_what_they_stand_for(
    rig: Rig, short: str, data: bytes, expected: NDArray[Any]
) -> None:
    loaded = rig.array(dump(output(short, [4], len(data)), data))

    assert loaded.dtype == expected.dtype
    assert np.array_equal(loaded, expected)


def test_data_is_cut_to_the_shape(rig: Rig) -> None:
    loaded = rig.array(dump(output("float32", [2, 3], 100), FLOATS.tobytes().ljust(100, b"x")))

    assert np.array_equal(loaded, FLOATS)


def test_empty_tensor_gives_an_empty_array(rig: Rig) -> None:
    assert rig.array(stored(np.zeros((0, 3), "<f4"), "float32")).shape == (0, 3)


def test_bin_has_the_elements_and_nothing_else(rig: Rig) -> None:
    rig.add(stored(FLOATS.astype(ml_dtypes.bfloat16), "bfloat16"))

    rig.convert(format=FileFormat.BIN)

    assert rig.files() == {f"{NAME}.output.0.bin": FLOATS.tobytes()}


@pytest.mark.parametrize(
    ("array", "short", "text"),
    [
        (np.array([[0.1, 2.5], [np.nan, -np.inf]], "<f4"), "float32", "0.1,2.5\nnan,-inf\n"),
        (np.array([[[1, -2, 3]], [[4, 5, 6]]], "<i4"), "int32", "1,-2,3\n4,5,6\n"),
        (np.array([0, 1], "?"), "bool", "0,1\n"),
        (np.array([2**64 - 1], "<u8"), "uint64", "18446744073709551615\n"),
        (np.zeros(0, "<f4").reshape(2, 0), "float32", "\n"),
    ],
)
def test_csv_has_a_line_for_each_run_of_the_last_axis(
    rig: Rig, array: NDArray[Any], short: str, text: str
) -> None:
    rig.add(stored(array, short))

    rig.convert(format=FileFormat.CSV)

    assert rig.files() == {f"{NAME}.output.0.csv": text.encode()}
