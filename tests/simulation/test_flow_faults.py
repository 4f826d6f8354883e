"""Faults of a data flow: where they are injected, and where they arrive."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.simulation.exceptions import NORM, dumps_below
from tests.simulation.flows import downstream, runs

from dumpstream import DumpFile
from dumpstream.simulation import Execution, Workload, executions

if TYPE_CHECKING:
    from .conftest import Dump

FLOW = Workload(flow="on", ops=16, tensor_bytes="400-3000", steps=4)
SHARED = replace(FLOW, models=1, op_types="MatMulV2+Relu+HcomAllReduce+LayerNorm", ranks=4)
TYPES = [
    "MatMulV2",
    "Relu",
    "LayerNorm",
    "Add",
    "SoftmaxV2",
    "GatherV2",
    "Mul",
    "Cast",
    "Gelu",
    "ApplyAdam",
    "HcomAllReduce",
    "HcomAllGather",
    "HcomReduceScatter",
    "HcomBroadcast",
    "HcomReceive",
]


def truth_of(workload: Workload, step: int) -> list[Execution]:
    return list(executions(workload, step))


def bad(truth: list[Execution]) -> set[int]:
    return {run.number for run in truth if any(output.nan for output in run.outputs)}


@pytest.mark.parametrize("seed", range(20))
def test_nan_flows_from_its_operator_to_those_downstream(seed: int) -> None:
    workload = replace(FLOW, seed=seed, models=1, nan="5@2")

    assert not bad(truth_of(workload, 0)) | bad(truth_of(workload, 1))
    truth = truth_of(workload, 2)
    assert truth[5].injected == ("nan",)
    assert 5 in bad(truth) <= downstream(truth, 5)
    assert [run.number for run in truth if run.makes_nan] == [5]


@pytest.mark.parametrize("seed", range(5))
def test_the_operator_that_overflows_makes_the_infinity(seed: int) -> None:
    workload = replace(FLOW, seed=seed, models=1, overflow="5@2")

    assert not any(run.makes_infinity for run in truth_of(workload, 1))
    assert next(run.number for run in truth_of(workload, 2) if run.makes_infinity) == 5


@pytest.mark.parametrize("op_type", ["HcomAllReduce", "HcomReceive"])
def test_a_collective_that_brings_an_infinity_has_not_made_it(op_type: str) -> None:
    workload = replace(
        SHARED, op_types=f"MatMulV2+Relu+{op_type}", overflow="rank2:1@1", tensor_bytes="40000"
    )
    ranks = [truth_of(workload.of_rank(rank), 1) for rank in range(4)]

    brought = [run for truth in ranks for run in truth if run.collective and run.outputs[0].infinite]
    assert {run.rank for run in brought} - {2}
    assert not any(run.makes_infinity for run in brought)
    assert [(run.rank, run.number) for truth in ranks for run in truth[:3] if run.makes_infinity] == [(2, 1)]


def test_the_truth_counts_what_the_dump_shows() -> None:
    workload = replace(FLOW, nan="5@2", overflow="9@2", io_files="separate")
    for run in runs(workload, 2):
        for truth, dumped in zip(
            [*run.truth.inputs, *run.truth.outputs], [*run.inputs, *run.outputs], strict=True
        ):
            assert truth.nan == np.isnan(dumped.values).sum()
            assert truth.infinite == np.isinf(dumped.values).sum()


def test_nan_gets_into_the_weights_of_the_next_step() -> None:
    workload = replace(FLOW, models=1, nan="0@1")

    first = truth_of(workload, 2)[0]

    weight = next(operand for operand in first.inputs if operand.sources[0].kind == "weight")
    assert weight.nan
    assert not weight.injected


@pytest.mark.parametrize("op_type", ["HcomAllReduce", "HcomAllGather", "HcomReceive"])
def test_nan_of_one_rank_reaches_the_others_through_a_collective(op_type: str) -> None:
    workload = replace(
        SHARED, op_types=f"MatMulV2+Relu+{op_type}+LayerNorm", nan="rank2:1@1", tensor_bytes="40000"
    )
    ranks = [truth_of(workload.of_rank(rank), 1) for rank in range(4)]

    assert [run.number for truth in ranks for run in truth if run.injected] == [1]
    assert [(run.rank, run.number) for truth in ranks for run in truth if run.makes_nan] == [(2, 1)]
    assert ranks[2][1].injected == ("nan",)
    reached = {rank for rank, truth in enumerate(ranks) if bad(truth[:4])}
    assert reached == ({2, 3} if op_type == "HcomReceive" else {0, 1, 2, 3})
    assert all(min(bad(truth)) == 2 for rank, truth in enumerate(ranks) if rank in reached - {2})


def test_faults_add_up_and_a_rank_that_is_named_has_only_its_own() -> None:
    workload = replace(SHARED, nan="1@1+5@1+rank1:0@1", overflow="rank1:3@1")
    injected = [
        {run.number: run.injected for run in truth_of(workload.of_rank(rank), 1) if run.injected}
        for rank in range(2)
    ]

    assert injected == [{1: ("nan",), 5: ("nan",)}, {0: ("nan",), 3: ("overflow",)}]


@pytest.mark.parametrize(("where", "kind"), [("loader", "loader"), ("weights", "weight")])
def test_nan_may_come_from_the_loader_or_be_in_weights(where: str, kind: str) -> None:
    workload = replace(FLOW, models=1, nan=f"{where}@2")

    assert not bad(truth_of(workload, 1))
    truth = truth_of(workload, 2)
    spoilt = [operand for run in truth for operand in run.inputs if operand.injected]
    assert {operand.sources[0].kind for operand in spoilt} == {kind}
    assert all(operand.nan for operand in spoilt)
    assert not any(run.injected or run.makes_nan for run in truth)
    assert bad(truth)


def test_nan_of_the_loader_is_what_a_data_operator_hands_on() -> None:
    workload = replace(FLOW, models=1, op_types="Data+Relu", nan="loader@0")

    data, relu = truth_of(workload, 0)[:2]

    assert data.injected == ("nan",)
    assert data.outputs[0].nan == relu.inputs[0].nan > 0
    assert not relu.injected


def test_a_fault_of_the_file_does_not_undo_one_of_the_values() -> None:
    workload = replace(FLOW, models=1, nan="5@1", truncated="5@1", offsets="5@1")

    faults = {file.fault for file in workload.expected_files("/dump", 1)}

    assert faults == {None, "truncated+nan+offsets"}
    assert truth_of(workload, 1)[5].makes_nan


def test_overflow_records_follow_the_infinities() -> None:
    workload = replace(FLOW, mode="overflow", models=1, overflow="4@1", single_ops=0)
    truth = truth_of(workload, 1)
    spoilt = {run.name for run in truth if any(one.nan or one.infinite for one in run.outputs)}

    names = [file.name for file in workload.expected_files("/dump", 1)]

    dumped = {name.split(".")[-4] for name in names}
    assert dumped == spoilt | {"Node_OpDebug"}
    assert len(names) == 2 * len(spoilt) > 2
    assert list(workload.expected_files("/dump", 0)) == []


def test_statistics_text_tells_of_bad_values() -> None:
    workload = replace(FLOW, models=1, nan="5@1", stats_text="5")
    text = next(file for file in workload.expected_files("/dump", 1) if file.name.endswith(".csv"))
    truth = truth_of(workload, 1)[5]

    header, *rows = (line.split(",") for line in text.data.decode().splitlines())

    counts = [int(row[header.index("Nan Count")]) for row in rows]
    assert counts == [operand.nan for operand in (*truth.inputs, *truth.outputs)]
    assert text.fault == "stats_text+nan"


def test_exception_dumps_have_the_values_of_the_operator_that_failed(dump: Dump) -> None:
    workload = replace(FLOW, models=1, fails="2@1", steps=2)

    dump.run(workload, dump_scene=NORM)

    (path,) = dumps_below(dump.path)
    failed = list(runs(workload, 1))[2]
    with DumpFile.open(path) as file:
        outputs = [bytes(file.bytes(tensor)) for tensor in file.tensors if str(tensor.io) == "output"]
    assert outputs == [tensor.data for tensor in failed.outputs]


def test_a_watched_output_is_what_its_operator_wrote_unless_it_is_overwritten() -> None:
    workload = Workload.parse("watch,flow=on,models=1")
    for step in range(2):
        written = {run.truth.name: run.outputs for run in runs(replace(workload, mode="model"), step)}
        for file in workload.expected_files("/dump", step):
            after, _, name = file.name.split(".")[-4].rpartition("_To_")
            overwritten = (
                step == 1 and name.startswith("layer_2_") and after.startswith(("layer_7", "layer_8"))
            )
            with DumpFile.open(file.data) as watched:
                (first, *_) = watched.tensors
                shown = bytes(watched.bytes(first))
            assert (shown != written[name][0].data) == overwritten
            assert first.address == written[name][0].address


@pytest.mark.parametrize("seed", range(40))
def test_in_a_random_job_only_the_operator_with_the_fault_makes_nan(seed: int) -> None:
    random = Random(seed)
    ranks, ops, step = random.randint(1, 8), random.randint(3, 25), random.randrange(3)
    rank, number = random.randrange(ranks), random.randrange(ops)
    workload = Workload(
        flow="on",
        seed=seed,
        models=1,
        ops=ops,
        op_types="+".join(random.choices(TYPES, k=random.randint(2, 8))),
        ranks=ranks,
        tensor_bytes="64-2000",
        nan=f"rank{rank}:{number}@{step}",
    )
    for current in range(step + 1):
        jobs = [truth_of(workload.of_rank(each), current) for each in range(ranks)]
        makers = [(run.rank, run.number) for job in jobs for run in job if run.makes_nan]
        assert makers == ([(rank, number)] if current == step else [])
