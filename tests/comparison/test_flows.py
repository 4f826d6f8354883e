"""The first divergence of simulated runs is the operator that was perturbed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.conftest import CaptureBuilder, CollectionBuilder

from dumpstream import Agreement, Comparison, Role, compare
from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Execution, Workload, executions

_STEPS = 3
_FLOW = Workload(flow="on", models=1, ops=12, steps=_STEPS, tensor_bytes="300-2000")
_SHARED = replace(_FLOW, ranks=3, op_types="MatMulV2+Relu+HcomAllReduce+LayerNorm+Add")


def _write(workload: Workload, path: Path) -> Path:
    """Leave a capture of all ranks of *workload*, as a collector does."""
    collection = CollectionBuilder(path)
    for rank in range(workload.ranks):
        capture = collection.begin(rank=rank, pid=rank + 1)
        _fill(capture, workload.of_rank(rank))
        collection.end(capture)
    return collection.close()


def _fill(capture: CaptureBuilder, workload: Workload) -> None:
    for step in range(_STEPS):
        for file in workload.expected_files("/dump", step):
            capture.add(file.name, file.data, Verdict.COMPLETE)


def _compared(workload: Workload, perturb: str, directory: str) -> Comparison:
    mine = _write(replace(workload, perturb=perturb), Path(directory) / "mine")
    return compare(mine, _write(workload, Path(directory) / "golden"))


def _truth(workload: Workload, step: int, number: int) -> Execution:
    return [*executions(workload, step)][number]


def _is_visible(execution: Execution) -> bool:
    """Whether a relative error of the first output can be seen: it has floats."""
    return execution.dumped and execution.outputs[0].dtype in {1, 2, 27}


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**20),
    number=st.integers(0, _FLOW.ops - 1),
    step=st.integers(0, _STEPS - 1),
    io_files=st.sampled_from(["joint", "separate"]),
)
def test_the_first_divergence_is_the_operator_that_was_perturbed(
    seed: int, number: int, step: int, io_files: str
) -> None:
    workload = replace(_FLOW, seed=seed, io_files=io_files)
    culprit = _truth(workload, step, number)
    assume(_is_visible(culprit))

    with (
        TemporaryDirectory() as directory,
        _compared(workload, f"{number}@{step}:0.5", directory) as comparison,
    ):
        rows = [*comparison]
        first = comparison.summary.first

    assert first is not None
    assert (first.op_name, first.step, first.io) == (culprit.name, step, "output")
    in_place = any(operand.in_place for operand in culprit.inputs) and io_files == "joint"
    assert first.role is (Role.UNDECIDED if in_place else Role.ADDED)
    assert {row.verdict for row in rows if row.step is not None and row.step < step} <= {Agreement.IDENTICAL}


@settings(max_examples=15)
@given(seed=st.integers(0, 2**20), number=st.integers(0, 11), rank=st.integers(0, 2))
def test_an_error_of_one_rank_is_found_there_although_collectives_spread_it(
    seed: int, number: int, rank: int
) -> None:
    workload = replace(_SHARED, seed=seed, io_files="separate")
    culprit = _truth(workload.of_rank(rank), 1, number)
    assume(not culprit.collective and _is_visible(culprit))

    perturb = f"rank{rank}:{number}@1:0.5"
    with TemporaryDirectory() as directory, _compared(workload, perturb, directory) as comparison:
        ranks = {row.rank for row in comparison if row.verdict is Agreement.DIFFERENT}
        first = comparison.summary.first

    assert first is not None
    assert (first.rank, first.op_name, first.step, first.role) == (rank, culprit.name, 1, Role.ADDED)
    assert rank in ranks


def test_a_run_agrees_with_itself(tmp_path: Path) -> None:
    with _compared(_SHARED, "", str(tmp_path)) as comparison:
        verdicts = {row.verdict for row in comparison}

    assert verdicts == {Agreement.IDENTICAL}
    assert comparison.summary.agrees


@pytest.mark.parametrize("amount", ["1e-9", "0.0"])
def test_an_error_below_what_the_types_can_hold_is_not_a_difference(amount: str, tmp_path: Path) -> None:
    with _compared(_FLOW, f"5@1:{amount}", str(tmp_path)) as comparison:
        assert not [row for row in comparison if row.verdict is Agreement.DIFFERENT]
