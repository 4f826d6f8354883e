"""Shards: the elements of parts of a tensor as those of the whole, a block of each part at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from dumpstream.comparison.elements import Elements
from dumpstream.format.dtypes import DType

_BLOCK_BYTES = 1 << 20
_BYTE_BITS = 8


class ShardError(ValueError):
    """Parts do not fit together; the message says why."""


class Concatenated:
    """The elements of *parts* behind each other along *axis*, which counts from the end if it is negative.

    Takes memory for a block of each part, and one of its own.

    Raises:
        ShardError: they have other types, or shapes that do not fit.
    """

    def __init__(self, parts: Sequence[Elements], axis: int) -> None:
        self._parts = parts
        self.dtype = _common_dtype(parts)
        self.shape = joined_shape([part.shape for part in parts], axis)
        self.packed = False
        if any(part.packed for part in parts):
            raise ShardError(f"elements of {self.dtype.short} share bytes, and cannot be put together")
        axis %= len(self.shape)
        self._outer = math.prod(self.shape[:axis])
        self._unit = -(-self.dtype.bits // _BYTE_BITS)
        self._row_bytes = [math.prod(part.shape[axis:]) * self._unit for part in parts]

    def blocks(self) -> Iterator[memoryview]:
        """Yield their bytes; a block is valid until the next."""
        if self._outer <= 1:
            yield from chain.from_iterable(part.blocks() for part in self._parts)
            return
        readers = [_Reader(part) for part in self._parts]
        buffer = bytearray(max(_BLOCK_BYTES // self._unit, 1) * self._unit)
        view, filled = memoryview(buffer), 0
        for _ in range(self._outer):
            for reader, row_bytes in zip(readers, self._row_bytes, strict=True):
                left = row_bytes
                while left:
                    count = min(left, len(buffer) - filled)
                    reader.read_into(view[filled : filled + count])
                    filled, left = filled + count, left - count
                    if filled == len(buffer):
                        yield view
                        filled = 0
        if filled:
            yield view[:filled]


class Summed:
    """The sums of the elements of *parts*, in float64 and rounded once; integers are exact, and wrap.

    Takes memory for a block of each part, and a few of its own.

    Raises:
        ShardError: they have other types or shapes, or are not numbers that can be added.
    """

    def __init__(self, parts: Sequence[Elements]) -> None:
        self._parts = parts
        self.dtype = _common_dtype(parts)
        self.shape = parts[0].shape
        self.packed = False
        if any(part.shape != self.shape for part in parts):
            raise ShardError(f"parts of a sum have the shapes {_shapes_text([it.shape for it in parts])}")
        is_plain = self.dtype.table is None and self.dtype.bits == self.dtype.numpy.itemsize * _BYTE_BITS
        if not is_plain or self.dtype.kernel is None or self.dtype.numpy == np.bool_:
            raise ShardError(f"{self.dtype.short} cannot be added up")

    def blocks(self) -> Iterator[memoryview]:
        """Yield their bytes; a block is valid until the next."""
        numpy = self.dtype.numpy
        left = math.prod(self.shape)
        readers = [_Reader(part) for part in self._parts]
        most = max(_BLOCK_BYTES // numpy.itemsize, 1)
        wide = _wide(numpy)
        while left:
            count = min(left, most)
            total = np.zeros(count, wide)
            for reader in readers:
                data = bytearray(count * numpy.itemsize)
                reader.read_into(memoryview(data))
                with np.errstate(all="ignore"):  # infinities and wrapping are results, not mistakes
                    total += np.frombuffer(data, numpy).astype(wide)
            with np.errstate(all="ignore"):
                yield memoryview(total.astype(numpy).tobytes())
            left -= count


class _Reader:
    """Reads the bytes of *part* in portions of any size."""

    def __init__(self, part: Elements) -> None:
        self._blocks = part.blocks()
        self._rest = memoryview(b"")

    def read_into(self, target: memoryview) -> None:
        while len(target):
            if not len(self._rest):
                block = next(self._blocks, None)
                if block is None:
                    raise ShardError("a part ends before its last element")
                self._rest = block.cast("B")
            count = min(len(target), len(self._rest))
            target[:count] = self._rest[:count]
            target, self._rest = target[count:], self._rest[count:]


def joined_shape(shapes: Sequence[tuple[int, ...]], axis: int) -> tuple[int, ...]:
    """Return the shape of arrays of these *shapes* behind each other along *axis*.

    Raises:
        ShardError: they do not fit.
    """
    first = shapes[0]
    if not -len(first) <= axis < len(first):
        raise ShardError(f"shape {list(first)} does not have an axis {axis}")
    axis %= len(first)
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes if len(shape) == len(first)}
    if len(others) != 1 or any(len(shape) != len(first) for shape in shapes):
        raise ShardError(f"the shapes {_shapes_text(shapes)} do not fit along axis {axis}")
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _common_dtype(parts: Sequence[Elements]) -> DType:
    dtypes = {part.dtype for part in parts}
    if len(dtypes) != 1:
        raise ShardError(f"parts have the types {', '.join(sorted(it.short for it in dtypes))}")
    return dtypes.pop()


def _shapes_text(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(sorted({str([*shape]) for shape in shapes}))


def _wide(numpy: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which elements are added up."""
    if numpy.kind in "iu":
        return np.dtype(np.uint64 if numpy.kind == "u" else np.int64)
    return np.dtype(np.complex128 if numpy.kind == "c" else np.float64)
