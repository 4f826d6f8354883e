"""Blocks: how the device divides the axes of a tensor, and where the elements lie in them. Does no I/O."""

from collections.abc import Iterator
from math import lcm, prod
from typing import NamedTuple, Self

CUBE = 16  #: rows of a block


class Blocked(NamedTuple):
    """A blocked format: its axes, where ``c`` and ``k`` are C1 and C0, and ``n`` and ``m`` the same for N."""

    axes: str
    fused: int = 1  #: how many of the first axes are stored as one

    @property
    def grouped(self) -> bool:
        return self.axes.startswith("g")

    @property
    def rank(self) -> int:
        return len(self.axes) - self.fused + 1

    def split(self, order: str) -> str:
        """Return the axes that those of *order* are split into."""
        return "".join({"C": "ck", "N": "nm" if "n" in self.axes else "N"}.get(axis, axis) for axis in order)


BLOCKED = {
    "NC1HWC0": Blocked("NcHWk"),
    "C1HWNC0": Blocked("cHWNk"),
    "NDC1HWC0": Blocked("NDcHWk"),
    "FRACTAL_Z": Blocked("gcHWnmk", fused=4),
    "FRACTAL_Z_3D": Blocked("gDcHWnmk", fused=5),
}


class Geometry(NamedTuple):
    """A tensor in plain and in blocked form."""

    format: Blocked
    lengths: dict[str, int]  #: of the plain axes
    groups: int
    together: int  #: groups that share a block
    blocks: dict[str, int]  #: lengths of the blocked axes

    @classmethod
    def of(cls, blocked: Blocked, lengths: dict[str, int], groups: int, c0: int) -> Self:
        """Return the geometry of a tensor with plain axes of *lengths*, in blocks of *c0* channels."""
        if not (blocked.grouped and lengths["N"]):
            groups = 1
        inputs, outputs, together = lengths["C"], lengths["N"] // groups, 1
        if groups > 1 and inputs and outputs:
            together = min(groups, lcm(lcm(inputs, c0) // inputs, lcm(outputs, CUBE) // outputs))
        blocks = {
            **lengths,
            "g": -(-groups // together),
            "c": -(-together * inputs // c0),
            "k": c0,
            "n": -(-together * outputs // CUBE),
            "m": CUBE,
        }
        return cls(blocked, lengths, groups, together, blocks)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape it is stored in."""
        lengths = [self.blocks[axis] for axis in self.format.axes]
        return (prod(lengths[: self.format.fused]), *lengths[self.format.fused :])

    def corners(self) -> Iterator[tuple[int, dict[str, slice], dict[str, slice]]]:
        """Yield for each group its block, and where it lies in the block and in the plain tensor."""
        inputs, outputs = self.lengths["C"], self.lengths["N"] // self.groups
        for group in range(self.groups):
            block, corner = divmod(group, self.together)
            inside = {"C": _section(corner, inputs), "N": _section(corner, outputs)}
            yield block, inside, {"N": _section(group, outputs)}


def _section(number: int, length: int) -> slice:
    return slice(number * length, (number + 1) * length)
