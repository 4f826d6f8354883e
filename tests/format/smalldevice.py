"""Dump files as small devices write them, byte by byte."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The graph engine's numbers of some data types.
TYPES = {
    "float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8,
    "int64": 9, "uint64": 10, "float64": 11, "bool": 12, "complex64": 16, "complex128": 17,
}  # fmt: skip


class SmallTensor(NamedTuple):
    """What the header says of a tensor, and its bytes."""

    data: bytes
    dtype: int = 0
    format: int = 2
    shape: tuple[int, ...] | None = None
    original_shape: tuple[int, ...] | None = None
    name: bytes | None = None  #: of an output, before the graph was optimised
    address: int = 0
    size: int | None = None  #: if it is not that of the bytes


def small_tensor(array: NDArray[Any], **more: Any) -> SmallTensor:
    described: dict[str, Any] = {
        "dtype": TYPES[array.dtype.name],
        "shape": array.shape,
        "original_shape": array.shape,
    }
    return SmallTensor(np.ascontiguousarray(array).tobytes(), **(described | more))


def small_dump(inputs: list[SmallTensor], outputs: list[SmallTensor]) -> bytes:
    """Return a whole file; a kind of tensor that is not there has no block."""
    header = struct.pack("<II", 0x5A5A5A5A, 0)
    if inputs:
        header += _block(4, [_tensor(it, b"") for it in inputs])
    if outputs:
        originals = struct.pack("<iii", 5, 1, 0)
        header += _block(5, [_tensor(it, originals) for it in outputs])
    return struct.pack("<Q", len(header)) + header + b"".join(it.data for it in (*inputs, *outputs))


def _block(tag: int, tensors: list[bytes]) -> bytes:
    content = struct.pack("<I", len(tensors)) + b"".join(tensors)
    return struct.pack("<II", tag, len(content)) + content


def _tensor(tensor: SmallTensor, originals: bytes) -> bytes:
    items = b""
    for tag, dims in enumerate((tensor.shape, tensor.original_shape)):
        if dims is not None:
            items += struct.pack(f"<II{len(dims)}Q", tag, 8 * len(dims), *dims)
    if tensor.name is not None:
        items += struct.pack("<II", 2, len(tensor.name)) + tensor.name
    size = len(tensor.data) if tensor.size is None else tensor.size
    kinds = struct.pack("<iii", tensor.dtype, tensor.format, 3)
    return kinds + originals + struct.pack("<QQQI", tensor.address, 0, size, len(items)) + items
