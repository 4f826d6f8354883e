"""Stored: elements of any data type for tests, in blocks of any sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dumpstream.format.dtypes import DTYPES, DType, decode_elements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

NUMERIC = [dtype for dtype in DTYPES.values() if dtype.kernel is not None and dtype.number]
FLOAT64_NUMBERS = (12, 17)
_COMPLEX32 = 32


@dataclass(frozen=True, kw_only=True)
class StoredElements:
    """The elements in *data*; *splits* are shares of it at which blocks end."""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes = field(repr=False)
    packed: bool = False
    splits: Sequence[float] = field(default=())

    def blocks(self) -> Iterator[memoryview]:
        unit = self.dtype.bits if self.packed else -(-self.dtype.bits // 8)  # of packed ones, 8 elements
        ends = sorted({int(share * len(self.data)) // unit * unit for share in self.splits})
        view = memoryview(self.data)
        for start, stop in zip([0, *ends], [*ends, len(self.data)], strict=True):
            yield memoryview(bytearray(view[start:stop]))

    def values(self) -> NDArray[Any]:
        """Return the numbers: integers as Python's, floats as long doubles, complex ones as their parts."""
        raw = np.frombuffer(self.data, np.uint8)
        found = decode_elements(self.dtype, raw, math.prod(self.shape), packed=self.packed)
        if found.dtype.kind == "c":
            found = found.view(found.real.dtype)
        if found.dtype.kind in "iub":
            return found.astype(object) + 0
        with np.errstate(invalid="ignore"):  # signalling NaN
            return found.astype(np.float64).astype(np.longdouble)

    def values_beside(self, other: StoredElements) -> NDArray[Any]:
        """Return the numbers; integers as doubles if *other* has floats."""
        values = self.values()
        if values.dtype == object and other.dtype.numpy.kind not in "iub":
            return values.astype(np.float64).astype(np.longdouble)
        return values

    def bits(self) -> NDArray[Any]:
        """Return the bytes of each number, to be compared."""
        width = self.dtype.bits // 8 // (2 if self.dtype.numpy.kind == "c" else 1)
        return np.frombuffer(self.data, f"V{width}")


def noise(dtype: DType, count: int, random: np.random.Generator, *, packed: bool = False) -> StoredElements:
    """Return elements of any bits, but doubles of magnitudes from 1e-19 to 2, and NaN."""
    size = -(-count * dtype.bits // 8) if packed else count * -(-dtype.bits // 8)
    data = random.bytes(size)
    if dtype.number in FLOAT64_NUMBERS:
        words = np.frombuffer(data, np.uint64)
        tame = (words & np.uint64(0x83FFFFFFFFFFFFFF)) | np.uint64(0x3C00000000000000)
        data = np.where(random.random(len(words)) < 0.9, tame, words | np.uint64(0x7FF << 52)).tobytes()
    if dtype.short == "bool":
        data = bytes(byte & 1 for byte in data)
    return StoredElements(dtype=dtype, shape=(count,), data=data, packed=packed)


def near(other: StoredElements, random: np.random.Generator, share: float) -> StoredElements:
    """Return a copy of *other* in which a *share* of the bytes have another low bit."""
    data = np.frombuffer(other.data, np.uint8)
    step = max(1, other.dtype.bits // 8 // (2 if other.dtype.numpy.kind == "c" else 1))
    flips = np.zeros(len(data), np.uint8)
    flips[::step] = random.random(len(flips[::step])) < share
    return StoredElements(
        dtype=other.dtype, shape=other.shape, data=(data ^ flips).tobytes(), packed=other.packed
    )


def converted(other: StoredElements, dtype: DType) -> StoredElements:
    """Return the numbers of *other*, none of them complex, rounded to *dtype*, which has no table."""
    values = other.values()
    with np.errstate(all="ignore"):
        if dtype.numpy.kind in "iu":
            bounds = np.iinfo(dtype.numpy)
            finite = [int(value) if np.isfinite(value) else 0 for value in values]
            array = np.array([min(max(value, bounds.min), bounds.max) for value in finite], dtype.numpy)
        else:
            array = values.astype(np.float64).astype(dtype.numpy)
    return StoredElements(dtype=dtype, shape=other.shape, data=array.tobytes())
