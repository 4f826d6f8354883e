from __future__ import annotations

import pytest

from dumpstream._native import Chunk
from dumpstream.format.verdict import Verdict

from .conftest import NAME, TEXT, Runner, more, record, text

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


def test_text_that_is_open_when_its_producer_is_cut_off_was_never_closed(runner: Runner) -> None:
    runner.feed(text(HEADER + b"a\n"))
    runner.expire(10.0)
    runner.feed(text(b"b\n"), more(b"x"), now=11.0)

    ended = [(it.name, it.verdict, it.file and it.file.cut_off) for it in runner.finish("process_gone")]

    assert ended == [
        (TEXT, Verdict.COMPLETE, None),
        (NAME, Verdict.NEVER_CLOSED, None),
        (TEXT, Verdict.NEVER_CLOSED, "process_gone"),
    ]


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
