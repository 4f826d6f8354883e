"""Bad values that come from another rank: by collectives, never by clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.diagnosis.runs import Run, T

from dumpstream.diagnosis.answer import answer
from dumpstream.diagnosis.origins import Victim, find_origins, find_spread
from dumpstream.diagnosis.subject import Subject

if TYPE_CHECKING:
    from dumpstream.diagnosis.report import Diagnosis

A, B, C, D = 0x1000, 0x2000, 0x3000, 0x4000


def job(bad: int | None, *, steps: int = 1) -> Run:
    """Three ranks that exchange in the last step what rank *bad* spoils."""
    run = Run()
    for step in range(steps):
        for rank in range(3):
            nan = int(rank == bad and step == steps - 1)
            reduced = int(bad is not None and step == steps - 1)
            mine, shared = 10 * step + rank + 500 * nan, 1000 * step + reduced
            run.op(
                "Mul.a",
                [T(A, 100 + 10 * step + rank)],
                [T(B, 200 + mine, nan=nan)],
                task=1,
                rank=rank,
                step=step,
            )
            run.op(
                "HcomAllReduce.b",
                [T(B, 200 + mine, nan=nan)],
                [T(C, 5000 + shared, nan=reduced)],
                task=2,
                rank=rank,
                step=step,
                apart=True,
            )
            run.op(
                "Add.c",
                [T(C, 5000 + shared, nan=reduced)],
                [T(D, 300 + mine, nan=reduced)],
                task=3,
                rank=rank,
                step=step,
            )
    return run


def diagnosed(run: Run) -> Diagnosis:
    evidence = run.evidence()
    subject = Subject("run", evidence.trace)  # type: ignore[arg-type]  # nothing is read from it
    return answer(subject, evidence, find_origins(evidence), read_bytes=False)


def test_what_an_all_reduce_brought_is_followed_to_the_rank_that_put_it_in() -> None:
    run = job(2)
    evidence = run.evidence()
    origins = find_origins(evidence)

    (origin,) = origins.found
    assert (evidence.rank_of(origin.execution), origin.blame) == (2, "made")
    assert find_spread(evidence, origins, origin).victims == (Victim(None, 0, 1), Victim(None, 1, 1))


def test_the_sentence_says_it_all() -> None:
    assert diagnosed(job(2)).sentence == (
        "Rank 2 made the first NaN: step 0, operator a (Mul), output 0: 1 of 16 elements; "
        "its inputs are clean (input 0 from -1 to 1); it reached 2 other ranks through b."
    )


def test_nothing_bad_is_said_so() -> None:
    found = diagnosed(job(None))

    assert (found.found, found.sentence) == (False, "No NaN or infinity or overflow in 18 tensors.")


def test_the_json_has_the_promised_names() -> None:
    found = diagnosed(job(1)).as_json()

    assert {"found", "sentence", "origins", "next_config"} <= found.keys()
    assert {
        *("kind", "blame", "reason", "rank", "model", "step", "op_type", "op_name", "io", "index", "count"),
        *("bad", "first_index", "victims", "path", "confidence", "missing"),
    } <= found["origins"][0].keys()
    assert found["origins"][0]["victims"] == [0, 2]
    assert found["origins"][0]["path"] == ["a", "b"]


def test_a_rank_that_was_not_captured_leaves_it_open() -> None:
    run = job(2)
    run.rows[:] = [row for row in run.rows if row.rank != 2]

    (origin, _) = run.origins().found
    assert origin.blame == "unknown"
    assert origin.reason == "what these ranks put in is clean; another may have taken part"


def test_a_rank_whose_inputs_were_not_dumped_leaves_it_open() -> None:
    run = job(2)
    run.rows[:] = [row for row in run.rows if row.rank != 2 or row.op_type == "Add"]

    assert {it.blame for it in run.origins().found} == {"unknown"}


def test_two_ranks_at_once_are_independent() -> None:
    run = Run()
    for rank in range(2):
        run.op("Mul.a", [T(A, rank)], [T(B, 5 + rank, nan=1)], task=1, rank=rank)

    found = diagnosed(run)

    assert found.sentence.startswith("Rank 0 made one of 2 independent first NaNs: ")


def test_with_outputs_only_what_ran_before_a_collective_comes_first() -> None:
    run = job(2)
    run.rows[:] = [row for row in run.rows if row.io == "output"]

    found = diagnosed(run)

    assert found.sentence == (
        "Rank 2 has the first NaN in the dump: step 0, operator a (Mul), output 0: 1 of 16 elements; "
        "what made it is not known: only outputs were dumped."
    )


def test_that_no_other_rank_was_reached_is_said_only_if_it_is_known() -> None:
    alone = Run()
    for rank in range(2):
        alone.op("Mul.a", [T(A, rank)], [T(B, 5 + rank, nan=rank)], task=1, rank=rank)

    assert diagnosed(alone).sentence.endswith("; in the dump it reached no other rank.")


def test_several_infinities_are_called_so() -> None:
    run = Run()
    for rank in range(2):
        run.op("Mul.a", [T(A, rank)], [T(B, 5 + rank, more={"pos_inf": 1})], task=1, rank=rank)

    assert diagnosed(run).sentence.startswith("Rank 0 made one of 2 independent first infinities: ")


def test_streams_of_one_rank_may_both_have_been_first() -> None:
    run = Run()
    for stream in range(2):
        for task in range(2):
            run.op(f"Mul.{stream}{task}", [T(A, task)], [T(B, 5, nan=1)], task=task, stream=stream)

    assert diagnosed(run).sentence.startswith("Rank 0 made one of 2 independent first NaNs: ")


def test_the_next_configuration_asks_for_what_came_before() -> None:
    settings = (diagnosed(job(2, steps=4)).next_config or {})["dump"]

    assert settings["dump_mode"] == "all"
    assert settings["dump_step"] == "1-3"
    assert settings["dump_list"] == [{"model_name": "net", "layer": ["a"]}]


def test_the_next_configuration_names_no_operator_whose_name_the_runtime_may_have_altered() -> None:
    run = Run().op("Mul.net_a", [T(A, 1)], [T(B, 2, nan=1)], task=1)  # perhaps net/a

    settings = (diagnosed(run).next_config or {})["dump"]

    assert settings["dump_list"] == [{"model_name": "net"}]


def replicas(inputs: tuple[int, int, int, int], nan: int | None, *, captured: tuple[int, ...]) -> Run:
    """Two pairs of ranks, (0, 1) and (2, 3), that reduce *inputs* twice; rank *nan* puts a NaN in at last."""
    run = Run()
    for step in range(2):
        for rank in captured:
            pair = (0, 1) if rank < 2 else (2, 3)
            bad = step == 1 and nan in pair
            mine = int(bad and rank == nan)
            reduced = 10_000 + 1000 * step + sum(inputs[it] for it in pair) + (77 if bad else 0)
            run.op(
                "HcomAllReduce.b",
                [T(B, 100 * step + inputs[rank] + 7000 * mine, nan=mine)],
                [T(C, reduced, nan=int(bad))],
                task=2,
                rank=rank,
                step=step,
                apart=True,
            )
    return run


def test_replicas_that_compute_the_same_are_not_taken_for_one_group() -> None:
    run = replicas((5, 6, 5, 6), nan=1, captured=(0, 2, 3))  # what rank 1 put in is not known

    assert {it.blame for it in run.origins().found} == {"unknown"}


def test_replicas_whose_members_were_not_all_captured_are_not_taken_for_one_group() -> None:
    run = replicas((5, 6, 6, 5), nan=1, captured=(0, 2))

    assert {it.blame for it in run.origins().found} == {"unknown"}


def test_groups_that_once_had_the_same_result_are_told_apart_by_the_others() -> None:
    run = replicas((5, 6, 7, 8), nan=1, captured=(0, 1, 2, 3))
    evidence = run.evidence()

    groups = {
        tuple(evidence.rank_of(it) for it in found.members)
        for found in evidence.exchanges.of_execution.values()
    }

    assert groups == {(0, 1), (2, 3)}
    assert all(it.proven for it in evidence.exchanges.of_execution.values())


def gathered(inputs: tuple[int, int], outputs: tuple[int, int], nan: tuple[int, int]) -> Run:
    """Two ranks whose all-gather leaves NaNs, although what they put in is clean."""
    run = Run()
    for rank in range(2):
        put = [T(B, inputs[rank])]
        got = [T(C, outputs[rank], nan=nan[rank], size=128)]
        run.op("HcomAllGather.b", put, got, task=2, rank=rank, apart=True)
    return run


def test_a_gather_made_it_if_there_is_no_room_for_what_another_rank_put_in() -> None:
    (origin, _) = gathered((1, 2), (9, 9), (1, 1)).origins().found

    assert (origin.blame, origin.reason) == ("made", "what every rank put in is clean")


def test_a_gather_of_ranks_that_put_in_the_same_or_got_something_else_is_not_blamed() -> None:
    for run in (gathered((1, 1), (9, 9), (1, 1)), gathered((1, 2), (9, 8), (1, 0))):
        assert {it.blame for it in run.origins().found} == {"unknown"}


@pytest.mark.parametrize(
    "op_type",
    [
        *("MatmulAllReduce", "aclnnMatmulAllReduceAddRmsNorm_7_L2", "AllGatherMatmul"),
        *("MatmulReduceScatterV2", "AlltoAllAllGatherBatchMatMul"),
        *("MoeDistributeDispatchV2", "MoeDistributeCombine"),
    ],
)
def test_an_operator_that_computes_and_exchanges_is_not_blamed_for_what_another_rank_put_in(
    op_type: str,
) -> None:
    def run(ranks: int) -> Run:
        found = Run()
        for rank in range(ranks):
            bad = int(rank == 1)
            found.op("Mul.a", [T(A, 10 + rank)], [T(B, 20 + rank, nan=bad)], task=1, rank=rank)
            inputs = [T(B, 20 + rank, nan=bad), T(C, 30 + rank)]
            found.op(f"{op_type}.b", inputs, [T(D, 40, nan=9)], task=2, rank=rank)
        return found

    assert run(2).blames() == {"a": "made: its inputs are clean", "b": "passed: what rank 1 put in was bad"}
    assert run(1).blames() == {"b": "unknown: what these ranks put in is clean; another may have taken part"}


def test_an_operator_is_no_collective_because_it_broadcasts_or_gathers() -> None:
    for op_type in ("BroadcastTo", "GatherV2", "ReduceSum", "CombinedNonMaxSuppression"):
        run = Run().op(f"{op_type}.a", [T(A, 1)], [T(B, 2, nan=1)], task=1)

        assert run.blames() == {"a": "made: its inputs are clean"}


def test_what_lay_in_the_memory_of_a_broadcast_before_is_not_what_it_sent() -> None:
    run = Run()
    for rank in (1, 2):  # rank 0, which sends, was not captured
        run.op("Mul.a", [T(B, 10 + rank)], [T(A, 20 + rank, nan=rank - 1)], task=1, rank=rank)
        inputs, outputs = [T(A, 20 + rank, nan=rank - 1)], [T(A, 30, nan=1)]
        run.op("HcomBroadcast.b", inputs, outputs, task=2, rank=rank, apart=True)

    reason = "unknown: what these ranks put in is clean; another may have taken part"
    assert run.blames() == {"a": "made: its inputs are clean", "b": reason}
