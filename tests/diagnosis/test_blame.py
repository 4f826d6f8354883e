"""Who made a bad output: what the operator read must be known, whole and clean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.diagnosis.runs import Run, T

from dumpstream.diagnosis.badness import Badness
from dumpstream.diagnosis.dataflow.trace import trace_of
from dumpstream.diagnosis.evidence import gather
from dumpstream.diagnosis.limits import limits_of
from dumpstream.diagnosis.origins import find_origins

A, B, C, D = 0x1000, 0x2000, 0x3000, 0x4000


def test_an_operator_with_clean_inputs_made_its_bad_output() -> None:
    run = Run().op("Add.a", [T(A, 1), T(B, 2)], [T(C, 3, nan=1)], task=1)

    assert run.blames() == {"a": "made: its inputs are clean"}


def test_an_operator_with_a_bad_input_passed_it_on() -> None:
    run = Run().op("Add.a", [T(A, 1)], [T(B, 2, nan=1)], task=1)
    run.op("Mul.b", [T(B, 2, nan=1), T(C, 3)], [T(D, 4, nan=2)], task=2)

    assert run.blames() == {"a": "made: its inputs are clean", "b": "passed: input 0 was bad"}
    (origin,) = run.origins().found
    assert origin.execution == 0


def test_infinity_in_an_input_is_not_clean() -> None:
    infinite = T(A, 1, more={"neg_inf": 1})

    assert Run().op("Softmax.a", [infinite], [T(B, 2, nan=1)], task=1).blames() == {
        "a": "passed: input 0 was bad"
    }


def test_with_outputs_only_no_operator_is_blamed() -> None:
    run = Run().op("Add.a", [], [T(A, 1)], task=1).op("Mul.b", [], [T(B, 2, nan=1)], task=2)

    assert run.blames() == {"b": "unknown: only outputs were dumped"}


@pytest.mark.parametrize("op_type", ["GetNext", "Variable", "Const", "Other"])
def test_an_operator_without_inputs_may_have_brought_what_it_put_out(op_type: str) -> None:
    run = Run().op(f"{op_type}.a", [], [T(A, 1, nan=1)], task=1)
    run.op("Mul.b", [T(A, 1, nan=1)], [T(B, 2)], task=2)

    reason = "the dump has no inputs of it; it may have brought data, weights or constants"
    assert run.blames() == {"a": f"unknown: {reason}"}


@pytest.mark.parametrize("dtype", ["resource", "undefined", None])
def test_an_input_that_is_not_of_numbers_leaves_it_open(dtype: str | None) -> None:
    handle = T(A, 1, size=8, more={"dtype": dtype})
    run = Run().op("ReadVariableOp.a", [handle], [T(B, 2, nan=1)], task=1)

    assert run.blames() == {"a": "unknown: input 0 is not whole, or not of numbers"}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"bytes": 0, "nan": None, "hash": None}, "input 0 was not dumped"),
        ({"bytes": 60, "problem": "is cut off"}, "input 0 is not whole, or not of numbers"),
        ({"nan": None}, "input 0 is not whole, or not of numbers"),
        ({"address": None}, "it may have worked in place: the dump does not have all addresses"),
    ],
)
def test_an_input_that_is_not_known_leaves_it_open(more: dict[str, object], reason: str) -> None:
    run = Run().op("Add.a", [T(A, 1, more=more)], [T(B, 2, nan=1)], task=1)

    assert run.blames() == {"a": f"unknown: {reason}"}


def test_an_input_that_only_other_executions_have_was_not_dumped() -> None:
    run = Run().op("Add.a", [T(A, 1), T(B, 2)], [T(C, 3)], task=1)
    run.op("Add.a", [T(A, 1)], [T(C, 4, nan=1)], task=1, step=1)

    assert run.blames() == {"a": "unknown: one of its inputs was not dumped"}


def test_an_input_that_no_execution_has_leaves_a_gap_in_their_numbers() -> None:
    run = Run().op("Add.a", [T(A, 1, more={"index": 1})], [T(C, 3, nan=1)], task=1)

    assert run.blames() == {"a": "unknown: one of its inputs was not dumped"}


def test_an_input_that_may_have_drifted_leaves_a_drift_open() -> None:
    def blame(size: float) -> str:
        run = Run()
        for step in range(7):
            last = step == 6
            normal = {"l2norm": 2.0 + 0.01 * (step % 2)}
            inputs = [T(A, step, more={"l2norm": size} if last else normal)]
            output = T(B, 100 + step, more={"l2norm": 9.0} if last else normal)
            run.op("Mul.a", inputs, [output], task=1, step=step)
        (found,) = find_origins(gather(trace_of([run.rows]), [Badness.DRIFT])).judgements.values()
        return f"{found.blame}: {found.reason}"

    assert blame(2.0) == "made: its inputs are clean"
    assert blame(3.0) == "unknown: input 0 may have drifted, too"
    assert blame(5.0) == "passed: input 0 was bad"


@pytest.mark.parametrize(("size", "blame"), [(100, ["made: its inputs are clean"]), (200, [])])
def test_a_part_of_a_tensor_is_as_saturated_as_the_whole_is_at_least(size: int, blame: list[str]) -> None:
    part = {"saturated": 0.015, "bytes": 100, "problem": "is cut off"}
    run = Run().op("Mul.a", [T(A, 1)], [T(B, 2, size=size, more=part)], task=1)

    found = find_origins(gather(trace_of([run.rows]), [Badness.SATURATION])).judgements.values()

    assert [f"{it.blame}: {it.reason}" for it in found] == blame


def test_an_overflow_that_only_a_record_shows_is_left_open_if_files_were_lost() -> None:
    run = Run().op("Mul.a", [T(A, 1)], [T(B, 2)], task=1)

    def blame(*, lossy: bool) -> str:
        evidence = gather(
            trace_of([run.rows]),
            others=lambda _: {Badness.OVERFLOW: np.array([False, True])},
            lossy=lossy,
        )
        (found,) = find_origins(evidence).judgements.values()
        return f"{found.blame}: {found.reason}"

    assert blame(lossy=False) == "made: its inputs are clean"
    assert blame(lossy=True).startswith(
        "unknown: files were lost, perhaps those of an operator that overflow"
    )


# Files of their own for inputs


def test_where_inputs_have_files_of_their_own_one_may_be_missing() -> None:
    run = Run().op("Mul.a", [T(A, 1)], [T(B, 2)], task=1, apart=True)
    run.op("Add.b", [], [T(C, 3, nan=1)], task=2)

    reason = "the dump has no inputs of it; it may have brought data, weights or constants"
    assert run.blames() == {"b": f"unknown: {reason}"}


def passes(lost: set[int], *, step: int | None, name: str = "Add.a", between: bool = True) -> Run:
    """Return a run of an operator that ran twice, first with clean and then with bad inputs.

    Of its four files those in *lost* are missing.
    """
    run = Run()
    for number in range(2):
        run.op(name, [T(A, 1, nan=number)], [T(B, 3, nan=number)], task=1, step=step, apart=True)
        if between:
            run.op("Mul.b", [T(C, 4)], [T(D, 5)], task=2, step=step, apart=True)
    files = [*dict.fromkeys(row.file for row in run.rows if f".{name.split('.')[1]}." in row.file)]
    run.rows[:] = [row for row in run.rows if row.file not in {files[it] for it in lost}]
    return run


@pytest.mark.parametrize("step", [None, 0])
def test_files_of_two_passes_are_not_taken_for_one(step: int | None) -> None:
    found = passes({1, 2}, step=step).blames()

    assert "made" not in found["a"]


@pytest.mark.parametrize("step", [None, 0])
def test_files_of_one_pass_belong_together(step: int | None) -> None:
    assert passes(set(), step=step).blames() == {"a": "passed: input 0 was bad"}


@pytest.mark.parametrize("kept", [{0, 1, 2, 3, 4, 7}, {0, 2, 3, 4, 7}])
def test_files_of_two_processes_are_not_taken_for_one(kept: set[int]) -> None:
    # Two processes that wrote into one directory call Add twice each; one reads clean values, one bad ones.
    run = Run()
    for call in range(2):
        for nan in range(2):
            of_call = (T(A, 1, nan=nan), T(B, 2, nan=nan))
            run.op(f"aclnnAdd_{call}_L2.aclnnAdd", of_call[:1], of_call[1:], task=1, step=None, apart=True)
    files = [*dict.fromkeys(row.file for row in run.rows)]
    run.rows[:] = [row for row in run.rows if row.file in {files[it] for it in kept}]

    assert "made" not in run.blames()["aclnnAdd"]


@pytest.mark.parametrize(("lost", "blame"), [(0, "made"), (1, "unknown")])
def test_files_that_follow_each_other_are_of_one_pass_unless_others_were_lost(lost: int, blame: str) -> None:
    run = Run()
    for number in range(2):
        run.op("Mul.a", [T(A, 1)], [T(B, 2)], task=1, apart=True)
        run.op("Add.b", [T(B, 2)], [T(C, 3, nan=number)], task=2, apart=True)
    del run.rows[:lost]

    assert run.blames()["b"].partition(":")[0] == blame


def test_a_call_may_have_files_of_its_kernels_inside() -> None:
    run = Run()
    clean, bad = T(A, 1), T(B, 2, nan=1)
    files = Run().op("aclnnAdd_3_L2.aclnnAdd", [clean], [bad], task=1, step=None, apart=True).rows
    inner = Run().op("aclnnAdd_3_L0.Add", [clean], [bad], task=1, step=None, apart=True).rows
    for time, row in enumerate([files[0], *inner, files[1]]):
        file = row.file.rpartition(".")[0] + f".{10**15 + time}"
        run.rows.append(replace(row, file=file, timestamp=10**15 + time))

    assert run.blames() == dict.fromkeys(["aclnnAdd", "Add"], "made: its inputs are clean")


# In place


def in_place(*, between: int = 2, before: T = T(A, 1), stream: int = 1) -> dict[str | None, str]:  # noqa: B008 - a value
    """Return the blames of an operator that overwrites what another wrote, *between* tasks later."""
    run = Run().op("Mul.before", [T(D, 9)], [before], task=1, stream=stream)
    run.op("Other.next", [T(C, 7)], [T(B, 8)], task=2)
    run.op("Relu.a", [T(A, 2, nan=1)], [T(A, 2, nan=1)], task=1 + between)
    return run.blames()


def test_what_was_there_before_stands_in_for_an_overwritten_input() -> None:
    assert in_place()["a"] == "made: its inputs are clean; what it overwrote was clean before"


def test_what_was_bad_before_was_passed_on() -> None:
    assert in_place(before=T(A, 1, nan=1))["a"] == "passed: input 0 was bad before it was overwritten"


def test_a_task_that_is_not_in_the_dump_may_have_written_in_between() -> None:
    reason = "and operators that were not dumped may have written it in between"

    assert in_place(between=3)["a"] == f"unknown: input 0 was overwritten by its output, {reason}"


def test_the_order_of_another_stream_is_not_known() -> None:
    assert in_place(stream=2)["a"].startswith("unknown: input 0 was overwritten by its output, and operators")


@pytest.mark.parametrize(
    "again",
    [
        {"name": "Relu.a", "task": 3},  # in a loop, or of another process
        {"name": "Mul.before", "task": 1},
        {"name": "Add.c", "task": 9, "step": 2},  # of several processes, so that those before may be, too
    ],
)
def test_a_task_that_came_twice_proves_nothing(again: dict[str, Any]) -> None:
    run = Run()
    for _ in range(1 + (again["task"] == 9)):
        run.op(inputs=[T(C, 5)], outputs=[T(D, 6)], **again)
    run.op("Mul.before", [T(D, 9)], [T(A, 1)], task=1)
    run.op("Other.next", [T(C, 7)], [T(B, 8)], task=2)
    run.op("Relu.a", [T(A, 2, nan=1)], [T(A, 2, nan=1)], task=3)

    assert run.blames()["a"].endswith("operators that were not dumped may have written it in between")


def test_kernels_of_one_task_are_in_the_dump_together() -> None:
    run = Run().op("Mul.before", [T(D, 9)], [T(A, 1)], task=1)
    run.op("Mul.before_kernel", [T(D, 9)], [T(A, 1)], task=1)
    run.op("Relu.a", [T(A, 2, nan=1)], [T(A, 2, nan=1)], task=2)

    assert run.blames()["a"].startswith("made")


def test_an_operator_in_between_whose_outputs_are_not_all_there_may_have_written_it() -> None:
    run = Run().op("Other.next", [T(C, 7)], [T(B, 8), T(D, 1)], task=2, step=1)
    run.op("Mul.before", [T(D, 9)], [T(A, 1)], task=1)
    run.op("Other.next", [T(C, 7)], [T(B, 8)], task=2)
    run.op("Relu.a", [T(A, 2, nan=1)], [T(A, 2, nan=1)], task=3)

    assert run.blames()["a"].endswith("operators that were not dumped may have written it in between")


def test_an_output_that_is_not_there_may_lie_on_an_input() -> None:
    run = Run().op("Split.a", [T(A, 1)], [T(B, 2, nan=1, more={"index": 1})], task=1)

    reason = "it may have worked in place: one of its outputs was not dumped"
    assert run.blames() == {"a": f"unknown: {reason}"}


def test_what_was_there_in_another_step_says_nothing() -> None:
    run = Run().op("Mul.before", [T(D, 9)], [T(A, 1)], task=1)
    run.op("Relu.a", [T(A, 2, nan=1)], [T(A, 2, nan=1)], task=2, step=1)

    assert run.blames()["a"].endswith("and what was there before is of another step")


def test_memory_that_was_never_written_says_nothing() -> None:
    run = Run().op("Relu.a", [T(A, 2, nan=1)], [T(A, 2, nan=1)], task=2)

    assert run.blames()["a"].endswith("and what was there before is not in the run")


def test_an_input_dumped_before_with_other_bytes_was_not_overwritten_yet() -> None:
    run = Run().op("Relu.a", [T(A, 1)], [T(A, 2, nan=1)], task=2, apart=True)

    assert run.blames() == {"a": "made: its inputs are clean"}


def test_a_bad_input_beside_an_overwritten_one_is_enough() -> None:
    run = Run().op("Add.a", [T(A, 2, nan=1), T(B, 3, nan=1)], [T(A, 2, nan=1)], task=2)

    assert run.blames() == {"a": "passed: input 1 was bad"}


def test_a_part_of_the_memory_counts_too() -> None:
    run = Run().op("Add.a", [T(A, 1), T(B, 3)], [T(A + 32, 2, nan=1)], task=2)

    assert run.blames()["a"].startswith("unknown: input 0 was overwritten by its output")


# Where bad values enter


def test_a_bad_input_that_no_operator_wrote_is_where_they_enter() -> None:
    run = Run().op("MatMul.a", [T(A, 1), T(B, 2, nan=4)], [T(C, 3, nan=9)], task=1)

    (origin,) = run.origins().found
    assert origin.blame == "unknown"
    assert origin.reason.startswith("input 1 was bad already, and no operator in the run wrote it: weights")


def test_an_operator_that_was_not_dumped_is_told_by_other_bytes() -> None:
    run = Run().op("Mul.a", [T(B, 2)], [T(A, 1)], task=1)
    run.op("Add.b", [T(A, 5, nan=1)], [T(C, 3, nan=1)], task=3)

    (origin,) = run.origins().found
    assert (origin.blame, origin.reason) == (
        "unknown",
        "input 0 was bad, and an operator that was not dumped wrote it",
    )


def test_later_steps_may_have_what_an_earlier_one_left() -> None:
    run = Run().op("Mul.a", [T(B, 2)], [T(A, 1, nan=1)], task=1)
    run.op("Mul.a", [T(B, 5, nan=7)], [T(A, 6, nan=1)], task=1, step=1)

    origins = run.origins()
    assert [it.blame for it in origins.found] == ["made"]
    assert origins.later == 1


def test_an_operator_that_came_twice_as_the_same_task_is_told() -> None:
    run = Run()
    for number in range(2):
        run.op("Mul.a", [T(A, number)], [T(B, 5 + number)], task=1)

    (note,) = limits_of(run.evidence())

    assert note == (
        "rank 0: operators came twice as the same task of a step; they are in a loop, or files of several "
        "ranks are mixed: give every rank a directory of its own"
    )
