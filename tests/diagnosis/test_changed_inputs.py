"""Inputs that are clean in the dump, and were not when the operator read them."""

from __future__ import annotations

from time import perf_counter

import pytest
from tests.diagnosis.runs import Run, T

from dumpstream.diagnosis.origins import find_origins

A, B, C = 0x1000, 0x2000, 0x3000
NAN, CLEAN = T(B, 2, nan=1), T(B, 9)


def blame_of_reader(run: Run) -> str:
    return run.blames()["reader"]


def begun() -> Run:
    """Return a run whose first operator leaves NaNs at B."""
    return Run().op("Mul.a", [T(A, 1)], [NAN], task=1)


UNKNOWN = "unknown: input 0 may have been bad, and changed while it ran"
MADE = "made: its inputs are clean"


def test_an_operator_of_another_stream_may_have_changed_the_input_before_it_was_dumped() -> None:
    before = begun().op("Add.other", [T(A, 1)], [CLEAN], task=1, stream=2)
    before.op("Exp.reader", [CLEAN], [T(C, 3, nan=1)], task=2)
    behind = begun().op("Exp.reader", [CLEAN], [T(C, 3, nan=1)], task=2)
    behind.op("Add.other", [T(A, 1)], [CLEAN], task=1, stream=2)

    assert blame_of_reader(before) == blame_of_reader(behind) == UNKNOWN
    (origin,) = behind.origins().found
    assert origin.execution == 0


def test_an_operator_may_have_changed_its_input_itself() -> None:
    run = begun().op("Exp.reader", [CLEAN], [T(C, 3, nan=1)], task=2)

    assert blame_of_reader(run) == UNKNOWN


def test_an_operator_that_was_not_dumped_has_changed_the_input() -> None:
    run = begun().op("Exp.reader", [CLEAN], [T(C, 3, nan=1)], task=3)

    assert blame_of_reader(run) == MADE


def test_an_operator_that_was_dumped_has_changed_the_input() -> None:
    run = begun().op("Add.b", [T(A, 1)], [CLEAN], task=2)

    assert blame_of_reader(run.op("Exp.reader", [CLEAN], [T(C, 3, nan=1)], task=3)) == MADE


def test_an_operator_that_changed_half_of_the_input_may_have_changed_what_was_bad() -> None:
    run = begun().op("Add.b", [T(A, 1)], [T(B, 9, size=32)], task=2)

    assert blame_of_reader(run.op("Exp.reader", [CLEAN], [T(C, 3, nan=1)], task=3)) == MADE


def test_a_part_of_a_bad_tensor_may_be_clean() -> None:
    part, larger = T(B, 9, size=32), T(B, 9, size=128)

    assert blame_of_reader(begun().op("Exp.reader", [part], [T(C, 3, nan=1)], task=2)) == MADE
    assert blame_of_reader(begun().op("Exp.reader", [larger], [T(C, 3, nan=1)], task=2)) == UNKNOWN


@pytest.mark.parametrize("second", [T(B, 2), T(B, 7, size=32)])
def test_an_operator_may_have_written_the_same_place_twice(second: T) -> None:
    run = Run().op("Mul.a", [T(A, 1)], [NAN, second], task=1)

    assert blame_of_reader(run.op("Exp.reader", [CLEAN], [T(C, 3, nan=1)], task=2)) == UNKNOWN


def test_many_operators_with_bad_outputs_of_clean_inputs_are_judged_in_seconds() -> None:
    run = Run()
    for number in range(5000):
        place = A + 0x100 * number
        run.op(f"Mul.a{number}", [T(place, 1)], [T(place + 0x80, 2, nan=1)], task=number)
    evidence = run.evidence()

    start = perf_counter()
    found = find_origins(evidence).found

    assert len(found) == 5000
    assert perf_counter() - start < 20  # a minute and a half if each looks through all that ran before
