"""Two runs of one job: an operator is accused only if all that it read is known, and the same."""

from __future__ import annotations

from tests.diagnosis.runs import Run, T
from tests.diagnosis.test_ranks import job

from dumpstream.diagnosis.repeat import Repetition, compare_runs

A, B, C, D = 0x1000, 0x2000, 0x3000, 0x4000


def repeated(run: Run, again: Run) -> Repetition:
    return compare_runs(run.evidence(), again.evidence(), next(iter(run.origins().found), None))


def may_have_read_else(operator: str) -> str:
    return f"the first that differs is {operator}, which may have read something else."


def test_an_operator_that_made_something_else_of_the_same_inputs() -> None:
    found = repeated(job(2), job(None))

    assert (found.deterministic, found.parts_at) == (False, "a (rank 2, step 0)")


def test_a_collective_of_which_a_rank_is_missing_may_have_got_something_else() -> None:
    def run(reduced: int, nan: int) -> Run:
        found = Run().op("Mul.a", [T(A, 1)], [T(B, 2)], task=1)
        found.op("HcomAllReduce.b", [T(B, 2)], [T(C, reduced, nan=nan)], task=2, apart=True)
        return found.op("Add.c", [T(C, reduced, nan=nan)], [T(D, reduced + 1, nan=nan)], task=3)

    found = repeated(run(30, 1), run(40, 0))

    assert found.deterministic is None
    assert found.sentence.endswith(may_have_read_else("b (rank 0, step 0)"))


def test_an_operator_without_inputs_may_have_brought_something_else() -> None:
    def run(batch: int) -> Run:
        found = Run().op("Mul.a", [T(A, 1)], [T(B, 2)], task=1).op("GetNext.b", [], [T(C, batch)], task=2)
        return found.op("Add.c", [T(C, batch)], [T(D, batch + 1, nan=1)], task=3)

    assert repeated(run(30), run(40)).sentence.endswith(may_have_read_else("b (rank 0, step 0)"))


def test_of_outputs_alone_it_is_not_known_whether_inputs_were_the_same() -> None:
    def run(output: int) -> Run:
        return Run().op("Mul.a", [], [T(A, 1)], task=1).op("Add.b", [], [T(B, output)], task=2)

    found = repeated(run(30), run(40))

    assert found.deterministic is None
    assert found.sentence == f"The runs are not the same: {may_have_read_else('b (rank 0, step 0)')}"


def test_an_input_that_was_not_dumped_may_have_been_another() -> None:
    def run(output: int) -> Run:
        found = Run().op("Add.a", [T(A, 1), T(B, 2)], [T(C, 3)], task=1)
        return found.op("Add.a", [T(A, 1)], [T(C, output)], task=1, step=1)

    assert repeated(run(30), run(40)).deterministic is None
    assert repeated(run(30), run(30)) == (True, "Both runs are the same in 2 executions.", 2, None)
