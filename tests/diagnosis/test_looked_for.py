"""What is looked for: other bad values count only if they led to it."""

from __future__ import annotations

import pytest
from tests.diagnosis.runs import Run, T

from dumpstream.diagnosis.badness import DEFAULT, Badness
from dumpstream.diagnosis.dataflow.trace import trace_of
from dumpstream.diagnosis.evidence import gather
from dumpstream.diagnosis.origins import find_origins

A, B, C, D, E = 0x1000, 0x2000, 0x3000, 0x4000, 0x5000
MASK = T(B, 2, more={"neg_inf": 4})


def origins_of(run: Run, *kinds: Badness) -> list[tuple[str | None, str]]:
    evidence = gather(trace_of([run.rows]), kinds)
    names = evidence.trace.texts["op_name"]
    found = find_origins(evidence).found
    return [(names[evidence.executions.op_name[it.execution]], it.reason) for it in found]


def masked(*, used: bool) -> Run:
    """Return a run with a mask of infinities, which an operator reads beside a NaN if it is *used*."""
    run = Run().op("MaskedFill.mask", [T(A, 1)], [MASK], task=1)
    run.op("SoftmaxV2.softmax", [MASK], [T(C, 3)], task=2)
    run.op("MatMulV2.culprit", [T(C, 3)], [T(D, 4, nan=1)], task=3)
    return run.op("Add.sum", [MASK, T(D, 4, nan=1)], [T(E, 5, nan=4)], task=4) if used else run


def test_infinities_that_led_to_no_nan_are_left_out_if_nans_are_looked_for() -> None:
    clean = "its inputs are clean"

    for run in (masked(used=False), masked(used=True)):
        assert origins_of(run, Badness.NAN) == [("culprit", clean)]
        assert origins_of(run, *DEFAULT) == [("mask", clean), ("culprit", clean)]


def test_an_infinity_that_became_a_nan_is_its_origin() -> None:
    run = Run().op("Exp.culprit", [T(A, 1)], [MASK], task=1).op("Sub.b", [MASK], [T(C, 3, nan=1)], task=2)

    assert origins_of(run, Badness.NAN) == [("culprit", "its inputs are clean")]


@pytest.mark.parametrize("nan", [0, 1])
def test_a_saturation_is_found_if_it_comes_of_a_nan_or_beside_one(nan: int) -> None:
    saturated = {"saturated": 0.5}
    run = Run().op("Mul.culprit", [T(A, 1)], [T(B, 2, nan=1, more=saturated if nan else {})], task=1)
    run.op("Cast.b", [T(B, 2, nan=1)], [T(C, 3, more=saturated)], task=2)

    assert origins_of(run, Badness.SATURATION) == [("culprit", "its inputs are clean")]


def test_what_is_bad_in_an_input_beside_the_output_that_lies_on_it_is_found() -> None:
    run = Run().op("Mul.a", [T(A, 1, nan=1, size=128)], [T(A, 2, size=64)], task=1)

    reason = "input 0 is bad where the operator has not written over it"
    assert origins_of(run, Badness.NAN) == [("a", reason)]


def test_a_larger_shape_is_no_drift() -> None:
    run = Run()
    for step in range(7):
        elements = 16 if step < 6 else 16 * 1000
        batch = {"count": elements, "l2norm": 0.5 * elements**0.5}
        tensor = T(B, 100 + step, size=4 * elements, more=batch)
        run.op("Mul.a", [T(A, step)], [tensor], task=1, step=step)

    assert origins_of(run, Badness.DRIFT) == []
