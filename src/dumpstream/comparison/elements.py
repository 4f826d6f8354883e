"""Elements: the numbers of one tensor, in blocks, wherever they come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dumpstream.format.dtypes import DTYPES, DType

_BLOCK_BYTES = 1 << 20
_BYTE_BITS = 8


class Elements(Protocol):
    """The elements of a tensor in the order of its original shape, without padding."""

    @property
    def dtype(self) -> DType: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the coordinates of an element refer to."""

    @property
    def packed(self) -> bool:
        """Whether elements of fewer than 8 bits share bytes."""

    def blocks(self) -> Iterator[memoryview]:
        """Yield their bytes, each block a whole number of elements, valid until the next.

        Of packed elements, each block but the last has a multiple of 8. Every call begins with the first.
        """


@dataclass(frozen=True, slots=True)
class ArrayElements:
    """The elements of an array, which may be mapped or strided.

    Takes memory for a block only. *array* has an item for each element, as the bytes of *dtype* lie: its own
    type does not matter, only the size of an item.
    """

    array: NDArray[Any]
    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def packed(self) -> bool:
        return False

    def blocks(self) -> Iterator[memoryview]:
        array = self.array
        yield from _blocks(array.reshape(-1) if array.flags.c_contiguous else array)


def elements_of(array: NDArray[Any], *, like: DType | None = None) -> ArrayElements:
    """Return the elements of *array*.

    numpy saves the types of ml_dtypes as bytes without a name: two are a bfloat16, and one is an element of
    the type *like*, if that has 8 bits or fewer.

    Raises:
        ValueError: CANN has no such data type.
    """
    dtype = _dtype(array.dtype, like)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False) if _is_swapped(array.dtype) else array
    return ArrayElements(array, dtype)


#: numpy's types by CANN's number; of those that are the same in numpy, the plainest.
_NUMBERS = {
    DTYPES[number].numpy: number
    for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 17, 27, 34, 35, 36, 37, 38, 39)
}
_BFLOAT16 = 27


def _is_swapped(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iufc" and dtype.newbyteorder("<") != dtype


def _dtype(found: np.dtype[Any], like: DType | None) -> DType:
    number = _NUMBERS.get(found.newbyteorder("<") if _is_swapped(found) else found)
    if number is not None:
        return DTYPES[number]
    if found.kind == "V" and found.fields is None and found.isbuiltin != 2:  # noqa: PLR2004 - registered
        if like is not None and found.itemsize == -(-like.bits // _BYTE_BITS):
            return like
        if found.itemsize == DTYPES[_BFLOAT16].bits // _BYTE_BITS:
            return DTYPES[_BFLOAT16]
    raise ValueError(f"elements of the type {found} cannot be compared; save them as float32")


def _blocks(array: NDArray[Any]) -> Iterator[memoryview]:
    """Yield the bytes of *array* in order; it is in order, or a part of it is copied at a time."""
    if array.nbytes <= _BLOCK_BYTES or array.ndim == 0:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return
    row = array.nbytes // len(array)
    if row > _BLOCK_BYTES:
        for part in array:
            yield from _blocks(part)
        return
    step = _BLOCK_BYTES // row
    for start in range(0, len(array), step):
        yield np.ascontiguousarray(array[start : start + step]).reshape(-1).view(np.uint8).data
