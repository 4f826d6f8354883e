from __future__ import annotations

import os

import pytest

from dumpstream._native import Chunk
from dumpstream.format.verdict import Verdict
from dumpstream.reassemble import Reassembler, ReassemblyOptions
from dumpstream.stages.events import Whole

from .conftest import NAME, Runner, dump, more

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


def test_hundred_thousand_files_are_open_at_once_if_the_options_say_so() -> None:
    runner = Runner(ReassemblyOptions(max_open_files=100_000, max_open_bytes=1 << 30))
    names = [f"op.{i}" for i in range(100_000)]

    runner.feed(*(more(b"begin", name=name) for name in names))
    open_files = runner.reassembler.open_files
    runner.feed(*(more(b"end", name=name, is_last=True) for name in names))

    assert open_files == 100_000
    assert len(runner.ended) == 100_000
    assert runner.reassembler.open_files == 0
