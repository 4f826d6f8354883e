"""What one rank sends to another: tied by its bytes, because no number says which send a receive is of."""

from __future__ import annotations

import pytest
from tests.diagnosis.runs import Run, T

from dumpstream.diagnosis.origins import find_origins, find_spread

A, B, C, D = 0x1000, 0x2000, 0x3000, 0x4000
SENT = T(B, 20, nan=1)


def pipeline(received: T, *, senders: tuple[int, ...] = (0,)) -> Run:
    """Return a run in which *senders* send a clean tensor and one with a NaN, and rank 9 receives."""
    run = Run()
    for rank in senders:
        run.op("Mul.warm", [T(A, 1 + rank)], [T(C, 10 + rank)], task=1, rank=rank)
        run.op("HcomSend.first", [T(C, 10 + rank)], [], task=2, rank=rank)
        run.op("Mul.culprit", [T(A, 1 + rank)], [SENT], task=3, rank=rank)
        run.op("HcomSend.second", [SENT], [], task=4, rank=rank)
    run.op("HcomReceive.receive", [], [received], task=1, rank=9)
    return run.op("Add.next", [received], [T(D, 40, nan=9)], task=2, rank=9)


def test_a_received_nan_is_followed_to_the_rank_that_sent_the_same_bytes() -> None:
    run = pipeline(SENT._replace(address=A))
    evidence = run.evidence()
    origins = find_origins(evidence)

    assert run.blames()["receive"] == "passed: what rank 0 put in was bad"
    (origin,) = origins.found
    spread = find_spread(evidence, origins, origin)
    assert (evidence.rank_of(origin.execution), origin.blame) == (0, "made")
    assert [(it.rank, it.hops) for it in spread.victims] == [(9, 1)]
    assert spread.proven


def test_of_several_ranks_that_sent_the_same_it_is_not_certain_which_it_was() -> None:
    run = pipeline(SENT._replace(address=A), senders=(0, 1))
    evidence = run.evidence()
    origins = find_origins(evidence)

    assert run.blames()["receive"] == "passed: what ranks 0, 1 put in was bad"
    assert [evidence.rank_of(it.execution) for it in origins.found] == [0, 1]
    assert not any(find_spread(evidence, origins, it).proven for it in origins.found)


@pytest.mark.parametrize("received", [T(A, 77, nan=1), T(A, 20, nan=1, more={"hash": None})])
def test_a_nan_of_other_bytes_was_sent_by_another_rank(received: T) -> None:
    run = pipeline(received)

    assert run.blames()["receive"] == "unknown: what it received was sent by a rank that is not known"
    # Receives do not tell how far another rank has come, so the operator that is known comes first.
    assert [it.blame for it in run.origins().found] == ["made", "unknown"]


def test_nothing_but_nans_may_have_been_sent_by_any_rank() -> None:
    every = T(B, 20, nan=16)
    run = Run().op("Mul.culprit", [T(A, 1)], [every], task=1).op("HcomSend.send", [every], [], task=2)
    run.op("HcomReceive.receive", [], [every], task=1, rank=9)

    reason = "it may be what rank 0 sent, but other tensors have the same bytes"
    assert run.blames()["receive"] == f"unknown: {reason}"
    assert [it.blame for it in run.origins().found] == ["made"]
