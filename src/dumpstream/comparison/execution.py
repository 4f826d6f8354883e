"""Execution: one time that an operator ran, with the pairs of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dumpstream.comparison.sidetensor import SideTensor


class Pair(NamedTuple):
    """A tensor of mine and the one of the golden that it is compared with; either may be missing."""

    mine: SideTensor | None
    golden: SideTensor | None
    reason: str | None = None  #: why one is missing, or what the pair rests on
    guess: bool = False  #: whether names do not say that they belong together
    known_identical: bool = False  #: whether they are known to be the same without their elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """An operator that ran once on one side, or on both."""

    rank: int | None
    model: str | None
    step: int | None
    op_type: str | None
    op_name: str | None
    occurrence: int
    pairs: Sequence[Pair] = field(default=())
    #: Whether all pairs are known to be identical. The pairs of such an execution need not be looked at, and
    #: are not made before they are; how many there are is known.
    identical: bool = False
