"""Difference: which elements of a tensor differ between two dump files. Reads both block by block."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream._errors import DumpFormatError, PartError
from dumpstream.analysis.preview import numbers_of
from dumpstream.format.dtypes import decode_elements, dtype_of, element_shape, needed_bytes
from dumpstream.format.header import Tensor
from dumpstream.reading.dumpfile import DumpFile

_BLOCK_BYTES = 1 << 20
_SHOWN_VALUES = 4
_BYTE_BITS = 8
_UINT8 = 4


class ComparisonError(Exception):
    """Two dump files cannot be compared because of *problem*, which *dump* has."""

    def __init__(self, dump: DumpFile, problem: str) -> None:
        super().__init__(problem)
        self.dump, self.problem = dump, problem


class ChangedValue(NamedTuple):
    """One element that differs."""

    position: tuple[int, ...]  #: by dimension; one number if the shape is not known
    before: Any
    after: Any


class Difference(NamedTuple):
    """How a tensor differs: in at least one element, or a byte of the padding."""

    tensor: Tensor
    elements: int  #: how many the tensor has
    changed: int  #: how many of them differ
    first: tuple[int, ...] | None  #: the index of the first that differs, by dimension
    last: tuple[int, ...] | None  #: the index of the last
    values: tuple[ChangedValue, ...]  #: the first few that differ
    padding: int  #: how many bytes behind the last element differ


def compare(before: DumpFile, after: DumpFile) -> list[Difference]:
    """Return the tensors that differ; all others are the same, bit for bit.

    Both files are read to their ends, so that damage is found. Takes memory for a few blocks only.

    Raises:
        ComparisonError: one of the files cannot be read, or the tensors are not the same ones.
    """
    differences = []
    for tensor, other in _pairs(before, after):
        tally = _Tally(tensor)
        size = tally.block_bytes
        start = 0
        for old, new in zip(_blocks(before, tensor, size), _blocks(after, other, size), strict=True):
            tally.add(start, old, new)
            start += len(old)
        if tally.changed or tally.padding:
            differences.append(tally.result())
    for dump in (before, after):
        with _reading(dump):
            dump.read_to_end()
    return differences


def _pairs(before: DumpFile, after: DumpFile) -> list[tuple[Tensor, Tensor]]:
    if _layout(before) != _layout(after):
        raise ComparisonError(after, "has other tensors than the dump before it")
    pairs = [
        (tensor, other)
        for tensor, other in zip(before.tensors, after.tensors, strict=True)
        if tensor.stored and tensor.size
    ]
    if not pairs:
        raise ComparisonError(after, "has no bytes of any tensor")
    return pairs


def _layout(dump: DumpFile) -> list[tuple[Any, ...]]:
    return [(it.io, it.index, it.dtype, it.shape, it.size, it.stored) for it in dump.tensors]


def _blocks(dump: DumpFile, tensor: Tensor, size: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of *tensor*, *size* at a time; each block is valid until the next."""
    buffer = np.empty(min(size, tensor.size), np.uint8)
    filled = 0
    with _reading(dump):
        for block in dump.blocks(tensor):
            data = np.frombuffer(block, np.uint8)
            while len(data):
                part = data[: len(buffer) - filled]
                buffer[filled : filled + len(part)] = part
                filled += len(part)
                data = data[len(part) :]
                if filled == len(buffer):
                    yield buffer
                    filled = 0
    if filled:
        yield buffer[:filled]


@contextmanager
def _reading(dump: DumpFile) -> Iterator[None]:
    try:
        yield
    except (DumpFormatError, PartError) as exc:
        raise ComparisonError(dump, exc.detail) from exc


class _Tally:
    """Counts what differs in one tensor whose blocks come in order."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        dtype, shape, size = tensor.dtype, tensor.shape, tensor.size
        try:
            self._needed = needed_bytes(dtype, shape, size)
        except ValueError:  # the shape does not fit the bytes, which are compared instead
            dtype, shape = dtype_of(_UINT8), ()
            self._needed = size
        self._shape = element_shape(dtype, shape, size)
        self._elements = math.prod(self._shape)
        self._dtype = dtype
        self._packed = dtype.is_packed(self._elements, size)
        self._unit = dtype.unit_bytes(packed=self._packed)
        self._unit_elements = self._unit * _BYTE_BITS // dtype.bits if self._packed else 1
        self._first: int | None = None
        self._last: int | None = None
        self._values: list[ChangedValue] = []
        self.block_bytes = _BLOCK_BYTES // self._unit * self._unit
        self.changed = 0
        self.padding = 0

    def add(self, start: int, old: NDArray[np.uint8], new: NDArray[np.uint8]) -> None:
        """Compare the blocks that begin at byte *start*, a multiple of `block_bytes`."""
        if np.array_equal(old, new):
            return
        inside = min(max(self._needed - start, 0), len(old))
        self.padding += int(np.count_nonzero(old[inside:] != new[inside:]))
        base = start // self._unit * self._unit_elements
        old, new = old[:inside], new[:inside]
        changed = self._changed_elements(base, old, new)
        if not len(changed):
            return
        self.changed += len(changed)
        self._first = base + int(changed[0]) if self._first is None else self._first
        self._last = base + int(changed[-1])
        self._note_values(base, changed[: _SHOWN_VALUES - len(self._values)], old, new)

    def result(self) -> Difference:
        first, last = (None if it is None else self._index(it) for it in (self._first, self._last))
        return Difference(
            self._tensor, self._elements, self.changed, first, last, tuple(self._values), self.padding
        )

    def _changed_elements(
        self, base: int, old: NDArray[np.uint8], new: NDArray[np.uint8]
    ) -> NDArray[np.intp]:
        """Return which elements differ, counted from the first of the block."""
        if not self._packed:
            return np.flatnonzero((old != new).reshape(-1, self._unit).any(axis=1))
        width = self._dtype.bits
        bits = np.unpackbits(old ^ new, bitorder="little")
        count = min(len(bits) // width, self._elements - base)
        self.padding += int(bits[count * width :].any())  # the rest of the last byte
        return np.flatnonzero(bits[: count * width].reshape(count, width).any(axis=1))

    def _note_values(
        self, base: int, changed: NDArray[np.intp], old: NDArray[np.uint8], new: NDArray[np.uint8]
    ) -> None:
        if not len(changed):
            return
        count = len(old) * _BYTE_BITS // self._dtype.bits
        before, after = (
            numbers_of(decode_elements(self._dtype, raw, count, packed=self._packed)[changed])
            for raw in (old, new)
        )
        for element, *values in zip(changed, before, after, strict=True):
            self._values.append(ChangedValue(self._index(base + int(element)), *values))

    def _index(self, flat: int) -> tuple[int, ...]:
        """Return the index of an element by dimension."""
        return tuple(map(int, np.unravel_index(flat, self._shape)))
