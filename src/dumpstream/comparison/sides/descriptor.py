"""Descriptor: what is known of one tensor of a file without its elements, small enough to keep millions."""

from __future__ import annotations

import marshal
import math
from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, NamedTuple

from dumpstream import _native
from dumpstream.format.dtypes import DYNAMIC, dtype_of
from dumpstream.format.formats import format_of
from dumpstream.format.header import IO, PREFIX_BYTES, DumpHeader, Tensor, message_bytes
from dumpstream.statistics.table import Number, TensorStatistics

#: The columns of the statistics of a tensor, in order.
STATISTICS = tuple(field.name for field in fields(TensorStatistics))
_NUMBERS = attrgetter(*STATISTICS)
_IOS = tuple(io.value for io in IO)
_DESCRIPTORS, _HEADER = b"D", b"H"  #: what packed bytes begin with
# Positions in a segment from the native reader.
_SIZE: Final = 5
_ADDRESS: Final = 6


class Descriptor(NamedTuple):
    """One tensor of a file."""

    io: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    dtype: str | None = None
    format: str | None = None
    shape: tuple[int, ...] | None = None
    original_shape: tuple[int, ...] | None = None
    count: int | None = None  # type: ignore[assignment]  # hides tuple.count
    size: int | None = None
    address: int | None = None
    hash: str | None = None
    problem: str | None = None
    statistics: tuple[Number | str | tuple[int, ...] | None, ...] | None = None  #: as `STATISTICS`


def descriptors_of(header: DumpHeader, length: int | None, problem: str | None) -> list[Descriptor]:
    """Return what *header* says of its tensors; *problem* is that of the whole file.

    Tensors that reach beyond *length*, the bytes that there are, have a problem of their own.
    """
    return [_described(tensor, length, problem) for tensor in header.tensors]


def _described(tensor: Tensor, length: int | None, problem: str | None) -> Descriptor:
    if problem is None:
        if tensor.stop is None:
            problem = "its bytes were not dumped"
        elif length is not None and tensor.stop > length:
            problem = f"its file ends {tensor.stop - length} bytes before it does; dump it again"
    shape = tensor.shape
    return Descriptor(
        tensor.io.value,
        tensor.index,
        tensor.dtype.short,
        tensor.format.name,
        shape,
        tensor.original_shape,
        math.prod(shape) if shape and DYNAMIC not in shape else None,
        tensor.size,
        tensor.address,
        None,
        problem,
    )


def pack(tensors: list[tuple[Any, ...]]) -> bytes:
    """Return *tensors*, plain tuples with the fields of a `Descriptor`, as bytes."""
    return _DESCRIPTORS + marshal.dumps(tensors)


def pack_header(data: memoryview) -> tuple[bytes, tuple[int, ...]] | None:
    """Return the header of a whole dump file as bytes, and how many tensors of each kind it has, as in `IO`.

    That is a fraction of the work of describing them. None if it takes a closer look.
    """
    stop = PREFIX_BYTES + message_bytes(data)
    try:
        *_, inputs, outputs, buffers, spaces, _ = _native.parse_header(data[PREFIX_BYTES:stop])
    except ValueError:
        return None
    if 0 in [segment[_ADDRESS] for segment in (*inputs, *outputs)]:
        return None
    counts = len(inputs), len(outputs), len(buffers), len(spaces)
    length = stop + sum([segment[_SIZE] for group in (inputs, outputs, buffers, spaces) for segment in group])
    return (_HEADER + bytes(data[:stop]), counts) if length == len(data) and any(counts) else None


def unpack(data: bytes) -> Sequence[Descriptor]:
    """Return the descriptors that `pack` or `pack_header` made *data* of."""
    if data.startswith(_HEADER):
        return _unpack_header(memoryview(data)[len(_HEADER) + PREFIX_BYTES :])
    return [*map(Descriptor._make, marshal.loads(data[len(_DESCRIPTORS) :]))]  # noqa: S302 - this process wrote them


def _unpack_header(message: memoryview) -> list[Descriptor]:
    """Return what the header of a whole file says, which is described as `descriptors_of` does."""
    *_, inputs, outputs, buffers, spaces, _ = _native.parse_header(message)
    found = []
    for io, group in zip(_IOS, (inputs, outputs, buffers, spaces), strict=True):
        for index, (dtype, format_, shape, original_shape, _, size, address, *_) in enumerate(group):
            count = math.prod(shape) if shape and DYNAMIC not in shape else None
            names = dtype_of(dtype).short, format_of(format_).name
            found.append(Descriptor(io, index, *names, shape, original_shape, count, size, address))
    return found


def statistics_of(descriptor: Descriptor) -> TensorStatistics | None:
    """Return the statistics of the tensor, if they are known."""
    return None if descriptor.statistics is None else TensorStatistics(*descriptor.statistics)  # type: ignore[arg-type]


def numbers_of(statistics: TensorStatistics) -> tuple[Number | str | tuple[int, ...] | None, ...]:
    """Return *statistics* as a descriptor has them."""
    return tuple(_NUMBERS(statistics))
