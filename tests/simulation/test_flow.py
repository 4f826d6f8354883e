"""Operators of a data flow read what earlier ones wrote, in a memory that is reused."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.simulation.flows import before, downstream, runs

from dumpstream.simulation import Execution, SimulatedRuntime, Workload, executions

if TYPE_CHECKING:
    from .conftest import Dump

SMALL = Workload(flow="on", ops=20, tensor_bytes="400-3000", steps=3)
COLLECTIVES = (
    "MatMulV2+Relu+HcomAllReduce+LayerNorm+Add+HcomAllGather+ApplyAdam+HcomReduceScatter+HcomBroadcast+Mul"
    "+HcomReceive"
)
SHARED = replace(SMALL, op_types=COLLECTIVES, models=1, ops=30, ranks=3)
SEEDS = range(12)


def truth_of(workload: Workload, step: int = 0) -> list[Execution]:
    return list(executions(workload, step))


@pytest.mark.parametrize("workload", [SMALL, SHARED, replace(SMALL, single_ops=6)], ids=["1", "3", "calls"])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_input_is_what_was_last_written_at_its_address(workload: Workload, seed: int) -> None:
    last = workload.ranks - 1
    workload = before(replace(workload, seed=seed).of_rank(last))
    for step in range(2):
        memory: dict[int, int] = {}
        for run in runs(workload, step):
            for truth, dumped in zip(run.truth.inputs, run.inputs, strict=True):
                places = range(truth.address, truth.address + truth.bytes)
                assert (dumped.address, len(dumped.data)) == (truth.address, truth.bytes)
                if truth.sources[0].kind != "operator" and truth.address not in memory:
                    assert not memory.keys() & places  # the host wrote it before the step
                    memory |= zip(places, dumped.data, strict=True)
                assert bytes(memory[place] for place in places) == dumped.data
            for dumped in run.outputs:
                memory |= enumerate(dumped.data, dumped.address)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_joint_file_shows_an_input_that_was_overwritten_as_it_is_afterwards(seed: int) -> None:
    workload = replace(SMALL, seed=seed)
    overwritten = 0
    for after, first in zip(runs(workload, 1), runs(before(workload), 1), strict=True):
        for place, truth in enumerate(after.truth.inputs):
            if truth.in_place:
                assert after.inputs[place][:2] == after.outputs[0][:2]
                overwritten += after.inputs[place].data != first.inputs[place].data
            else:
                assert after.inputs[place].data == first.inputs[place].data
    assert overwritten


def test_collectives_and_calls_dump_inputs_before_they_run() -> None:
    workload = replace(SHARED, op_types="MatMulV2+HcomAllReduce", single_ops=20).of_rank(1)
    ours = [run for run in runs(workload, 0) if run.truth.collective or run.truth.model == workload.models]
    overwritten = [run for run in ours if run.truth.inputs[0].in_place]

    assert {run.truth.collective for run in overwritten} == {True, False}
    assert all(run.inputs[0].address == run.outputs[0].address for run in overwritten)
    assert all(run.inputs[0].data != run.outputs[0].data for run in overwritten)


@pytest.mark.parametrize("workload", [SMALL, SHARED], ids=["1", "3"])
@pytest.mark.parametrize("seed", SEEDS)
def test_memory_is_reused_and_living_tensors_do_not_overlap(workload: Workload, seed: int) -> None:
    truth = truth_of(replace(workload, seed=seed))
    last = {(run.number, index): run.number for run in truth for index, _ in enumerate(run.outputs)}
    for run in truth:
        for operand in run.inputs:
            last |= {
                (source.number, source.output): run.number
                for source in operand.sources
                if source.kind == "operator"
            }
    living: dict[tuple[int, int], range] = {}
    addresses: Counter[int] = Counter()
    for run in truth:
        taken = {operand.address for operand in run.inputs if operand.in_place}
        for index, output in enumerate(run.outputs):
            ours = range(output.address, output.address + output.bytes)
            addresses[output.address] += 1
            for (number, _), theirs in living.items():
                if output.address in taken and theirs.start == output.address:
                    continue
                overlaps = ours.start < theirs.stop and theirs.start < ours.stop
                assert not overlaps, (run.number, number)
            if not (run.op_type.startswith("Apply")):
                living[run.number, index] = ours
        living = {key: places for key, places in living.items() if last[key] > run.number}
    assert max(addresses.values()) > 2


def test_seeds_give_other_graphs_with_the_same_names() -> None:
    graphs = [truth_of(replace(SMALL, seed=seed)) for seed in range(30)]

    shapes = {tuple(operand.sources for run in graph for operand in run.inputs) for graph in graphs}
    assert len(shapes) == len(graphs)
    assert {tuple(run.name for run in graph) for graph in graphs} == {
        tuple(run.name for run in truth_of(SMALL))
    }
    seen = [run for graph in graphs for run in graph]
    assert any(len(operand.sources) == 2 for run in seen for operand in run.inputs)
    assert any(operand.in_place for run in seen for operand in run.inputs)
    uses = Counter(
        (index, source.number, source.output)
        for index, graph in enumerate(graphs)
        for run in graph
        for operand in run.inputs
        for source in operand.sources
    )
    assert max(uses.values()) > 2  # residual connections and branches


def test_weights_and_batches_change_from_step_to_step() -> None:
    kinds: Counter[str] = Counter()
    for first, second in zip(runs(SMALL, 0), runs(SMALL, 1), strict=True):
        for truth, one, other in zip(first.truth.inputs, first.inputs, second.inputs, strict=True):
            assert one.address == other.address
            assert one.data != other.data or truth.bytes < 16
            kinds[truth.sources[0].kind] += 1
    assert kinds.keys() == {"operator", "loader", "weight"}


def test_any_step_may_be_asked_for() -> None:
    forward = [list(SHARED.expected_files("/dump", step)) for step in range(4)]

    with_gaps = [list(SHARED.expected_files("/dump", step)) for step in (3, 0, 2)]

    assert with_gaps == [forward[3], forward[0], forward[2]]
    whole = [file for files in forward for file in files]
    assert list(replace(SHARED, steps=4).expected_files("/dump")) == whole


@pytest.mark.parametrize("device_threads", [1, 5])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_run_dumps_what_is_expected(dump: Dump, device_threads: int, rank: int) -> None:
    workload = replace(SHARED, nan="3@1", slice_bytes=999, device_threads=device_threads).of_rank(rank)
    files = {file.name: file.data for file in workload.expected_files(dump.path)}

    with SimulatedRuntime(workload) as runtime:
        dump.begin()
        for _ in range(workload.steps):
            runtime.run(1)
        dump.finalize()

    assert dump.recorder.files() == files
    assert len(files) > workload.steps * workload.ops


def test_undumped_operators_run_and_are_not_dumped() -> None:
    workload = replace(SMALL, undumped="3+7")
    whole, partial = list(runs(SMALL, 1)), list(runs(workload, 1))

    left_out = {run.truth.name for run in partial if not run.truth.dumped}
    assert {name.split("_")[1] for name in left_out} == {"3", "7"}
    for one, other in zip(whole, partial, strict=True):
        if other.truth.dumped:
            assert [tensor.data for tensor in one.outputs] == [tensor.data for tensor in other.outputs]
        else:
            assert not other.inputs
            assert not other.outputs


@pytest.mark.parametrize(
    "op_types", ["Add", "Mul", "HcomAllReduce", "MatMulV2+Relu", "SoftmaxV2+Mul", COLLECTIVES]
)
def test_values_stay_finite_without_faults(op_types: str) -> None:
    workload = Workload(
        flow="on", models=1, ops=60, op_types=op_types, dtypes="float16", tensor_bytes="600-900", ranks=8
    )
    for step in (0, 60):
        for run in runs(workload, step):
            assert not any(tensor.bad.any() for tensor in run.outputs)
            assert any(np.any(tensor.values) for tensor in run.outputs)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_perturbation_changes_only_what_is_downstream(seed: int) -> None:
    workload = replace(SMALL, seed=seed, models=1, ops=24, dtypes="float32")
    number = seed + 4
    perturbed = replace(workload, perturb=f"{number}@1:0.01")
    assert truth_of(perturbed, 1)[number].injected == ("perturb",)
    for step in range(2):
        truth = truth_of(workload, step)
        pairs = zip(runs(before(workload), step), runs(before(perturbed), step), strict=True)
        changed = {
            one.truth.number
            for one, other in pairs
            if [tensor.data for tensor in one.outputs] != [tensor.data for tensor in other.outputs]
        }
        if step == 0:
            assert not changed
        else:
            assert number in changed <= downstream(truth, number)
    later = zip(runs(workload, 2), runs(perturbed, 2), strict=True)
    assert any(one.inputs[-1].data != other.inputs[-1].data for one, other in later)  # most likely a weight


def test_a_perturbation_is_a_share_of_the_first_output() -> None:
    workload = replace(SMALL, models=1, dtypes="float32")
    plain, wrong = (list(runs(replace(workload, perturb=text), 2))[4] for text in ("", "4@2:0.125"))

    assert np.array_equal(wrong.outputs[0].values, plain.outputs[0].values * np.float32(1.125))


def test_headers_carry_shapes_of_the_workload() -> None:
    workload = Workload(flow="on", models=1, shape="2x6x8", dtypes="float32")
    shapes = {operand.shape for run in truth_of(workload) for operand in run.outputs}

    assert (2, 6, 8) in shapes
    for run in runs(workload, 0):
        for truth, dumped in zip(run.truth.outputs, run.outputs, strict=True):
            assert truth.shape == dumped.array.shape
            assert truth.bytes == math.prod(truth.shape) * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flow=yes", "flow=yes: must be off or on"),
        ("perturb=3:0.5", "perturb needs flow=on"),
        ("flow=on,perturb=3", "perturb=3: must be 3:0.01"),
        ("flow=on,perturb=0.5:0.5", "perturb=0.5:0.5: must be"),
        ("flow=on,perturb=3:nan", "perturb=3:nan: must be"),
        ("undumped=3+", r"undumped=3\+: must be operators"),
        ("nan=loader", "loader and weights are for nan and overflow with flow=on"),
        ("flow=on,truncated=weights", "loader and weights are for nan"),
        ("flow=on,rank=2,ranks=2", "rank must be below ranks"),
        ("flow=on,shape=4x300", "last dimension of shape must be at most 256"),
        ("flow=on,ops=100000,tensor_bytes=1000000", "must not have more than 4 GiB: lower ops"),
        ("flow=on,tensor_bytes=9000000000", "a tensor must not have more than 4 GiB"),
        ("nan=rank1:", "nan=rank1:: must be a share"),
        ("nan=3+", r"nan=3\+: must be a share"),
        ("ranks=0", "ranks=0: must be a whole number from 1"),
    ],
)
def test_parse_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Workload.parse(text)


def test_without_a_flow_there_is_no_truth() -> None:
    with pytest.raises(ValueError, match="set flow=on"):
        next(executions(Workload(), 0))
