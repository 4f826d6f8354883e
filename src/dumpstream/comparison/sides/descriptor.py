"""Descriptor: what is known of one tensor of a file without its elements, small enough to keep millions."""

from __future__ import annotations

import marshal
import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import NamedTuple

from dumpstream.format.dtypes import DYNAMIC
from dumpstream.format.header import DumpHeader, Tensor
from dumpstream.statistics.table import Number, TensorStatistics

#: The columns of the statistics of a tensor, in order.
STATISTICS = tuple(field.name for field in fields(TensorStatistics))
_NUMBERS = attrgetter(*STATISTICS)


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


def pack(descriptors: Iterable[Descriptor]) -> bytes:
    """Return *descriptors* as bytes."""
    return marshal.dumps([tuple(it) for it in descriptors])


def ios_of(descriptors: Iterable[Descriptor]) -> str:
    """Return which tensors *descriptors* are of, as text."""
    return " ".join([f"{it.io} {it.index}" for it in descriptors])


def unpack(data: bytes) -> Sequence[Descriptor]:
    """Return the descriptors that `pack` made *data* of."""
    return [*map(Descriptor._make, marshal.loads(data))]  # noqa: S302 - this process wrote them


def statistics_of(descriptor: Descriptor) -> TensorStatistics | None:
    """Return the statistics of the tensor, if they are known."""
    return None if descriptor.statistics is None else TensorStatistics(*descriptor.statistics)  # type: ignore[arg-type]


def numbers_of(statistics: TensorStatistics) -> tuple[Number | str | tuple[int, ...] | None, ...]:
    """Return *statistics* as a descriptor has them."""
    return tuple(_NUMBERS(statistics))
