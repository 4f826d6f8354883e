from __future__ import annotations

import os
import struct
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dumpstream._native import Chunk
from dumpstream.reassemble import (
    End,
    Event,
    File,
    Held,
    Hold,
    Part,
    Piece,
    Reassembler,
    ReassemblyOptions,
    Recall,
    Whole,
)
from dumpstream.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "/dump//20260101/0/model/1/0/MatMul.op.1.2.3"
TEXT = "/dump/stats/MatMul.op.1.2.3.csv"


class Ended(NamedTuple):
    name: str
    verdict: Verdict
    parts: dict[int, bytes]
    file: File | None


class Runner:
    """Plays the capture: keeps what is held, answers recalls, joins pieces."""

    def __init__(self, options: ReassemblyOptions | None = None) -> None:
        self.reassembler = Reassembler(options)
        self.kept: dict[Held, bytes] = {}
        self.written: dict[Part, bytearray] = defaultdict(bytearray)
        self.ended: list[Ended] = []

    def feed(self, *chunks: Chunk, now: float = 0.0) -> None:
        self.handle(self.reassembler.feed(chunks, now))

    def lose(self, name: str, size: int = 100, *, ended: bool = False, now: float = 0.0) -> None:
        self.handle(self.reassembler.lose(name, "ring_full", size, ended=ended, now=now))

    def expire(self, now: float) -> None:
        self.handle(self.reassembler.expire(now))

    def finish(self) -> list[Ended]:
        self.handle(self.reassembler.finish())
        assert not self.kept
        return self.ended

    def handle(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Whole(chunk, verdict):
                    self.ended.append(Ended(chunk.name, verdict, {0: bytes(chunk)}, None))
                case Piece(part, data):
                    self.written[part] += data
                case Hold(held, data):
                    self.kept[held] = bytes(data)
                case Recall(held):
                    self.handle(self.reassembler.restore(held, self.kept.pop(held)))
                case End(file):
                    parts = {part.offset: bytes(self.written[part]) for part in file.parts}
                    assert [len(data) for data in parts.values()] == [part.size for part in file.parts]
                    assert file.bytes == sum(map(len, parts.values()))
                    self.ended.append(Ended(file.name, file.verdict, parts, file))

    @property
    def only(self) -> tuple[Verdict, bytes, File]:
        """The one file that has ended, if it has no parts behind gaps."""
        [(_, verdict, parts, file)] = self.ended
        assert file is not None
        assert list(parts) == [0]
        return verdict, parts[0], file


def varint(value: int) -> bytes:
    low = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return low + varint(value >> 7) if value > 0x7F else low


def dump(size: int, *, absent: int = 0, padding: int = 0) -> bytes:
    """Return a dump file with one tensor of *size* bytes and one of *absent* bytes at a null address."""
    output = b"\x30" + varint(size) + b"\x48\x01"
    message = b"\x0a\x032.0\x1a" + varint(len(output)) + output
    if absent:
        output = b"\x30" + varint(absent)
        message += b"\x1a" + varint(len(output)) + output
    if padding:
        message += b"\x32" + varint(padding) + b"n" * padding
    return struct.pack("<Q", len(message)) + message + bytes(i * 7 % 251 for i in range(size))


def at(offset: int, data: bytes, *, is_last: bool = False, sequence: int = 0, more: bool = False) -> Chunk:
    return Chunk(NAME, data, offset=offset, is_last=is_last, sequence=sequence, more=more)


def more(data: bytes, *, is_last: bool = False, name: str = NAME) -> Chunk:
    return Chunk(name, data, is_last=is_last)


def record(sequence: int, data: bytes, *, final: bool, is_last: bool = False, name: str = NAME) -> Chunk:
    return Chunk(name, data, is_last=is_last, sequence=sequence, more=not final)


def text(data: bytes, *, is_last: bool = True) -> Chunk:
    return Chunk(TEXT, data, is_last=is_last)


@pytest.fixture
def runner() -> Runner:
    return Runner()


# One chunk, one file.


@pytest.mark.parametrize("offset", [-1, 0])
def test_file_of_one_chunk_is_one_event(offset: int) -> None:
    chunk = Chunk(NAME, dump(50), offset=offset, is_last=True)

    events = Reassembler().feed([chunk], 0.0)

    assert events == [Whole(chunk, Verdict.COMPLETE)]


def test_file_of_one_chunk_is_judged_by_its_header(runner: Runner) -> None:
    data = dump(50)

    runner.feed(*(more(part, is_last=True) for part in (data[:-1], data + b"x", b"no header at all", b"")))

    verdicts = [ended.verdict for ended in runner.ended]
    assert verdicts == [Verdict.SHORT, Verdict.LONG, Verdict.UNPARSED, Verdict.UNPARSED]


def test_tensor_without_address_may_be_absent_or_present(runner: Runner) -> None:
    data = dump(50, absent=30)

    runner.feed(*(more(part, is_last=True) for part in (data, data + bytes(30), data + bytes(29))))

    verdicts = [ended.verdict for ended in runner.ended]
    assert verdicts == [Verdict.COMPLETE, Verdict.COMPLETE, Verdict.SHORT]


# Append mode.


def test_interleaved_files_come_back_each_in_its_own_order(runner: Runner) -> None:
    data = dump(200)

    runner.feed(more(data[:90], name="a"), more(data[:10], name="b"), more(data[90:], name="a", is_last=True))
    runner.feed(more(data[10:20], name="b"), more(data[20:], name="b", is_last=True))

    assert [(name, verdict) for name, verdict, _, _ in runner.ended] == [
        ("a", Verdict.COMPLETE),
        ("b", Verdict.COMPLETE),
    ]
    assert all(ended.parts == {0: data} for ended in runner.ended)
    assert runner.reassembler.open_files == 0


def test_empty_chunks_count_but_bring_nothing(runner: Runner) -> None:
    runner.feed(more(b""), more(b"some text that is no header"), more(b""), more(b"", is_last=True))

    verdict, data, file = runner.only
    assert (verdict, data, file.chunks) == (Verdict.UNPARSED, b"some text that is no header", 4)


def test_name_that_has_ended_begins_a_new_file(runner: Runner) -> None:
    runner.feed(more(b"one"), more(b"", is_last=True), more(b"two"), more(b"", is_last=True))

    first, second = runner.ended
    assert (first.parts, second.parts) == ({0: b"one"}, {0: b"two"})
    assert first.file is not second.file


def test_names_that_differ_only_in_undecodable_bytes_are_different_files(runner: Runner) -> None:
    runner.feed(*(Chunk(name, name) for name in (b"op\xff", b"op\xfe")))

    ended = {os.fsencode(ended.name): ended.parts for ended in runner.finish()}
    assert ended == {b"op\xff": {0: b"op\xff"}, b"op\xfe": {0: b"op\xfe"}}


def test_hundred_thousand_files_are_open_at_once(runner: Runner) -> None:
    names = [f"op.{i}" for i in range(100_000)]

    runner.feed(*(more(b"begin", name=name) for name in names))
    open_files = runner.reassembler.open_files
    runner.feed(*(more(b"end", name=name, is_last=True) for name in names))

    assert open_files == 100_000
    assert len(runner.ended) == 100_000
    assert runner.reassembler.open_files == 0


# The header.


def test_header_is_read_however_it_is_cut(runner: Runner) -> None:
    data = dump(300, padding=200)

    runner.feed(*(more(data[i : i + 1]) for i in range(len(data))), more(b"", is_last=True))

    assert runner.only[:2] == (Verdict.COMPLETE, data)


def test_header_is_read_from_recalled_pieces_and_those_behind_them_in_one_batch(runner: Runner) -> None:
    data = dump(20, padding=100)

    runner.feed(at(40, data[40:80]))
    runner.feed(at(0, data[:40]), at(80, data[80:90]), at(90, data[90:], is_last=True))

    assert runner.only[:2] == (Verdict.COMPLETE, data)


def test_only_the_beginning_of_a_header_is_short(runner: Runner) -> None:
    runner.feed(more(dump(300, padding=200)[:10]), more(dump(300, padding=200)[10:50], is_last=True))

    assert runner.only[0] is Verdict.SHORT


def test_beginning_of_a_header_from_recalled_pieces_is_short(runner: Runner) -> None:
    data = dump(300, padding=200)

    runner.feed(at(20, data[20:50], is_last=True))
    runner.feed(at(0, data[:20]))

    assert runner.only[0] is Verdict.SHORT


def test_header_above_the_limit_counts_as_none() -> None:
    runner = Runner(ReassemblyOptions(max_header_bytes=100))
    data = dump(300, padding=200)

    runner.feed(more(data[:50]), more(data[50:], is_last=True))

    assert runner.only[:2] == (Verdict.UNPARSED, data)


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


# Bytes that come again.


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


# No last chunk.


def test_file_without_last_chunk_is_complete_if_its_header_agrees(runner: Runner) -> None:
    data = dump(80)
    runner.feed(more(data[:60], name="agrees"), more(data[60:], name="agrees"))
    runner.feed(more(data[:60], name="differs"), more(b"no header at all", name="none"))

    verdicts = {ended.name: ended.verdict for ended in runner.finish()}

    assert verdicts == {
        "agrees": Verdict.COMPLETE,
        "differs": Verdict.NEVER_CLOSED,
        "none": Verdict.NEVER_CLOSED,
    }


def test_idle_file_is_closed_after_the_time_limit() -> None:
    runner = Runner(ReassemblyOptions(idle_timeout=60.0))
    runner.feed(more(b"no header", name="idle"), more(b"no header", name="busy"), now=100.0)
    runner.feed(more(b"more of it", name="busy"), now=130.0)

    runner.expire(159.9)
    before = [ended.name for ended in runner.ended]
    runner.expire(160.0)
    then = [ended.name for ended in runner.ended]
    runner.expire(190.0)

    assert (before, then) == ([], ["idle"])
    assert [ended.name for ended in runner.ended] == ["idle", "busy"]
    assert runner.reassembler.open_files == 0


def test_file_opened_after_a_look_for_idle_ones_is_found_in_its_turn() -> None:
    runner = Runner(ReassemblyOptions(idle_timeout=60.0))
    runner.feed(more(b"a", name="first"), now=0.0)
    runner.expire(60.0)
    runner.feed(more(b"a", name="second"), now=61.0)

    runner.expire(121.0)

    assert [ended.name for ended in runner.ended] == ["first", "second"]


def test_looks_for_idle_files_are_a_sixteenth_of_the_limit_apart() -> None:
    runner = Runner(ReassemblyOptions(idle_timeout=160.0))
    runner.feed(more(b"a", name="first"), now=0.0)
    runner.feed(more(b"a", name="second"), now=5.0)

    for now in (160.0, 169.9):
        runner.expire(now)
    before = [ended.name for ended in runner.ended]
    runner.expire(170.0)

    assert before == ["first"]
    assert [ended.name for ended in runner.ended] == ["first", "second"]


def test_file_without_time_limit_stays_open_until_the_end() -> None:
    runner = Runner(ReassemblyOptions(idle_timeout=None, text_idle_timeout=None))
    runner.feed(more(b"a"), text(b"a\n"))

    runner.expire(1e9)

    assert runner.ended == []
    assert len(runner.finish()) == 2


# Callbacks in several records.


def test_records_of_a_callback_count_as_one_chunk(runner: Runner) -> None:
    runner.feed(record(7, b"012", final=False), record(7, b"345", final=False))
    runner.feed(record(7, b"678", final=True, is_last=True))

    verdict, data, file = runner.only
    assert (verdict, data, file.chunks) == (Verdict.UNPARSED, b"012345678", 1)


def test_records_with_real_offsets_need_no_turn(runner: Runner) -> None:
    runner.feed(at(4, b"45", sequence=1, more=True), at(0, b"0123", sequence=2, more=False))
    runner.feed(at(6, b"67", sequence=1, is_last=True))

    verdict, data, file = runner.only
    assert (verdict, data, file.chunks) == (Verdict.UNPARSED, b"01234567", 2)


def test_unfinished_callback_keeps_a_closed_file_open(runner: Runner) -> None:
    runner.feed(record(1, b"01234", final=False), at(5, b"567", is_last=True))
    before = list(runner.ended)
    runner.feed(record(1, b"89", final=True))

    assert before == []
    assert runner.only[:2] == (Verdict.UNPARSED, b"0123456789")


def test_first_record_of_a_callback_is_no_whole_file(runner: Runner) -> None:
    runner.feed(record(1, b"01234", final=False, is_last=True), record(1, b"567", final=True, is_last=True))

    assert runner.only[:2] == (Verdict.UNPARSED, b"01234567")


def test_append_waits_until_the_unfinished_callback_is_finished(runner: Runner) -> None:
    runner.feed(record(1, b"01", final=False), record(2, b"45", final=True), record(3, b"67", final=True))
    held = len(runner.kept)
    runner.feed(record(1, b"23", final=True), record(4, b"89", final=True, is_last=True))

    assert held == 2
    verdict, data, file = runner.only
    assert (verdict, data, file.chunks) == (Verdict.UNPARSED, b"0123456789", 4)


def test_waiting_callbacks_are_appended_one_after_the_other(runner: Runner) -> None:
    runner.feed(record(1, b"0", final=False), record(2, b"2", final=False), record(3, b"5", final=False))
    runner.feed(record(2, b"3", final=False), record(3, b"6", final=True), record(1, b"1", final=True))
    runner.feed(record(2, b"4", final=True), record(4, b"7", final=True, is_last=True))

    assert runner.only[:2] == (Verdict.UNPARSED, b"01234567")


def test_waiting_record_is_kept_behind_a_gap(runner: Runner) -> None:
    runner.feed(at(4, b"45"), record(1, b"6", final=False), record(2, b"8", final=True))
    runner.feed(record(1, b"7", final=True), at(0, b"0123"), more(b"", is_last=True))

    assert runner.only[:2] == (Verdict.UNPARSED, b"012345678")


def test_what_waits_behind_the_last_chunk_begins_the_next_file(runner: Runner) -> None:
    runner.feed(record(1, b"a", final=False), record(2, b"c", final=True, is_last=True))
    runner.feed(record(3, b"d", final=True))
    *_, waiting = runner.kept
    runner.feed(record(1, b"b", final=True))
    open_files = runner.reassembler.open_files
    runner.feed(more(b"e", is_last=True))

    assert open_files == 1
    assert waiting.file is runner.ended[1].file
    assert [ended.parts for ended in runner.ended] == [{0: b"abc"}, {0: b"de"}]
    assert [ended.file.chunks for ended in runner.ended if ended.file] == [2, 2]


def test_loss_ends_an_unfinished_callback(runner: Runner) -> None:
    runner.feed(record(1, b"01", final=False), record(2, b"45", final=True))
    runner.lose(NAME, 2)
    runner.feed(record(3, b"67", final=True, is_last=True))

    verdict, data, file = runner.only
    assert (verdict, data) == (Verdict.LOST, b"014567")
    assert (file.cause, file.lost_bytes, file.chunks) == ("ring_full", 2, 2)


def test_callback_unfinished_at_the_end_leaves_the_file_unclosed(runner: Runner) -> None:
    runner.feed(record(1, b"01", final=False), record(2, b"45", final=True, is_last=True))

    runner.finish()

    assert runner.only[:2] == (Verdict.NEVER_CLOSED, b"0145")


# Losses.


def test_loss_of_an_unknown_name_opens_it(runner: Runner) -> None:
    runner.lose(NAME, 64)
    open_files = runner.reassembler.open_files
    runner.feed(more(dump(10), is_last=True))

    assert open_files == 1
    verdict, data, file = runner.only
    assert (verdict, data, file.lost_bytes) == (Verdict.LOST, dump(10), 64)


def test_loss_of_the_last_chunk_ends_the_file_with_its_parts(runner: Runner) -> None:
    runner.feed(at(0, b"012"), at(5, b"567"))

    runner.lose(NAME, 100, ended=True)

    [ended] = runner.ended
    assert (ended.verdict, ended.parts) == (Verdict.LOST, {0: b"012", 5: b"567"})
    assert ended.file is not None
    assert ended.file.missing == [(3, 5)]
    assert runner.reassembler.open_files == 0


def test_first_cause_stays_and_lost_bytes_add_up(runner: Runner) -> None:
    runner.lose(NAME, 10)
    runner.handle(runner.reassembler.lose(NAME, "timeout", 5, ended=True, now=0.0))

    verdict, data, file = runner.only
    assert (verdict, data) == (Verdict.LOST, b"")
    assert (file.cause, file.lost_bytes) == ("ring_full", 15)


# Statistics text.

HEADER = b"Input/Output,Index,Data Size\n"


def test_text_stays_open_after_a_last_chunk_and_loses_its_nul(runner: Runner) -> None:
    runner.feed(text(HEADER + b"Input,0,16\n\0"), text(b"Output,0,16\n\0"))
    before = list(runner.ended)
    runner.finish()

    assert before == []
    verdict, data, file = runner.only
    assert (verdict, data) == (Verdict.COMPLETE, HEADER + b"Input,0,16\nOutput,0,16\n")
    assert (file.chunks, file.dropped_bytes) == (2, 2)


def test_waiting_text_is_appended_in_its_turn(runner: Runner) -> None:
    runner.feed(
        record(1, HEADER + b"a", final=False, name=TEXT),
        record(2, HEADER[:5], final=False, name=TEXT),
        record(3, HEADER + b"c\n\0", final=True, is_last=True, name=TEXT),
        record(2, HEADER[5:] + b"b\n\0", final=True, is_last=True, name=TEXT),
        record(1, b"\n\0", final=True, is_last=True, name=TEXT),
    )

    runner.finish()

    assert runner.only[:2] == (Verdict.COMPLETE, HEADER + b"a\nb\nc\n")


def test_text_whose_latest_chunk_was_not_the_last_was_never_closed(runner: Runner) -> None:
    runner.feed(text(b"a\n"), text(b"b\n", is_last=False))

    runner.finish()

    assert runner.only[:2] == (Verdict.NEVER_CLOSED, b"a\nb\n")


def test_text_has_its_own_time_limit(runner: Runner) -> None:
    runner.feed(text(b"a\n"), more(b"x"))

    runner.expire(10.0)

    assert [ended.name for ended in runner.ended] == [TEXT]


@pytest.mark.parametrize("size", [3, len(HEADER), 1000])
def test_text_that_goes_on_after_a_pause_does_not_repeat_its_header_row(runner: Runner, size: int) -> None:
    again = HEADER + b"b\n\0"
    pieces = [again[start : start + size] for start in range(0, len(again), size)]
    runner.feed(text(HEADER + b"a\n\0"))
    runner.expire(10.0)

    runner.feed(*(record(1, piece, final=False, name=TEXT) for piece in pieces[:-1]), now=11.0)
    runner.feed(record(1, pieces[-1], final=True, is_last=True, name=TEXT), now=11.0)
    runner.expire(30.0)
    runner.feed(text(HEADER + b"c\n\0"), now=31.0)
    runner.finish()

    assert [ended.parts[0] for ended in runner.ended] == [HEADER + b"a\n", b"b\n", b"c\n"]
    assert {ended.verdict for ended in runner.ended} == {Verdict.COMPLETE}


def test_header_rows_are_kept_of_the_latest_thousand_names_only(runner: Runner) -> None:
    names = [f"{number}.csv" for number in range(1025)]
    for name in names:
        runner.feed(Chunk(name, HEADER, is_last=True))
        runner.expire(1e9)
    runner.ended.clear()

    runner.feed(*(Chunk(name, HEADER, is_last=True) for name in (names[0], names[1])))
    runner.finish()

    assert {ended.name: ended.parts[0] for ended in runner.ended} == {names[0]: HEADER, names[1]: b""}


def test_header_row_of_one_name_means_nothing_to_another(runner: Runner) -> None:
    runner.feed(Chunk("a.csv", HEADER, is_last=True))
    runner.expire(10.0)

    runner.feed(Chunk("b.csv", HEADER, is_last=True))
    runner.finish()

    assert [ended.parts[0] for ended in runner.ended] == [HEADER, HEADER]


def test_text_that_lost_its_last_chunk_stays_open(runner: Runner) -> None:
    runner.feed(text(HEADER + b"a\n\0"))
    runner.lose(TEXT, 10, ended=True)
    runner.feed(text(HEADER + b"c\n\0"))

    runner.finish()

    assert runner.only[:2] == (Verdict.LOST, HEADER + b"a\nc\n")


def test_text_with_real_offsets_goes_where_they_say(runner: Runner) -> None:
    runner.feed(Chunk(TEXT, b"b\n\0", offset=2, is_last=True), Chunk(TEXT, b"a\n\0", offset=0, is_last=True))

    runner.finish()

    assert runner.only[:2] == (Verdict.COMPLETE, b"a\nb\n")


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
