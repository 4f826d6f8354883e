"""Tensors of every kind of elements, and what the codecs make of them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from dumpstream._native import encoded_bound
from dumpstream.codec import Codec
from dumpstream.codec.blocks import BlockEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The numbers of elements in blocks.
ELEMENTS = range(8)
CODECS = ("float", "float-small", "auto", "none")
_FLOATS: dict[int, Any] = {1: "<f2", 2: ml_dtypes.bfloat16, 3: "<f4", 4: "<f8"}
_INTEGERS = {0: "u1", 5: "<u2", 6: "<u4", 7: "<u8"}
_COUNTS = (0, 1, 255, 600, 5000, 33_000)


def layout(element: int, size: int) -> bytes:
    """Return the layout of a file that is one tensor of *size* bytes."""
    return struct.pack("<QLL", size, element, 0)


def encode(codec: str, data: bytes, element: int) -> bytes:
    """Return the blocks of *data*, a tensor."""
    out = memoryview(bytearray(encoded_bound(len(data))))
    return bytes(out[: BlockEncoder(Codec(codec), 1).encode(data, 0, layout(element, len(data)), out)])


def tensors(element: int) -> Iterator[bytes]:
    """Yield tensors of several sizes: like weights, gradients and activations; counts, zeros and noise."""
    rng = np.random.default_rng(element)
    for count in _COUNTS:
        normal = rng.standard_normal(count)
        values = [normal, normal * np.exp2(rng.integers(-20, 5, count)), np.maximum(normal, 0)]
        if element in _FLOATS:
            yield from (value.astype(_FLOATS[element]).tobytes() for value in values)
        else:
            dtype = _INTEGERS[element]
            numbers = (np.arange(count), rng.integers(0, 100, count), np.arange(count) // 7 * 3)
            yield from (number.astype(dtype).tobytes() for number in numbers)
        width = (1, 2, 2, 4, 8, 2, 4, 8)[element]
        yield bytes(count * width)
        yield rng.bytes(count * width + 1)
