"""Tensor files: arrays in formats that numpy, other programs and people can read."""

import io
import math
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

_BLOCK_BYTES = 1 << 20  #: the most that is written at once
_CSV_ELEMENTS = 1 << 16

_REGISTERED = 2  #: `numpy.dtype.isbuiltin` of a type that another package added


class FileFormat(StrEnum):
    """The format of a tensor's file."""

    NPY = "npy"
    BIN = "bin"  #: the elements as in NPY, without a header
    CSV = "csv"  #: a line for each run of the last axis


def plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that elements of *dtype* are written as: float32 if numpy does not know *dtype*."""
    return np.dtype("<f4") if dtype.isbuiltin == _REGISTERED else dtype


def array_pieces(array: NDArray[Any], file_format: FileFormat) -> Iterator[Buffer]:
    """Yield the bytes of the file of *array*, without a copy if numpy knows its type."""
    return element_pieces([array.reshape(-1)], array.dtype, array.shape, file_format)


def element_pieces(
    blocks: Iterable[NDArray[Any]], dtype: np.dtype[Any], shape: tuple[int, ...], file_format: FileFormat
) -> Iterator[Buffer]:
    """Yield the bytes of the file of an array of *dtype* and *shape*, whose elements come in *blocks*.

    A piece is valid as long as its block is.
    """
    if file_format is FileFormat.CSV:
        yield from (text.encode("ascii") for text in _lines(blocks, dtype, shape))
        return
    if file_format is FileFormat.NPY:
        yield npy_header(plain_dtype(dtype), shape)
    for block in blocks:
        yield from _pieces(block)


@lru_cache(maxsize=1024)
def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of an NPY file whose array is in C order."""
    header = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue()


def _pieces(flat: NDArray[Any]) -> Iterator[memoryview]:
    """Yield the bytes of the elements in pieces, which is faster for a mapped file than one large write."""
    dtype = plain_dtype(flat.dtype)
    step = max(1, _BLOCK_BYTES // dtype.itemsize)
    for start in range(0, len(flat), step):
        yield flat[start : start + step].astype(dtype, copy=False).view(np.uint8).data


def _lines(blocks: Iterable[NDArray[Any]], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Iterator[str]:
    """Yield the text: a line for each run of the last axis, or one empty line without elements."""
    length = shape[-1] if shape else 1
    dtype = np.dtype(np.uint8) if dtype == np.bool_ else plain_dtype(dtype)
    if not math.prod(shape):
        yield "\n"
    at = 0  # in the line
    for block in blocks:
        start = 0
        while start < len(block):
            part = block[start : start + min(length - at, _CSV_ELEMENTS)]
            yield ("," if at else "") + ",".join(part.astype(dtype).astype(np.str_).tolist())
            start += len(part)
            at += len(part)
            if at == length:
                yield "\n"
                at = 0
