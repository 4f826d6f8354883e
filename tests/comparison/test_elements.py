"""Elements of dump files, npy files and arrays: always those of the original shape, in its order."""

from __future__ import annotations

import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import field
from tests.format.blocked import block
from tests.format.test_dtypes import pack

from dumpstream.comparison.dumpelements import open_tensor
from dumpstream.comparison.elements import elements_of
from dumpstream.comparison.metrics import compare_elements
from dumpstream.comparison.npyelements import open_npy
from dumpstream.format.dtypes import DTYPES
from dumpstream.reading.dumpfile import DumpFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_NUMBERS = {dtype.short: dtype.number for dtype in DTYPES.values()}
_FORMATS = {"NCHW": 0, "NHWC": 1, "ND": 2, "NC1HWC0": 3, "FRACTAL_NZ": 29}


def dump_bytes(
    data: bytes, dtype: str, form: str, shape: Sequence[int], original: Sequence[int] = ()
) -> bytes:
    """Return a dump file with one output."""
    dims, original_dims = (b"".join(field(1, it) for it in each) for each in (shape, original))
    described = field(1, _NUMBERS[dtype]) + field(2, _FORMATS[form]) + field(3, dims)
    described += field(7, original_dims) if original else b""
    message = field(1, "2.0") + field(6, "op") + field(3, described + field(6, len(data)) + field(9, 1))
    return struct.pack("<Q", len(message)) + message + data


def joined(blocks: Iterable[memoryview]) -> bytes:
    return b"".join(bytes(it) for it in blocks)


def read(content: bytes, *, order: str | None = None) -> tuple[tuple[int, ...], bytes]:
    with DumpFile.open(content) as dump, open_tensor(dump, dump.tensors[0], order=order) as elements:
        data = joined(elements.blocks())
        assert joined(elements.blocks()) == data, "every call begins with the first"
        return elements.shape, data


def plain(shape: Sequence[int], dtype: Any = np.float16) -> NDArray[Any]:
    return (np.arange(np.prod(shape)) % 2000).astype(dtype).reshape(shape)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("shape", [(40, 50), (3, 17, 33), (2, 2, 16, 16), (1, 1)])
def test_fractal_nz_is_brought_to_the_original_shape(shape: tuple[int, ...], *, compressed: bool) -> None:
    array = plain(shape)
    stored = block(array, "", "FRACTAL_NZ")
    content = dump_bytes(stored.tobytes(), "float16", "FRACTAL_NZ", stored.shape, shape)

    found = read(zstandard.compress(content) if compressed else content)

    assert found == (shape, array.tobytes())


def test_blocked_images_are_brought_to_the_original_shape() -> None:
    array = plain((2, 20, 3, 5))
    stored = block(array, "NCHW", "NC1HWC0")

    found = read(dump_bytes(stored.tobytes(), "float16", "NC1HWC0", stored.shape, array.shape))

    assert found == (array.shape, array.tobytes())


def test_a_blocked_format_without_an_original_shape_is_taken_as_it_lies() -> None:
    stored = block(plain((5, 7)), "", "FRACTAL_NZ")

    found = read(dump_bytes(stored.tobytes(), "float16", "FRACTAL_NZ", stored.shape))

    assert found == (stored.shape, stored.tobytes())


def test_padding_does_not_count() -> None:
    array = plain((5, 7))
    stored = block(array, "", "FRACTAL_NZ")
    padded = np.where(block(np.ones_like(array), "", "FRACTAL_NZ") == 1, stored, np.float16(9))
    contents = [
        dump_bytes(it.tobytes(), "float16", "FRACTAL_NZ", stored.shape, array.shape)
        for it in (stored, padded)
    ]

    with (
        DumpFile.open(contents[0]) as mine,
        DumpFile.open(contents[1]) as golden,
        open_tensor(mine, mine.tensors[0]) as x,
        open_tensor(golden, golden.tensors[0]) as y,
    ):
        found = compare_elements(x, y)

    assert found.bit_equal == found.count == 35


def test_a_plain_format_is_brought_to_the_order_of_the_other_side() -> None:
    array = plain((2, 3, 4, 5))
    stored = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    content = dump_bytes(stored.tobytes(), "float16", "NHWC", stored.shape)

    assert read(content, order="NCHW") == (array.shape, array.tobytes())
    assert read(content) == (stored.shape, stored.tobytes())
    assert read(content, order="NHWC") == (stored.shape, stored.tobytes())


