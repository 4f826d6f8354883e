"""Dump elements: the elements of a dump file's tensor, in the order of its original shape."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator
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
from dumpstream.system.memory import KEPT_BYTES, forget

_BYTE_BITS = 8
_C0_BITS = 256
_MATRICES = "FRACTAL_NZ"
_CUBE = 16  #: rows of a block of FRACTAL_NZ
_SLAB_BYTES = 1 << 20
_SMALL_BYTES = 64 << 10  #: of a tensor that is one block
#: Packed elements come in multiples of 8.
_PACKED_ELEMENTS = 8


@contextmanager
def open_tensor(dump: DumpFile, tensor: Tensor, *, order: str | None = None) -> Iterator[Elements]:
    """Enter the elements of *tensor*, valid while *dump* is open.

    A blocked format is brought to the original shape, if the file has that, and its padding left out. A plain
    format stays as it is. Both are brought to *order* if that is a plain format with the same axes. Takes
    memory for a block only, also for FRACTAL_NZ of any size; other formats that are rearranged take it for
    three times the tensor. What has to be rearranged and is compressed goes to a temporary file.

    Raises:
        DumpFormatError: the shape does not fit the bytes, or the file ends before the tensor does.
        ValueError: the tensor cannot be rearranged, or the file has no bytes of it.
    """
    target = _target(tensor, order)
    if target is None:
        yield _DumpElements(dump, tensor)
        return
    with _codes(dump, tensor) as (codes, forget_codes):
        if tensor.format.name == _MATRICES and _are_matrices(codes, tensor.original_shape):
            yield _MatrixElements(codes, forget_codes, tensor.original_shape, tensor.dtype)
            return
        arranged = to_layout(
            codes,
            tensor.format.name,
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
    ordered = order is not None and order != name and order in targets_of(name) and name != _MATRICES
    if is_blocked(name) and tensor.original_shape:
        return order if ordered else "ND"
    return order if ordered and not is_blocked(name) else None


class _DumpElements:
    """The elements of *tensor* as they lie."""

    __slots__ = ("_dump", "_tensor", "dtype", "packed", "shape")

    def __init__(self, dump: DumpFile, tensor: Tensor) -> None:
        self._dump, self._tensor = dump, tensor
        self.dtype = tensor.dtype
        self.shape = element_shape(tensor.dtype, tensor.shape, tensor.size)
        self.packed = tensor.dtype.is_packed(math.prod(self.shape), tensor.size)

    def blocks(self) -> Iterator[memoryview]:
        tensor = self._tensor
        left = needed_bytes(tensor.dtype, tensor.shape, tensor.size)
        if 0 < left <= _SMALL_BYTES >= tensor.size:
            yield self._dump.bytes(tensor)[:left]
            return
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


@dataclass(frozen=True, slots=True)
class _MatrixElements:
    """The elements of matrices in FRACTAL_NZ, a few rows of blocks at a time."""

    _codes: NDArray[Any]
    _forget: Callable[[], None]  #: gives the memory of a mapped file back
    shape: tuple[int, ...]
    dtype: DType

    @property
    def packed(self) -> bool:
        return False

    def blocks(self) -> Iterator[memoryview]:
        rows, columns = self.shape[-2:]
        batches = self._codes.reshape(-1, *self._codes.shape[-4:])
        passed = 0
        step = max(1, _SLAB_BYTES // max(1, batches[0, :, :1].nbytes)) if len(batches) else 1
        for matrix in batches:
            for start in range(0, matrix.shape[1], step):
                height = min(rows - start * _CUBE, step * _CUBE)
                slab = to_layout(matrix[:, start : start + step], _MATRICES, "ND", (height, columns))
                yield from ArrayElements(slab, self.dtype).blocks()
                passed += slab.nbytes
                if passed >= KEPT_BYTES:
                    self._forget()
                    passed = 0


def _are_matrices(codes: NDArray[Any], shape: tuple[int, ...]) -> bool:
    """Whether *codes* are stored as FRACTAL_NZ stores matrices of *shape*."""
    if len(shape) < 2 or codes.ndim != len(shape) + 2 or not codes.size:  # noqa: PLR2004 - a matrix
        return False
    *batch, rows, columns = shape
    c0 = codes.shape[-1]
    return codes.shape == (*batch, -(-columns // c0), -(-rows // _CUBE), _CUBE, c0)


@contextmanager
def _codes(dump: DumpFile, tensor: Tensor) -> Iterator[tuple[NDArray[Any], Callable[[], None]]]:
    """Enter an array with an item for each element, as its bytes lie, in the shape it is stored in.

    The other value gives the memory of what was read back to the system.
    """
    dtype = tensor.dtype
    plain = _DumpElements(dump, tensor)
    shape = plain.shape
    count = math.prod(shape)
    with _raw(dump, tensor, needed_bytes(dtype, tensor.shape, tensor.size)) as (raw, forget_raw):
        if dtype.bits < _BYTE_BITS:
            yield unpack(dtype, raw, count, packed=plain.packed).reshape(shape), forget_raw
        else:
            yield raw.view(f"V{dtype.bits // _BYTE_BITS}").reshape(shape), forget_raw


@contextmanager
def _raw(dump: DumpFile, tensor: Tensor, size: int) -> Iterator[tuple[NDArray[np.uint8], Callable[[], None]]]:
    """Enter the first *size* bytes of *tensor*; those of a compressed file lie in a temporary file."""
    if not dump.copies or size == 0:
        yield np.frombuffer(dump.bytes(tensor), np.uint8, size), dump.forget
        return
    with TemporaryFile() as spool:
        for block in dump.blocks(tensor):
            spool.write(block)
        spool.flush()
        # Arrays may outlive the block: the last of them ends the mapping.
        mapping = mmap.mmap(spool.fileno(), size, access=mmap.ACCESS_READ)
        yield np.frombuffer(mapping, np.uint8, size), lambda: forget(mapping)
