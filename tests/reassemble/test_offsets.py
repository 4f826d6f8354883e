from __future__ import annotations

import pytest

from dumpstream.format.verdict import Verdict
from dumpstream.reassemble import Reassembler
from dumpstream.stages.events import End, Hold, Piece, Recall

from .conftest import Runner, at, dump, more

# Real offsets.


def test_early_chunk_is_held_until_the_gap_fills() -> None:
    data = dump(100)
    early, first = at(60, data[60:], is_last=True), at(0, data[:60])
    reassembler = Reassembler()

    [hold] = reassembler.feed([early], 0.0)
    [piece, recall, end] = reassembler.feed([first], 0.0)

    assert isinstance(hold, Hold)
    assert hold.data is early
    assert (hold.held.offset, hold.held.length) == (60, len(data) - 60)
    assert isinstance(piece, Piece)
    assert recall == Recall(hold.held)
    assert isinstance(end, End)
    [late] = reassembler.restore(hold.held, data[60:])
    assert isinstance(late, Piece)
    assert (late.part, bytes(late.data)) == (piece.part, data[60:])
    assert end.file.verdict is Verdict.COMPLETE


def test_every_order_of_chunks_gives_the_same_file(runner: Runner) -> None:
    data = dump(100)
    pieces = {start: data[start : start + 30] for start in range(0, len(data), 30)}

    for start in (90, 30, 60, 0, 120):
        if start in pieces:
            runner.feed(at(start, pieces[start], is_last=start + 30 >= len(data)))

    assert runner.only[:2] == (Verdict.COMPLETE, data)


def test_chunk_in_order_passes_on_without_a_copy() -> None:
    chunk = at(0, b"0123456789")

    [piece] = Reassembler().feed([chunk], 0.0)

    assert isinstance(piece, Piece)
    assert piece.data is chunk


def test_pieces_behind_a_recall_in_the_same_batch_follow_it(runner: Runner) -> None:
    runner.feed(at(4, b"4567"))
    runner.feed(at(0, b"0123"), at(8, b"89"), more(b"ab"), more(b"", is_last=True))

    assert runner.only[:2] == (Verdict.UNPARSED, b"0123456789ab")


def test_empty_last_chunk_fixes_the_end(runner: Runner) -> None:
    runner.feed(at(10, b"", is_last=True), at(5, b"56789"))
    before = list(runner.ended)
    runner.feed(at(0, b"01234"))

    assert before == []
    assert runner.only[:2] == (Verdict.UNPARSED, b"0123456789")


def test_of_two_last_chunks_the_further_one_fixes_the_end(runner: Runner) -> None:
    runner.feed(at(10, b"ab", is_last=True), at(5, b"567", is_last=True), at(0, b"01234"))
    before = list(runner.ended)
    runner.feed(at(8, b"89"))

    assert before == []
    assert runner.only[:2] == (Verdict.UNPARSED, b"0123456789ab")


def test_bytes_beyond_the_known_end_are_kept(runner: Runner) -> None:
    data = dump(40)

    runner.feed(at(len(data) - 10, data[-10:] + b"beyond"), at(len(data), b"", is_last=True))
    runner.feed(at(0, data[:-10]))

    assert runner.only[:2] == (Verdict.LONG, data + b"beyond")


def test_append_after_real_offsets_goes_to_the_current_end(runner: Runner) -> None:
    runner.feed(at(5, b"56789"), more(b"abc"), at(0, b"01234"), more(b"def", is_last=True))

    assert runner.only[:2] == (Verdict.UNPARSED, b"0123456789abcdef")


# Gaps.


def test_gap_that_never_fills_leaves_parts_and_the_missing_ranges(runner: Runner) -> None:
    runner.feed(at(0, b"012"), at(8, b"89"), at(5, b"56"), at(10, b"ab"), at(20, b"", is_last=True))

    [ended] = runner.finish()
    assert ended.verdict is Verdict.GAP
    assert ended.parts == {0: b"012", 5: b"56", 8: b"89ab"}
    assert ended.file is not None
    assert ended.file.missing == [(3, 5), (7, 8), (12, 20)]


def test_gap_at_the_beginning_leaves_an_empty_prefix(runner: Runner) -> None:
    runner.feed(at(3, b"345", is_last=True))

    [ended] = runner.finish()
    assert (ended.verdict, ended.parts) == (Verdict.GAP, {0: b"", 3: b"345"})


def test_overlapping_pieces_behind_a_gap_are_one_part(runner: Runner) -> None:
    runner.feed(at(5, b"5678"), at(7, b"789"), at(3, b"345"))

    [ended] = runner.finish()
    assert (ended.verdict, ended.parts) == (Verdict.GAP, {0: b"", 3: b"3456789"})


# Misuse.


def test_restore_refuses_bytes_it_did_not_recall(runner: Runner) -> None:
    runner.feed(at(5, b"567"))
    [held] = runner.kept

    with pytest.raises(ValueError, match="answers a Recall"):
        runner.reassembler.restore(held, b"567")


def test_restore_refuses_another_number_of_bytes(runner: Runner) -> None:
    runner.feed(at(5, b"567"))
    *_, recall, _ = runner.reassembler.finish()
    assert isinstance(recall, Recall)

    with pytest.raises(ValueError, match="2 bytes restored where 3 were held"):
        runner.reassembler.restore(recall.held, b"56")
