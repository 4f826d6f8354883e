"""Entry: one file of one side of a comparison, with what its tensors are known to be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Self

from dumpstream.comparison.sides.descriptor import Descriptor, ios_of, pack, pack_header
from dumpstream.comparison.sides.origin import Origin
from dumpstream.format.header import IO


class Packed(NamedTuple):
    """The tensors of a file, as a catalog keeps them."""

    ios: str  #: which ones there are
    tensors: bytes  #: the descriptors
    whole: int = 0  #: how many there are, if none has a problem
    hashed: bool = False  #: whether the hashes of all are known


NOTHING = Packed("", pack(()))


@lru_cache(1024)
def _ios(*counts: int) -> str:
    return " ".join([f"{io} {index}" for io, count in zip(IO, counts, strict=True) for index in range(count)])


def packed_file(data: memoryview) -> Packed | None:
    """Return the tensors of the whole dump file *data*; None if it takes a closer look."""
    found = pack_header(data)
    if found is None:
        return None
    header, counts = found
    return Packed(_ios(*counts), header, sum(counts))


class Entry(NamedTuple):
    """A file; one of which only the name is known has no tensors, and a problem that says why."""

    origin: Origin
    file: str  #: its name, as commands show it
    source: int  #: which of the side's sources opens it
    reference: str | None  #: what its source opens it by; "" if that is *file*, None if it has no elements
    content: str | None = None  #: the same for files with the same bytes; None if that is not known
    packed: Packed = NOTHING
    problem: str | None = None  #: why there are no tensors

    def describe(self, tensors: Sequence[Descriptor]) -> Self:
        """Return it with *tensors*."""
        whole = 0 if any(it.problem is not None for it in tensors) else len(tensors)
        hashed = all(it.hash is not None for it in tensors)
        return self._replace(packed=Packed(ios_of(tensors), pack(tensors), whole, hashed))
