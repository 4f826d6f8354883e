from __future__ import annotations

from dumpstream.format.verdict import Verdict

from .conftest import NAME, Runner, at, more, record


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
