"""Bad values that come from another rank: by collectives, never by clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.diagnosis.runs import Run, T

from dumpstream.diagnosis.answer import answer
from dumpstream.diagnosis.origins import find_origins, find_spread
from dumpstream.diagnosis.repeat import compare_runs
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
    return answer(subject, evidence, find_origins(evidence), first_index=lambda *_: None)


def test_what_an_all_reduce_brought_is_followed_to_the_rank_that_put_it_in() -> None:
    run = job(2)
    evidence = run.evidence()
    origins = find_origins(evidence)

    (origin,) = origins.found
    assert (evidence.rank_of(origin.execution), origin.blame) == (2, "made")
    assert find_spread(evidence, origins, origin).victims == ((0, 1), (1, 1))


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


def test_the_next_configuration_asks_for_what_came_before() -> None:
    settings = (diagnosed(job(2, steps=4)).next_config or {})["dump"]

    assert settings["dump_mode"] == "all"
    assert settings["dump_step"] == "1-3"
    assert settings["dump_list"] == [{"model_name": "net", "layer": ["a"]}]


def test_a_collective_read_what_every_rank_put_in() -> None:
    bad, clean = job(2).evidence(), job(None).evidence()

    found = compare_runs(bad, clean, find_origins(bad).found[0])

    assert (found.deterministic, found.parts_at) == (False, "a (rank 2, step 0)")
