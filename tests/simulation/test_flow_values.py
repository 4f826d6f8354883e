"""Operators of a data flow compute what numpy computes, and bad values spread as they do there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.simulation.flows import Dumped, Run, before, runs

from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

TYPES = "MatMulV2+Relu+LayerNorm+Add+SoftmaxV2+GatherV2+Mul+Cast+Gelu"
COLLECTIVES = (
    "MatMulV2+HcomAllReduce+LayerNorm+HcomAllGather+Relu+HcomReduceScatter+HcomBroadcast+HcomReceive"
)
EPSILON = np.float32(1e-5)
#: How far a result of each type may be from that of numpy, which adds in another order.
TOLERANCES = {
    "float32": 2e-5,
    "float16": 2e-3,
    "bfloat16": 2e-2,
    "float8_e4m3fn": 0.13,
    "float8_e5m2": 0.26,
}


def layer_norm(inputs: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    x, gain, bias = inputs
    centred = x - x.mean(-1, keepdims=True, dtype=np.float32)
    variance = np.square(centred).mean(-1, keepdims=True, dtype=np.float32)
    return np.asarray(centred / np.sqrt(variance + EPSILON) * gain + bias, np.float32)


def softmax(inputs: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    powers = np.exp(inputs[0] - inputs[0].max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True), np.float32)


def relu(inputs: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.maximum(inputs[0], np.float32(0))


NUMPY: dict[str, Callable[[list[NDArray[np.float32]]], NDArray[Any]]] = {
    "MatMulV2": lambda inputs: inputs[0] @ inputs[1],
    "Add": lambda inputs: inputs[0] + inputs[1],
    "Mul": lambda inputs: inputs[0] * inputs[1],
    "Relu": relu,
    "Gelu": lambda inputs: np.where(inputs[0] < 0, inputs[0] * np.float32(0.1), inputs[0]),
    "LayerNorm": layer_norm,
    "SoftmaxV2": softmax,
    "GatherV2": lambda inputs: inputs[0][inputs[1].astype(int)],
    "Cast": lambda inputs: inputs[0],
}


def as_dtype(values: NDArray[Any], like: Dumped) -> NDArray[np.float32]:
    """Return *values* rounded to the type of *like*."""
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(like.array.dtype), np.float32)


def check_close(ours: NDArray[np.float32], theirs: NDArray[np.float32], dtype: str) -> None:
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    assert np.array_equal(np.isinf(ours), np.isinf(theirs))
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


def check(run: Run) -> None:
    inputs = [tensor.values for tensor in run.inputs]
    with np.errstate(all="ignore"):
        expected = NUMPY[run.truth.op_type](inputs)
    output = run.outputs[0]
    check_close(output.values, as_dtype(expected, output), str(output.array.dtype))


@pytest.mark.parametrize("fault", ["", "nan", "overflow"])
@pytest.mark.parametrize("dtypes", ["float32", "float16", "bfloat16", "float32+float16+bfloat16"])
@pytest.mark.parametrize("seed", range(3))
def test_results_are_those_of_numpy(fault: str, dtypes: str, seed: int) -> None:
    faults = {fault: "1@0"} if fault else {}
    workload = Workload(flow="on", seed=seed, models=1, ops=36, op_types=TYPES, dtypes=dtypes)
    workload = before(replace(workload, tensor_bytes="2000-9000", **faults))  # type: ignore[arg-type]
    bad = 0
    for run in runs(workload, 0):
        if run.truth.injected:
            continue
        check(run)
        bad += any(tensor.bad.any() for tensor in run.inputs)
    assert bool(bad) == bool(fault)


@pytest.mark.parametrize("dtypes", ["float8_e4m3fn", "float8_e5m2", "float32+float8_e4m3fn+float8_e5m2"])
@pytest.mark.parametrize("nan", ["", "1@0"])
def test_results_in_eight_bits_are_those_of_numpy(dtypes: str, nan: str) -> None:
    workload = Workload(flow="on", models=1, ops=36, op_types=TYPES, dtypes=dtypes, nan=nan)
    for run in runs(before(workload), 0):
        if not run.truth.injected:
            check(run)


@pytest.mark.parametrize(("dtype", "most"), [("float8_e4m3fn", 448), ("float8_e5m2", 57344)])
def test_results_that_eight_bits_cannot_hold_become_the_largest(dtype: str, most: int) -> None:
    workload = Workload(flow="on", models=1, ops=8, dtypes=dtype, perturb="0@0:1e6")

    first, second, *_ = runs(before(workload), 0)

    values = first.outputs[0].values
    assert first.truth.outputs[0].saturated == (abs(values) == most).sum() > 0
    assert abs(values).max() == most
    assert second.truth.inputs[0].saturated == first.truth.outputs[0].saturated
    assert not any(operand.saturated for operand in first.truth.inputs)


@pytest.mark.parametrize("fault", ["", "rank1:nan=0@1", "rank2:overflow=4@1"])
def test_collectives_exchange_between_ranks(fault: str) -> None:
    ranks = 3
    rank, _, selector = fault.partition(":")
    name, _, where = selector.partition("=")
    workload = before(
        Workload(flow="on", models=1, ops=24, op_types=COLLECTIVES, ranks=ranks, dtypes="float32")
    )
    if fault:
        workload = replace(workload, **{name: f"{rank}:{where}"})  # type: ignore[arg-type]
    seen = set()
    for step in range(2):
        for together in zip(*(runs(workload.of_rank(rank), step) for rank in range(ranks)), strict=True):
            first = together[0].truth
            if not first.collective:
                continue
            seen.add(first.op_type)
            inputs = [run.inputs[0].values for run in together]
            with np.errstate(all="ignore"):
                total = inputs[0] + inputs[1] + inputs[2]
            for number, run in enumerate(together):
                output = run.outputs[0].values
                expected = {
                    "HcomAllReduce": total,
                    "HcomAllGather": np.concatenate(inputs),
                    "HcomReduceScatter": total[len(output) * number :][: len(output)],
                    "HcomBroadcast": inputs[0],
                    "HcomReceive": inputs[number - 1],
                }[first.op_type]
                assert np.array_equal(output, expected, equal_nan=True)
    assert seen == {name for name in COLLECTIVES.split("+") if name.startswith("Hcom")}


def test_results_that_float16_cannot_hold_become_infinite() -> None:
    workload = Workload(flow="on", models=1, ops=8, dtypes="float16", perturb="0@0:1e5")

    first = next(iter(runs(workload, 0)))

    values = first.outputs[0].values
    assert first.truth.outputs[0].infinite == np.isinf(values).sum() > 0
    assert np.isfinite(values).any()
    assert not np.isnan(values).any()


def test_numbers_are_rounded_to_the_nearest_and_ties_to_even() -> None:
    """Cast tells how values of one type are written in another."""
    dtypes = "float32+float16+bfloat16+float8_e4m3fn+float8_e5m2"
    workload = Workload(
        flow="on", models=1, ops=90, op_types="Cast+MatMulV2", tensor_bytes="30000", dtypes=dtypes
    )
    pairs = set()
    for run in runs(before(workload), 0):
        if run.truth.op_type == "Cast":
            source, target = run.inputs[0].array, run.outputs[0].array
            assert np.array_equal(source.astype(target.dtype), target)
            pairs.add((str(source.dtype), str(target.dtype)))
    assert len({target for _, target in pairs}) == len(dtypes.split("+"))
