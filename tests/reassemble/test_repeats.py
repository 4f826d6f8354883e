from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dumpstream.format.verdict import Verdict
from dumpstream.reassemble import ReassemblyOptions

from .conftest import Runner, at, more

if TYPE_CHECKING:
    from dumpstream._native import Chunk


@pytest.mark.parametrize("order", [(0, 0, 5), (5, 5, 0), (5, 0, 5)], ids=["passed on", "held", "recalled"])
def test_repeated_chunk_is_counted_and_dropped(runner: Runner, order: tuple[int, ...]) -> None:
    pieces = {0: b"01234", 5: b"56789"}

    runner.feed(*(at(start, pieces[start]) for start in order), at(10, b"ab", is_last=True))

    verdict, data, file = runner.only
    assert (verdict, data) == (Verdict.UNPARSED, b"0123456789ab")
    assert (file.duplicates, file.dropped_bytes, file.chunks) == (1, 5, 4)


def test_repeated_callback_in_several_records_is_counted_once(runner: Runner) -> None:
    for sequence in (1, 2):
        runner.feed(at(0, b"0123", sequence=sequence, more=True), at(4, b"4567", sequence=sequence))

    runner.finish()

    verdict, data, file = runner.only
    assert (verdict, data) == (Verdict.NEVER_CLOSED, b"01234567")
    assert (file.duplicates, file.dropped_bytes, file.chunks) == (1, 8, 2)


def test_repeated_chunk_may_be_the_last(runner: Runner) -> None:
    runner.feed(at(0, b"01234567"), at(0, b"01234567", is_last=True))

    assert runner.only[:2] == (Verdict.UNPARSED, b"01234567")


@pytest.mark.parametrize("again", [at(0, b"XXXXX"), at(2, b"234"), at(3, b"345XX")])
def test_other_overlap_with_bytes_passed_on_gives_the_verdict(runner: Runner, again: Chunk) -> None:
    runner.feed(at(0, b"01234567"), again, more(b"89", is_last=True))

    verdict, data, file = runner.only
    assert (verdict, data) == (Verdict.OVERLAP, b"0123456789")
    assert (file.duplicates, file.dropped_bytes) == (0, len(again))


def test_new_bytes_behind_an_overlap_are_passed_on(runner: Runner) -> None:
    runner.feed(at(0, b"01234"), at(3, b"XX567", is_last=True))

    verdict, data, file = runner.only
    assert (verdict, data, file.dropped_bytes) == (Verdict.OVERLAP, b"01234567", 2)


@pytest.mark.parametrize(
    ("pieces", "verdict"),
    [
        ([(4, b"4567"), (6, b"6789")], Verdict.UNPARSED),
        ([(4, b"4567"), (6, b"XX89")], Verdict.OVERLAP),
        ([(6, b"67"), (4, b"456789")], Verdict.UNPARSED),
        ([(6, b"67"), (4, b"45X789")], Verdict.OVERLAP),
        ([(4, b"456789"), (6, b"6")], Verdict.UNPARSED),
        ([(4, b"456789"), (6, b"X")], Verdict.OVERLAP),
        ([(8, b"89"), (4, b"45"), (5, b"5678"), (4, b"456789")], Verdict.UNPARSED),
        ([(8, b"89"), (4, b"45"), (5, b"567X"), (4, b"456XXX")], Verdict.OVERLAP),
    ],
)
def test_overlap_with_held_bytes_is_compared_and_the_first_stays(
    runner: Runner, pieces: list[tuple[int, bytes]], verdict: Verdict
) -> None:
    runner.feed(*(at(*piece) for piece in pieces))
    runner.feed(at(0, b"0123"), more(b"", is_last=True))

    assert runner.only[:2] == (verdict, b"0123456789")


@pytest.mark.parametrize(
    ("chunk", "verdict"),
    [
        (b"012345", Verdict.UNPARSED),
        (b"0123XX", Verdict.OVERLAP),
        (b"0123456789", Verdict.UNPARSED),
        (b"0123X56789", Verdict.OVERLAP),
    ],
)
def test_chunk_in_order_that_runs_into_held_bytes_is_compared_with_them(
    runner: Runner, chunk: bytes, verdict: Verdict
) -> None:
    runner.feed(at(4, b"4567"))
    runner.feed(at(0, chunk), at(max(8, len(chunk)), b"89"[len(chunk[8:]) :], is_last=True))

    assert runner.only[:2] == (verdict, b"0123456789")


def test_difference_at_the_end_of_a_large_overlap_is_found(runner: Runner) -> None:
    data = bytes(200_000)

    runner.feed(at(1, data), at(2, data[:-2] + b"X"), at(0, b"0", is_last=True))

    assert runner.only[0] is Verdict.OVERLAP


def test_chunks_beyond_the_digest_limit_are_not_known_again() -> None:
    runner = Runner(ReassemblyOptions(max_digests=1))

    runner.feed(at(0, b"01"), at(2, b"23"), at(0, b"01"), at(2, b"23"), more(b"", is_last=True))

    verdict, data, file = runner.only
    assert (verdict, data, file.duplicates) == (Verdict.OVERLAP, b"0123", 1)
