"""Random workloads with a data flow, and what can be known of their faults."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from dumpstream.diagnosis.badness import SATURATED, Badness
from dumpstream.diagnosis.blame import Blame
from dumpstream.diagnosis.dataflow.trace import trace_of
from dumpstream.diagnosis.evidence import Evidence, gather
from dumpstream.diagnosis.origins import Origin, Origins, find_origins
from dumpstream.simulation import Workload
from dumpstream.simulation.truth import Execution, Operand, Source
from dumpstream.simulation.truth import executions as truth_of
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.statistics.tensors import TensorRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dumpstream.statistics.table import TensorRow

_TYPES = (
    *("MatMulV2", "Relu", "Add", "Mul", "LayerNorm", "SoftmaxV2", "GatherV2", "Cast", "ApplyAdam", "Other"),
    *("HcomAllReduce", "HcomBroadcast", "HcomAllGather", "HcomReduceScatter", "HcomSend"),
)


KINDS = (Badness.NAN, Badness.INF, Badness.SATURATION)


def draw_replicas(seed: int) -> tuple[Workload, Workload, set[int]]:
    """Return two groups of ranks that compute the same but for their faults, and which ranks are captured."""
    drawn = random.Random(seed)
    first = replace(draw_workload(seed), ranks=drawn.randint(2, 4))
    nan, overflow, saturate = (
        _of_ranks(it, first.ranks) for it in (first.nan, first.overflow, first.saturate)
    )
    first = replace(first, nan=nan, overflow=overflow, saturate=saturate)
    clean = replace(first, nan="", overflow="", saturate="")
    second = clean if drawn.random() < 0.5 else replace(clean, nan=f"rank0:{drawn.randrange(first.ops)}")
    everyone = range(2 * first.ranks)
    left_out = {*drawn.sample(everyone, drawn.randint(0, first.ranks))} if drawn.random() < 0.6 else set()
    return first, second, {*everyone} - left_out


def _of_ranks(faults: str, ranks: int) -> str:
    """Return those of *faults* that are not of a rank which is not there."""
    named = (re.match("rank([0-9]+):", it) for it in faults.split("+"))
    kept = zip(faults.split("+"), named, strict=True)
    return "+".join(text for text, rank in kept if rank is None or int(rank[1]) < ranks)


def draw_workload(seed: int) -> Workload:
    """Return a workload with one fault or several, on some ranks, of which not everything is dumped."""
    drawn = random.Random(seed)
    ranks, ops, steps = drawn.randint(1, 8), drawn.randint(4, 16), drawn.randint(1, 4)
    types = ["Data"] * (drawn.random() < 0.3) + drawn.choices(_TYPES, k=drawn.randint(3, ops))

    def fault() -> str:
        where = str(drawn.randrange(ops)) if drawn.random() < 0.85 else drawn.choice(["weights", "loader"])
        rank = f"rank{drawn.randrange(ranks)}:" if drawn.random() < 0.7 else ""
        return rank + where + (f"@{drawn.randrange(steps)}" if drawn.random() < 0.8 else "")

    def one_of_five() -> str:
        return str(drawn.randrange(ops)) if drawn.random() < 0.2 else ""

    faults = [fault() for _ in range(drawn.choice([1, 1, 1, 2, 3, 5]))]
    infinite = sum(drawn.random() < 0.25 for _ in faults)
    eight_bits = drawn.random() < 0.2
    saturated = [fault() for _ in range(drawn.choice([1, 1, 2]))] if eight_bits else []
    left_out = drawn.sample(range(ops), drawn.randint(0, ops // 4)) if drawn.random() < 0.5 else []
    return Workload(
        flow="on",
        seed=seed,
        ranks=ranks,
        skew=drawn.choice([0, -2_500_000, 1_234_567]),
        models=drawn.choice([1, 1, 1, 2]),
        ops=ops,
        steps=steps,
        op_types="+".join(types),
        tensor_bytes="64-1024",
        io_files="separate" if drawn.random() < 0.2 else "joint",
        undumped="+".join(map(str, left_out)),
        nan="+".join(faults[infinite:]),
        overflow="+".join(faults[:infinite]),
        saturate="+".join(it for it in saturated if "weights" not in it and "loader" not in it),
        dtypes="float8_e4m3fn+float8_e5m2+float16" if eight_bits else "float32+float16+bfloat16",
        null_address=one_of_five(),
        truncated=one_of_five(),
    )


class Key(NamedTuple):
    """Names an execution."""

    rank: int | None
    step: int
    model: str | None
    op_name: str | None


class Story:
    """A workload, what is diagnosed of it, and what really happened.

    *replica* is a workload of as many ranks, which exchange only with each other. Of both, only *captured*
    ranks are known; those of the replica are counted behind the others.
    """

    def __init__(
        self, workload: Workload, replica: Workload | None = None, captured: set[int] | None = None
    ) -> None:
        self.workload = workload
        ranks = workload.ranks
        self._ran = {rank: workload.of_rank(rank) for rank in range(ranks)}
        if replica is not None:
            self._ran |= {ranks + rank: replica.of_rank(rank) for rank in range(ranks)}
        if captured is not None:
            self._ran = {rank: ran for rank, ran in self._ran.items() if rank in captured}
        rows = TensorRows(row for rank in self._ran for row in self._rows(rank))
        self.evidence: Evidence = gather(trace_of([rows]), KINDS)
        self.origins: Origins = find_origins(self.evidence)

    def key(self, origin: Origin) -> Key:
        trace, it = self.evidence.trace, self.evidence.executions
        number = origin.execution
        model, op_name = (
            trace.texts[column][codes[number]]
            for column, codes in (("model", it.model), ("op_name", it.op_name))
        )
        return Key(self.evidence.rank_of(number), int(it.step[number]), model, op_name)

    @cached_property
    def made(self) -> set[Key]:
        """The executions that are blamed."""
        return {self.key(it) for it in self.origins.found if it.blame is Blame.MADE}

    @cached_property
    def truth(self) -> dict[Key, Execution]:
        """Everything that ran on the ranks that were captured."""
        return {
            Key(rank, step, f"transformer_{it.model}", it.name): it
            for rank, ran in self._ran.items()
            for step in range(ran.steps)
            for it in truth_of(ran, step)
        }

    def culprits(self) -> Iterator[tuple[Key, Execution]]:
        """Yield the executions that really made something bad of clean inputs."""
        for key, it in self.truth.items():
            if is_culprit(it):
                yield key, it

    def can_be_known(self, key: Key, execution: Execution) -> bool | None:
        """Whether the dump proves that *execution* made its bad output.

        None if that depends on what is left of a damaged file.
        """
        if not self.is_whole(execution):
            return None if self._is_cut_off(execution) else False
        joint = self.workload.io_files == "joint" and not execution.collective
        answers = [
            self._covers(key, source, execution)
            for operand in (execution.inputs if joint else ())
            if is_overwritten(operand, execution)
            for source in operand.sources
        ]
        return False if False in answers else None if None in answers else True

    def _covers(self, key: Key, source: Source, reader: Execution) -> bool | None:
        """Whether every operator from one to the other is in the dump, and whole, on one stream."""
        if source.kind != "operator":
            return False
        between = [
            it
            for other, it in self.truth.items()
            if (other.rank, other.step) == (key.rank, key.step)
            and source.number <= it.number <= reader.number
        ]
        if len({it.stream for it in between}) > 1 or not all(it.dumped for it in between):
            return False
        return True if all(map(self.is_whole, between)) else None

    def is_whole(self, execution: Execution) -> bool:
        """Whether all tensors of *execution* are in the dump."""
        place = str(execution.number % self.workload.ops)
        return execution.dumped and place not in {self.workload.null_address, self.workload.truncated}

    def _is_cut_off(self, execution: Execution) -> bool:
        """Whether there is a part of *execution* in the dump: perhaps all inputs, and bad elements."""
        place = str(execution.number % self.workload.ops)
        return execution.dumped and place == self.workload.truncated != self.workload.null_address

    def _rows(self, rank: int) -> Iterator[TensorRow]:
        for file in self._ran[rank].expected_files(f"/dump{rank}"):
            rows = whole_file(replace(origin_of(file.name), rank=rank), file.data)
            yield from (row for row in rows if row.io is not None)


def is_culprit(execution: Execution) -> bool:
    """Whether an operator really made something bad of clean inputs."""
    if execution.collective and not {"nan", "overflow", "saturate"} & {*execution.injected}:
        return False
    return any(map(is_bad, execution.outputs)) and not any(map(is_bad, execution.inputs))


def is_bad(operand: Operand) -> bool:
    elements = math.prod(operand.shape)
    return operand.nan > 0 or operand.infinite > 0 or operand.saturated > SATURATED * elements


def is_overwritten(operand: Operand, execution: Execution) -> bool:
    return any(
        operand.address < it.address + it.bytes and it.address < operand.address + operand.bytes
        for it in execution.outputs
    )


def describe(story: Story, what: str, key: Any) -> str:
    return f"{what}: {key} in {story.workload}"
