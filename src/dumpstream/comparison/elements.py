"""Elements: the numbers of one tensor, in blocks, wherever they come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from dumpstream.format.dtypes import DType


class Elements(Protocol):
    """The elements of a tensor in the order of its original shape, without padding."""

    @property
    def dtype(self) -> DType: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the coordinates of an element refer to."""

    def blocks(self) -> Iterator[memoryview]:
        """Yield their bytes, each block a whole number of elements, valid until the next."""
