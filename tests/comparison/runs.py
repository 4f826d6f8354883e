"""Runs that a test puts together: dump files in a directory as CANN writes them, or in a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tests.conftest import CaptureBuilder, DumpBuilder

from dumpstream.comparison.pairs.pairing import Pairing, PairingOptions, pair_sides
from dumpstream.comparison.sides.side import open_side
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dumpstream.comparison.execution import Execution, Pair
    from dumpstream.comparison.sidetensor import SideTensor

#: The directory in the names of files; the first part is when the dump was configured.
ROOT = "20260530164725"
_FIRST_TIME = 1780159660000000


class Dumped(NamedTuple):
    """A dump file, of which a test knows all."""

    op_type: str = "Add"
    op_name: str = "add"
    time: int = 0  #: microseconds after the first
    inputs: int = 1
    outputs: int = 1
    model: str | None = "net"
    step: int | None = 0
    device: int = 0
    value: float = 1.0  #: of all elements
    shape: tuple[int, ...] = (2, 3)
    damaged: bool = False
    task: int = 1

    @property
    def name(self) -> str:
        """Its path below that of the dump."""
        levels = [ROOT, str(self.device)]
        if self.model is not None:
            levels += [self.model, "1"] + ([] if self.step is None else [str(self.step)])
        base = f"{self.op_type}.{self.op_name}.{self.task}.3.{_FIRST_TIME + self.time}"
        return "/".join([*levels, base])

    @property
    def tensors(self) -> set[tuple[str, int]]:
        """Which tensors it has; one that is not known if it is damaged."""
        if self.damaged:
            return {("", 0)}
        return {("input", it) for it in range(self.inputs)} | {("output", it) for it in range(self.outputs)}

    @property
    def data(self) -> bytes:
        """Its bytes."""
        dump = DumpBuilder(self.op_name)
        array = np.full(self.shape, self.value, np.float32)
        for _ in range(self.inputs):
            dump.input(array)
        for _ in range(self.outputs):
            dump.output(array)
        return b"\xff" * 40 if self.damaged else dump.build()


def write(directory: Path, files: Iterable[Dumped]) -> Path:
    """Write *files* below *directory*, as CANN does."""
    directory.mkdir(exist_ok=True)
    for file in files:
        path = directory / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    return directory


def capture(path: Path, files: Iterable[Dumped]) -> Path:
    """Leave a capture of *files*."""
    builder = CaptureBuilder(path)
    for file in files:
        builder.add(file.name, file.data, Verdict.UNPARSED if file.damaged else Verdict.COMPLETE)
    return builder.finish()


def pairing(mine: Path, golden: Path, options: PairingOptions | None = None) -> Pairing:
    """Return the pairing of two locations."""
    return pair_sides(open_side(mine, "mine"), open_side(golden, "the golden"), options)


def compared(
    mine: Path, golden: Path, options: PairingOptions | None = None
) -> tuple[list[Execution], list[str]]:
    """Return all executions of two locations, and what was noted."""
    with pairing(mine, golden, options) as found:
        return [*found], found.notes


def pairs_of(executions: Iterable[Execution]) -> list[Pair]:
    """Return the pairs of *executions*."""
    return [pair for execution in executions for pair in execution.pairs]


def shown(tensor: SideTensor | None) -> str | None:
    """Return a tensor as a short text: the operator, which of its tensors, and when it was dumped."""
    if tensor is None:
        return None
    it = tensor.identity
    time = tensor.file.rpartition(".")[2]
    since = int(time) - _FIRST_TIME if time.isdecimal() else time
    return f"{it.op_name} {it.io} {it.index} at {since}"


def both(pairs: Sequence[Pair]) -> list[tuple[str | None, str | None]]:
    """Return *pairs* as short texts."""
    return [(shown(pair.mine), shown(pair.golden)) for pair in pairs]
