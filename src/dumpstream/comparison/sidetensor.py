"""SideTensor: one tensor of one side of a comparison, before its elements are read."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dumpstream.comparison.elements import Elements
from dumpstream.statistics.table import TensorStatistics


class Opener(Protocol):
    """Opens the elements of a tensor."""

    def __call__(self, *, order: str | None = None) -> AbstractContextManager[Elements]: ...


class Identity(NamedTuple):
    """What two tensors must have in common to be compared; None for what is not known."""

    rank: int | None
    model: str | None
    step: int | None
    op_type: str | None
    op_name: str | None
    io: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    occurrence: int  #: how often the operator had run before in the step


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTensor:
    """A tensor as its side knows it: from a header, a row of statistics, or the name of an npy file."""

    identity: Identity
    #: Orders the tensors of a rank as their operators ran: the files of one execution have the same place.
    place: int
    file: str  #: the name of its file, as commands show it
    dtype: str | None = None  #: as `DType.short`
    format: str | None = None
    shape: tuple[int, ...] | None = None
    original_shape: tuple[int, ...] | None = None
    order: str | None = None  #: of the axes of its shape, such as NHWC, if that is known
    count: int | None = None  #: elements
    size: int | None = None  #: bytes
    address: int | None = None  #: on the device; None or 0 if it is not known
    hash: str | None = None  #: of the bytes the elements take, as in statistics
    statistics: TensorStatistics | None = None
    problem: str | None = None  #: why the tensor cannot be read, or is not to be trusted
    #: Opens its elements, with the axes in another order if one is given; None if only statistics are known.
    open: Opener | None = None
