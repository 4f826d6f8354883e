from __future__ import annotations

from dumpstream.format.verdict import Verdict
from dumpstream.reassemble import ReassemblyOptions

from .conftest import Runner, at, dump, more


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
