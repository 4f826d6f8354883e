"""What other processes send decides neither the memory nor the time that reassembly takes."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from dumpstream._native import Chunk
from dumpstream.format.verdict import Verdict
from dumpstream.reassemble import Reassembler, ReassemblyOptions
from dumpstream.stages.events import End, Held, Hold, Recall

from .conftest import NAME, TEXT, Runner, at, dump, more, record, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dumpstream.stages.assembly import File


def only_file(runner: Runner) -> File:
    [ended] = runner.ended
    assert ended.file is not None
    return ended.file


# Pieces of one file.


def test_piece_beyond_the_limit_is_lost_with_all_that_follows_it() -> None:
    runner = Runner(ReassemblyOptions(max_pieces=2))

    runner.feed(
        at(0, b"012"), at(5, b"56"), at(8, b"89"), at(11, b"bcd"), at(3, b"34"), more(b"", is_last=True)
    )

    [ended] = runner.ended
    file = only_file(runner)
    assert (ended.verdict, ended.parts) == (Verdict.LOST, {0: b"012", 5: b"56", 8: b"89"})
    assert (file.cause, file.reason) == ("too_many_pieces", "too_many_pieces")
    assert (file.lost_bytes, file.refused, file.refused_bytes) == (5, 3, 5)
    assert file.missing == [(3, 5), (7, 8)]


def test_pieces_up_to_the_limit_wait_for_the_gap_to_fill() -> None:
    runner = Runner(ReassemblyOptions(max_pieces=2))

    runner.feed(
        at(5, b"56"), at(3, b"34"), at(0, b"012"), at(9, b"9"), at(8, b"8"), at(7, b"7", is_last=True)
    )

    assert [ended.parts for ended in runner.finish()] == [{0: b"0123456789"}]


def test_records_that_wait_for_a_callback_count_as_pieces() -> None:
    runner = Runner(ReassemblyOptions(max_pieces=2))

    runner.feed(record(1, b"a", final=False), *(record(number, b"bc", final=True) for number in (2, 3, 4)))
    [ended] = runner.finish()

    assert (ended.verdict, ended.parts) == (Verdict.LOST, {0: b"abcbc"})
    assert (only_file(runner).cause, only_file(runner).lost_bytes) == ("too_many_pieces", 2)


def test_first_loss_of_a_file_stays_its_cause() -> None:
    runner = Runner(ReassemblyOptions(max_pieces=1))

    runner.lose(NAME, 7)
    runner.feed(at(5, b"56"), at(8, b"89"))
    runner.finish()

    file = only_file(runner)
    assert (file.cause, file.lost_bytes, file.refused_bytes) == ("ring_full", 9, 2)


def test_repetition_beyond_the_limit_is_not_compared_and_nothing_is_lost() -> None:
    runner = Runner(ReassemblyOptions(max_pieces=1))

    runner.feed(at(1, b"123456"), at(2, b"23"), at(0, b"0", is_last=True))
    [ended] = runner.finish()

    assert (ended.verdict, ended.parts) == (Verdict.OVERLAP, {0: b"0123456"})


def test_text_beyond_the_limit_is_lost_until_the_text_is_idle() -> None:
    runner = Runner(ReassemblyOptions(max_pieces=1, text_idle_timeout=10.0))

    runner.feed(*(Chunk(TEXT, b"1\n", offset=offset, is_last=True) for offset in (5, 8, 11)))
    runner.expire(10.0)

    assert (only_file(runner).cause, only_file(runner).lost_bytes) == ("too_many_pieces", 4)


@pytest.mark.parametrize("order", [1, -1], ids=["forwards", "backwards"])
def test_as_many_pieces_as_there_may_be_take_as_many_events(order: int) -> None:
    count = ReassemblyOptions().max_pieces
    reassembler = Reassembler()

    held = reassembler.feed([at(2 * number + 1, b"x") for number in range(count)[::order]], 0.0)
    lost = reassembler.feed([at(2 * number + 1, b"x") for number in range(count, 3 * count)], 0.0)
    events = list(reassembler.finish())

    assert [type(event) for event in held] == [Hold] * count
    assert lost == []
    assert [type(event) for event in events] == [Recall] * count + [End]
    assert isinstance(events[-1], End)
    assert (len(events[-1].file.parts), len(events[-1].file.missing)) == (count + 1, count)


def test_pieces_that_all_overlap_are_recalled_one_by_one() -> None:
    """The bytes of a piece are needed with those of one other piece, never with those of all."""
    runner = Runner(ReassemblyOptions(max_digests=0))
    count, size = 200, 1 << 16

    runner.feed(*(at(number + 1, bytes(size)) for number in reversed(range(count))))
    [*_, longest] = sorted(held.length for held in runner.kept)
    tracemalloc.start()
    try:
        for event in runner.reassembler.feed([at(0, b"x", is_last=True)], 0.0):
            if isinstance(event, Recall):
                runner.reassembler.restore(event.held, bytes(event.held.length))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert longest == size
    assert peak < 8 * size


# Open files.


def test_one_more_open_file_closes_the_one_that_is_idle_longest() -> None:
    runner = Runner(ReassemblyOptions(max_open_files=2))

    for now, name in enumerate(["first", "second", "first", "third"]):
        runner.feed(more(b"a", name=name), now=float(now))

    assert [(ended.name, ended.verdict) for ended in runner.ended] == [("second", Verdict.NEVER_CLOSED)]
    assert only_file(runner).reason == "too_many_open"
    assert runner.reassembler.open_files == 2


def test_a_file_that_its_header_confirms_is_whole_even_if_it_had_to_make_room() -> None:
    runner = Runner(ReassemblyOptions(max_open_files=1))

    runner.feed(more(dump(10), name="whole"), more(b"a", name="next"))

    assert (only_file(runner).verdict, only_file(runner).reason) == (Verdict.COMPLETE, None)


def test_statistics_text_makes_room_too_and_is_complete() -> None:
    runner = Runner(ReassemblyOptions(max_open_files=1))

    runner.feed(text(b"a,b\n1,2\n"), more(b"a"))
    runner.feed(text(b"a,b\n3,4\n"), now=1.0)

    assert [(ended.name, ended.verdict) for ended in runner.ended] == [
        (TEXT, Verdict.COMPLETE),
        (NAME, Verdict.NEVER_CLOSED),
    ]


def test_a_loss_of_an_unknown_file_makes_room_like_a_chunk() -> None:
    runner = Runner(ReassemblyOptions(max_open_files=3))

    for number in range(10):
        runner.lose(f"lost {number}")

    assert runner.reassembler.open_files == 3
    assert [ended.verdict for ended in runner.ended] == [Verdict.LOST] * 7


def test_a_file_that_is_open_alone_stays_open_whatever_it_takes() -> None:
    runner = Runner(ReassemblyOptions(max_open_bytes=1))

    runner.feed(*(at(2 * number + 1, b"x") for number in range(100)))

    assert runner.reassembler.open_files == 1


def long_names(count: int) -> Iterator[Sequence[Chunk]]:
    for number in range(count):
        yield [Chunk(f"{number:08}".ljust(3900, "n"), b"x")]


def headers(count: int) -> Iterator[Sequence[Chunk]]:
    beginning = (1 << 19).to_bytes(8, "little") + b"\x0a\x032.0\x32\xff\xff\x0f"
    for number in range(count // 8):
        yield [more(beginning + bytes(32 << 10), name=str(number))]


def pieces(count: int) -> Iterator[Sequence[Chunk]]:
    for number in range(count // 8):
        yield [Chunk(str(number), b"x", offset=2 * piece + 1) for piece in range(8)]


def callbacks(count: int) -> Iterator[Sequence[Chunk]]:
    for number in range(count // 8):
        yield [record(piece, b"x", final=False, name=str(number)) for piece in range(8)]


def texts(count: int) -> Iterator[Sequence[Chunk]]:
    for number in range(count // 8):
        yield [record(piece, b"a,", final=False, name=f"{number}.csv") for piece in range(8)]


@pytest.mark.parametrize("batches", [long_names, headers, pieces, callbacks, texts])
def test_open_files_take_no_more_memory_than_they_may(
    batches: Callable[[int], Iterator[Sequence[Chunk]]],
) -> None:
    limit = 1 << 20
    reassembler = Reassembler(ReassemblyOptions(max_open_bytes=limit))
    kept: dict[Held, bytes] = {}
    gc.collect()

    tracemalloc.start()
    try:
        for now, batch in enumerate(batches(4000)):
            for event in reassembler.feed(batch, float(now)):
                if isinstance(event, Hold):
                    kept[event.held] = bytes(event.data)
                elif isinstance(event, Recall):
                    reassembler.restore(event.held, kept.pop(event.held))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert reassembler.open_files > 10
    assert taken < 1.5 * limit
