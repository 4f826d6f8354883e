"""Dump elements: the elements of a dump file's tensor, in the order of its original shape."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dumpstream.comparison.elements import ArrayElements, Elements
from dumpstream.format.dtypes import DType, element_shape, needed_bytes, unpack
from dumpstream.format.header import IO, Tensor
from dumpstream.format.layouts import PLAIN, targets_of, to_layout
from dumpstream.reading.dumpfile import DumpFile

_BYTE_BITS = 8
_C0_BITS = 256
#: Packed elements come in multiples of 8.
_PACKED_ELEMENTS = 8


@contextmanager
def open_tensor(dump: DumpFile, tensor: Tensor, *, order: str | None = None) -> Iterator[Elements]:
    """Enter the elements of *tensor*, valid while *dump* is open.

    A blocked format is brought to the original shape, and its padding left out. A plain format stays as it
    is, or is brought to *order*, another one with the same axes. Takes memory for a block only; a format that
    is rearranged takes it for the whole tensor.

    Raises:
        DumpFormatError: the shape does not fit the bytes, or the file ends before the tensor does.
        ValueError: the tensor cannot be rearranged, or the file has no bytes of it.
    """
    name = tensor.format.name
    target = _target(tensor, order)
    if target is None:
        yield _DumpElements(dump, tensor)
        return
    with _codes(dump, tensor) as codes:
        arranged = to_layout(
            codes,
            name,
            target,
            tensor.original_shape,
            groups=max(1, tensor.sub_format),
            c0=_C0_BITS // tensor.dtype.bits,
        )
        yield ArrayElements(arranged, tensor.dtype)


def is_blocked(format_name: str) -> bool:
    """Whether tensors of this format are brought to their original shape before they are compared."""
    return format_name not in PLAIN and "ND" in targets_of(format_name)


def _target(tensor: Tensor, order: str | None) -> str | None:
    """Return the format to rearrange to; None if the elements are taken as they lie."""
    name = tensor.format.name
    if tensor.io in {IO.BUFFER, IO.SPACE} or tensor.dtype.kernel is None:
        return None
    if is_blocked(name):
        return "ND"
    if order is not None and order != name and order in targets_of(name):
        return order
    return None


@dataclass(frozen=True, slots=True)
class _DumpElements:
    """The elements of a tensor as they lie."""

    _dump: DumpFile
    _tensor: Tensor

    @property
    def dtype(self) -> DType:
        return self._tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        tensor = self._tensor
        return element_shape(tensor.dtype, tensor.shape, tensor.size)

    @property
    def packed(self) -> bool:
        return self.dtype.is_packed(math.prod(self.shape), self._tensor.size)

    def blocks(self) -> Iterator[memoryview]:
        tensor = self._tensor
        left = needed_bytes(tensor.dtype, tensor.shape, tensor.size)
        unit = tensor.dtype.unit_bytes(packed=self.packed)
        if self.packed:
            unit = math.lcm(unit, _PACKED_ELEMENTS * tensor.dtype.bits // _BYTE_BITS)
        rest = b""
        for block in self._dump.blocks(tensor):
            data = memoryview(rest + block) if rest else block
            data = data[:left]
            whole = len(data) if len(data) == left else len(data) - len(data) % unit
            rest, left = bytes(data[whole:]), left - whole
            if whole:
                yield data[:whole]
            if not left:
                return


@contextmanager
def _codes(dump: DumpFile, tensor: Tensor) -> Iterator[NDArray[Any]]:
    """Enter an array with an item for each element, as its bytes lie, in the shape it is stored in."""
    dtype = tensor.dtype
    plain = _DumpElements(dump, tensor)
    shape = plain.shape
    count = math.prod(shape)
    with _raw(dump, tensor, needed_bytes(dtype, tensor.shape, tensor.size)) as raw:
        if dtype.bits < _BYTE_BITS:
            yield unpack(dtype, raw, count, packed=plain.packed).reshape(shape)
        else:
            yield raw.view(f"V{dtype.bits // _BYTE_BITS}").reshape(shape)


@contextmanager
def _raw(dump: DumpFile, tensor: Tensor, size: int) -> Iterator[NDArray[np.uint8]]:
    """Enter the first *size* bytes of *tensor*; those of a compressed file lie in a temporary file."""
    if not dump.copies or size == 0:
        yield np.frombuffer(dump.bytes(tensor), np.uint8, size)
        return
    with TemporaryFile() as spool:
        for block in dump.blocks(tensor):
            spool.write(block)
        spool.flush()
        # Arrays may outlive the block: the last of them ends the mapping.
        yield np.frombuffer(mmap.mmap(spool.fileno(), size, access=mmap.ACCESS_READ), np.uint8, size)
