"""Which output is which later input."""

from __future__ import annotations

from tests.diagnosis.runs import Run, T

from dumpstream.diagnosis.dataflow.flow import Link
from dumpstream.diagnosis.dataflow.memory import Memory, Span

A, B, C = 0x1000, 0x2000, 0x3000


def links(run: Run) -> list[tuple[int, int, str]]:
    """Return the edges: the row that was read, that it is from, and how that is known."""
    flow = run.evidence().flow
    columns = (flow.readers, flow.sources, flow.links)
    return [
        (reader, source, Link(link).name)
        for reader, source, link in zip(*(it.tolist() for it in columns), strict=True)
    ]


def test_the_same_bytes_at_the_same_address_are_the_same_tensor() -> None:
    run = Run().op("Mul.a", [T(B, 1)], [T(A, 2)], task=1).op("Add.b", [T(A, 2)], [T(C, 3)], task=2)

    assert links(run) == [(2, 1, "PROVEN")]


def test_other_bytes_at_the_same_address_are_not() -> None:
    run = Run().op("Mul.a", [T(B, 1)], [T(A, 2)], task=1).op("Add.b", [T(A, 9)], [T(C, 3)], task=2)

    assert links(run) == []


def test_the_hash_of_a_constant_proves_nothing() -> None:
    zeros = T(A, 2, more={"zero": 16, "std": 0.0})
    run = Run().op("Mul.a", [T(B, 1)], [zeros], task=1).op("Add.b", [zeros], [T(C, 3)], task=2)

    assert links(run) == [(2, 1, "SUGGESTED")]


def test_the_last_that_wrote_counts() -> None:
    run = Run().op("Mul.a", [T(B, 1)], [T(A, 2)], task=1)
    run.op("Mul.b", [T(B, 1)], [T(A, 4)], task=2).op("Add.c", [T(A, 2)], [T(C, 3)], task=3)

    assert links(run) == [(2, 0, "SAME")]


def test_a_part_and_a_join_are_suggested() -> None:
    run = Run().op("Split.a", [T(B, 1)], [T(A, 2), T(A + 64, 3)], task=1)
    run.op("Add.b", [T(A + 32, 4, size=32), T(A, 5, size=128)], [T(C, 6)], task=2)

    assert links(run) == [(3, 1, "SUGGESTED"), (4, 1, "SUGGESTED"), (4, 2, "SUGGESTED")]


def test_processes_have_memory_of_their_own() -> None:
    run = Run().op("Mul.a", [T(B, 1)], [T(A, 2)], task=1).op("Add.b", [T(A, 2)], [T(C, 3)], task=2, rank=1)

    assert links(run) == []


def test_memory_keeps_what_is_left_of_a_span() -> None:
    memory = Memory()
    memory.write(0, 100, 1)
    memory.write(40, 60, 2)
    memory.write(90, 120, 3)

    assert memory.read(0, 200) == [Span(0, 40, 1), Span(40, 60, 2), Span(60, 90, 1), Span(90, 120, 3)]
    assert memory.read(120, 130) == []
    memory.write(0, 130, 4)
    assert memory.read(5, 6) == [Span(5, 6, 4)]
