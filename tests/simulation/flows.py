"""The tensors of a data flow as a dump shows them, beside the truth about the operators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dumpstream.reading.dumpfile import DumpFile
from dumpstream.simulation import Execution, Workload, executions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


class Dumped(NamedTuple):
    """A tensor of a dump file."""

    address: int
    data: bytes
    array: NDArray[Any]

    @property
    def values(self) -> NDArray[np.float32]:
        return np.asarray(self.array, np.float32)

    @property
    def bad(self) -> NDArray[np.bool_]:
        return ~np.isfinite(self.values)


class Run(NamedTuple):
    """One execution, and its tensors as they were dumped."""

    truth: Execution
    inputs: tuple[Dumped, ...]
    outputs: tuple[Dumped, ...]


def runs(workload: Workload, step: int) -> Iterator[Run]:
    """Yield the executions of *step*; of operators that are not dumped, without tensors."""
    files: dict[tuple[int, int], dict[str, list[Dumped]]] = {}
    for file in workload.expected_files("/dump", step):
        task, stream = (int(part) for part in file.name.split(".")[-3:-1])
        tensors = files.setdefault((task, stream), {"input": [], "output": []})
        with DumpFile.open(file.data) as dump:
            for tensor in dump.tensors:
                shown = Dumped(tensor.address, bytes(dump.bytes(tensor)), dump.array(tensor))
                tensors[str(tensor.io)].append(shown)
    for execution in executions(workload, step):
        tensors = files.get((execution.task, execution.stream), {"input": [], "output": []})
        yield Run(execution, tuple(tensors["input"]), tuple(tensors["output"]))


def before(workload: Workload) -> Workload:
    """Return a workload whose inputs are dumped before the operators run."""
    return replace(workload, io_files="separate")


def downstream(truth: list[Execution], number: int) -> set[int]:
    """Return the operators that depend on the operator *number*, and that one."""
    found = {number}
    for execution in truth:
        sources = {source for operand in execution.inputs for source in operand.sources}
        if any(source.kind == "operator" and source.number in found for source in sources):
            found.add(execution.number)
    return found
