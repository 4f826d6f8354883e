"""Entry: one file of one side of a comparison, with what its tensors are known to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dumpstream.comparison.sides.descriptor import Descriptor
from dumpstream.comparison.sides.origin import Origin


class Entry(NamedTuple):
    """A file; one of which only the name is known has no tensors, and a problem that says why."""

    origin: Origin
    file: str  #: its name, as commands show it
    source: int  #: which of the side's sources opens it
    reference: str | None  #: what the source opens it by; None if there is nothing to open
    content: str | None  #: the same for files with the same bytes; None if that is not known
    tensors: Sequence[Descriptor] = ()
    problem: str | None = None  #: why there are no tensors
