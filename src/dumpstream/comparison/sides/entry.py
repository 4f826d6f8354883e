"""Entry: one file of one side of a comparison, with what its tensors are known to be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

from dumpstream.comparison.sides.descriptor import Descriptor, pack, pack_header
from dumpstream.comparison.sides.origin import Origin
from dumpstream.format.header import IO

# Positions in a descriptor.
_HASH: Final = Descriptor._fields.index("hash")
_PROBLEM: Final = Descriptor._fields.index("problem")


class Packed(NamedTuple):
    """The tensors of a file, as a catalog keeps them."""

    ios: str  #: which ones there are
    tensors: bytes  #: the descriptors
    whole: int = 0  #: how many there are, if none has a problem
    hashed: bool = False  #: whether the hashes of all are known


NOTHING = Packed("", pack([]))


@lru_cache(1024)
def ios_text(*counts: int) -> str:
    """Return which tensors there are if there are so many inputs, outputs, buffers and spaces."""
    return " ".join([f"{io} {index}" for io, count in zip(IO, counts, strict=True) for index in range(count)])


def packed_file(data: memoryview) -> Packed | None:
    """Return the tensors of the whole dump file *data*; None if it takes a closer look."""
    found = pack_header(data)
    if found is None:
        return None
    header, counts = found
    return Packed(ios_text(*counts), header, sum(counts))


def packed_tensors(tensors: list[tuple[Any, ...]]) -> Packed:
    """Return *tensors*, each with the fields of a `Descriptor`."""
    whole = len(tensors) if {tensor[_PROBLEM] for tensor in tensors} == {None} else 0
    hashed = None not in [tensor[_HASH] for tensor in tensors]
    ios = " ".join([f"{tensor[0]} {tensor[1]}" for tensor in tensors])
    return Packed(ios, pack(tensors), whole, hashed)


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
        return self._replace(packed=packed_tensors([tuple(it) for it in tensors]))