def test_narrow_elements_of_a_blocked_format_are_unpacked() -> None:
    codes = (np.arange(20 * 70) % 16).astype(np.uint8).reshape(20, 70)
    stored = block(codes, "", "FRACTAL_NZ", c0=64)
    content = dump_bytes(
        pack(stored.reshape(-1).tolist(), 4), "int4", "FRACTAL_NZ", stored.shape, codes.shape
    )

    assert read(content) == (codes.shape, codes.tobytes())


@given(st.integers(1, 300), st.sampled_from(["int4", "float6_e3m2", "uint1", "float32"]), st.booleans())
def test_elements_as_they_lie_are_those_of_the_shape(count: int, dtype: str, compressed: bool) -> None:  # noqa: FBT001
    bits = DTYPES[_NUMBERS[dtype]].bits
    data = bytes(range(256)) * 6
    needed = -(-count * bits // 8)
    content = dump_bytes(data[: needed + (needed == count)], dtype, "ND", [count])

    shape, found = read(zstandard.compress(content) if compressed else content)

    assert shape == (count,)
    assert found == data[:needed]


def test_a_large_blocked_tensor_takes_little_memory(tmp_path: Path) -> None:
    array = plain((1024, 8192))
    stored = block(array[:16], "", "FRACTAL_NZ")
    whole = np.repeat(stored, 64, axis=1)
    path = tmp_path / "op"
    path.write_bytes(dump_bytes(whole.tobytes(), "float16", "FRACTAL_NZ", whole.shape, array.shape))
    size = array.nbytes
    del whole

    with DumpFile.open(path) as dump, open_tensor(dump, dump.tensors[0]) as elements:
        tracemalloc.start()
        for _ in elements.blocks():
            pass
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert peak < size / 3


# npy files


@pytest.mark.parametrize(
    "array",
    [
        plain((3, 4), np.float32),
        plain((3, 4), ">f4"),
        np.asfortranarray(plain((30, 40), np.int64)),
        plain((2, 3), np.complex64),
        np.array(3.0),
        np.zeros((0, 3), np.float32),
        plain((5,), np.uint8) % 2 == 1,
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_npy_files_are_read_in_order(tmp_path: Path, array: NDArray[Any]) -> None:
    np.save(tmp_path / "a.npy", array)

    with open_npy(tmp_path / "a.npy") as elements:
        assert elements.shape == array.shape
        native = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
        assert joined(elements.blocks()) == native.tobytes()


def test_bfloat16_in_an_npy_file_has_no_name_but_two_bytes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", plain((3, 4), ml_dtypes.bfloat16))

    with open_npy(tmp_path / "a.npy") as elements:
        assert elements.dtype.short == "bfloat16"


def test_one_byte_without_a_name_is_of_the_type_of_the_other_side(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", plain((3, 4), ml_dtypes.float8_e5m2))

    with open_npy(tmp_path / "a.npy", like=DTYPES[_NUMBERS["float8_e5m2"]]) as elements:
        assert elements.dtype.short == "float8_e5m2"
    with (
        pytest.raises(ValueError, match=r"a\.npy: elements of the type .*V1.* save them as float32"),
        open_npy(tmp_path / "a.npy"),
    ):
        pass


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no array",
        b"\x80\x04K\x01.",
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
        b"\x93NUMPY\x09\x00\x02\x00{}",
        b"\x93NUMPY\x01\x00\x02\x00{}",
        b"\x93NUMPY\x01\x00\x02\x00{(",
    ],
)
def test_what_is_not_an_npy_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)

    with pytest.raises(ValueError, match="is not a whole npy file of numbers"), open_npy(tmp_path / "a.npy"):
        pass


def test_an_npy_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", plain((30, 40), np.float32))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content[:-1])

    with pytest.raises(ValueError, match="is not a whole npy file of numbers"), open_npy(tmp_path / "a.npy"):
        pass


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)

    with pytest.raises(ValueError, match="is not a whole npy file of numbers"), open_npy(tmp_path / "a.npy"):
        pass


# Arrays


@given(st.permutations(range(3)), st.sampled_from([(3, 5, 7), (2, 700, 500), (1, 1, 300000)]))
def test_strided_arrays_are_read_in_their_order(axes: list[int], shape: tuple[int, ...]) -> None:
    array = plain(shape, np.float32).transpose(axes)

    assert joined(elements_of(array).blocks()) == array.tobytes()


def test_types_that_cann_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        elements_of(np.array(["text"]))
