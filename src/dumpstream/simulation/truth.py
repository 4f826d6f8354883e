"""What the operators of a data flow really read, wrote and did wrong: what a diagnosis must find out."""

import ctypes
from collections.abc import Iterator
from typing import NamedTuple

from dumpstream.simulation.library import ExecutionTruth, OperandTruth, check_errno, load_library
from dumpstream.simulation.workload import Workload, opened

_SOURCES = ("operator", "loader", "weight")
_INJECTIONS = ("nan", "overflow", "perturb", "saturate")


class Source(NamedTuple):
    """What a tensor, or a part of it, was written by."""

    kind: str  #: ``operator``, ``loader`` or ``weight``
    number: int  #: of the operator in the step; for a loader or a weight: of the first one that reads it
    output: int  #: which one of the operator's


class Operand(NamedTuple):
    """An input as it was before the operator ran, or an output."""

    address: int
    bytes: int
    dtype: int  #: its number in dump headers
    shape: tuple[int, ...]
    #: Several, if it is a join of several outputs. Of an output, the operator itself.
    sources: tuple[Source, ...]
    in_place: bool  #: an input whose place an output has taken: its dump shows the output, unless made before
    nan: int  #: elements that are NaN
    infinite: int  #: elements that are infinite
    saturated: int  #: of an eight-bit type: elements that have the largest absolute value
    #: Faults of the first output; of an input, those of the loader or of a weight, in this step.
    injected: tuple[str, ...]


class Execution(NamedTuple):
    """One operator in one step."""

    rank: int
    step: int
    number: int  #: in the step
    name: str
    op_type: str
    model: int  #: for a call of a single operator: the number of models
    task: int
    stream: int
    dumped: bool  #: unless the configuration leaves it out
    collective: bool
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    @property
    def injected(self) -> tuple[str, ...]:
        """The faults that the operator has itself: of ``nan``, ``overflow``, ``perturb`` and ``saturate``."""
        return self.outputs[0].injected

    @property
    def makes_nan(self) -> bool:
        """Whether an output has NaN, and no input has; a collective gets it from another rank.

        The inputs may have infinities, of which the NaN came.
        """
        if self.collective and "nan" not in self.injected:
            return False
        return any(output.nan for output in self.outputs) and not any(one.nan for one in self.inputs)

    @property
    def makes_infinity(self) -> bool:
        """Whether an output has infinities, and all inputs are finite; likewise."""
        if self.collective and "overflow" not in self.injected:
            return False
        bad = any(operand.nan or operand.infinite for operand in self.inputs)
        return any(output.infinite for output in self.outputs) and not bad


def executions(workload: Workload, step: int) -> Iterator[Execution]:
    """Yield the operators that the rank of *workload* runs in *step*, in order.

    Raises:
        ValueError: a field is out of range, or the workload has no data flow.
    """
    if workload.flow != "on":
        raise ValueError("the workload has no data flow; set flow=on")
    library, truth = load_library(), ExecutionTruth()
    with opened(workload) as handle:
        for number in range(library.dssim_ops_per_step(handle)):
            check_errno(library.dssim_execution_describe(handle, step, number, ctypes.byref(truth)))
            operands = [_operand(operand) for operand in truth.operand[: truth.inputs + truth.outputs]]
            yield Execution(
                rank=workload.rank,
                step=step,
                number=number,
                name=truth.name.decode(),
                op_type=truth.type.decode(),
                model=truth.model,
                task=truth.task,
                stream=truth.stream,
                dumped=not truth.is_undumped,
                collective=bool(truth.is_collective),
                inputs=tuple(operands[: truth.inputs]),
                outputs=tuple(operands[truth.inputs :]),
            )


def _operand(truth: OperandTruth) -> Operand:
    return Operand(
        address=truth.address,
        bytes=truth.bytes,
        dtype=truth.dtype,
        shape=tuple(truth.dim[: truth.dims]),
        sources=tuple(
            Source(_SOURCES[source.kind], source.op, source.index) for source in truth.source[: truth.sources]
        ),
        in_place=bool(truth.in_place),
        nan=truth.nans,
        infinite=truth.infinities,
        saturated=truth.saturated,
        injected=tuple(name for place, name in enumerate(_INJECTIONS) if truth.injected >> place & 1),
    )
