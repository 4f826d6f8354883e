"""Mesh: how the ranks of a run are arranged, and which of them hold parts of the same tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

_GROUP = re.compile(r"([A-Za-z][A-Za-z0-9_]*)=([1-9][0-9]{0,6})")


@dataclass(frozen=True, slots=True)
class Mesh:
    """The groups of a run with their sizes, such as tensor, data and pipeline parallel ones.

    The ranks of the first group are neighbours: with ``tp=2,dp=2`` the ranks 0 and 1 are one tp group, and
    the ranks 0 and 2 one dp group.
    """

    sizes: Mapping[str, int]

    @classmethod
    def parse(cls, text: str) -> Mesh:
        """Return the mesh that ``tp=2,dp=2,pp=2`` stands for.

        Raises:
            ValueError: it is not a list of names with sizes.
        """
        sizes: dict[str, int] = {}
        for part in text.split(","):
            match = _GROUP.fullmatch(part.strip())
            if match is None or match[1] in sizes:
                raise ValueError(f"{text!r} is not a mesh; write for example tp=2,dp=4, each group once")
            sizes[match[1]] = int(match[2])
        return cls(sizes)

    @property
    def ranks(self) -> int:
        """How many there are."""
        return math.prod(self.sizes.values())

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the place of *rank* in each group.

        Raises:
            ValueError: the mesh has fewer ranks.
        """
        if not 0 <= rank < self.ranks:
            raise ValueError(f"the mesh {self} has {self.ranks} ranks, and the run has a rank {rank}")
        found = {}
        for name, size in self.sizes.items():
            rank, found[name] = divmod(rank, size)
        return found

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.sizes.items())
