from __future__ import annotations

from dumpstream.format.verdict import Verdict
from dumpstream.reassemble import ReassemblyOptions

from .conftest import NAME, Runner, at, dump, more, text

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


def test_files_are_found_idle_in_the_order_of_their_latest_chunks() -> None:
    runner = Runner(ReassemblyOptions(idle_timeout=160.0))
    for when, name in enumerate(["first", "second", "third", "first", "second"]):
        runner.feed(more(b"a", name=name), now=float(when))

    for now in (162.0, 163.0):
        runner.expire(now)
    before = [ended.name for ended in runner.ended]
    runner.expire(200.0)

    assert before == ["third", "first"]
    assert [ended.name for ended in runner.ended] == ["third", "first", "second"]


def test_file_without_time_limit_stays_open_until_the_end() -> None:
    runner = Runner(ReassemblyOptions(idle_timeout=None, text_idle_timeout=None))
    runner.feed(more(b"a"), text(b"a\n"))

    runner.expire(1e9)

    assert runner.ended == []
    assert len(runner.finish()) == 2


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
