"""What a runtime sends cannot make a capture stand still, or take memory without a bound."""

from __future__ import annotations

import gc
from time import thread_time
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint
from anyio.to_thread import run_sync

from dumpstream import RingOptions, RingSource, SinkError, Verdict, open_capture
from dumpstream.archive.rows import JOURNAL, LossRow, read_journal
from dumpstream.reassemble import ReassemblyOptions
from dumpstream.sinks.memory import MemorySink
from dumpstream.stages.report import LossCount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.capture.conftest import Rig

    from dumpstream import Capture, Stored, WholeFile
    from dumpstream.chunk import Batch

pytestmark = pytest.mark.anyio

_MOST_PIECES = ReassemblyOptions().max_pieces
#: Seconds of work: many times what a time slice has, and a small part of what the pieces take together.
_LONGEST_TURN_S = 0.25


class Heartbeat:
    """Measures the longest time that the event loop has worked without coming back to it."""

    def __init__(self) -> None:
        self.longest = 0.0
        gc.freeze()  # what earlier tests have left in this process is not searched in the middle of a turn

    async def run(self) -> None:
        while True:
            before = thread_time()
            await checkpoint()
            self.longest = max(self.longest, thread_time() - before)


def losses(rig: Rig) -> list[LossRow]:
    return [row for row in read_journal(rig.path / JOURNAL) if isinstance(row, LossRow)]


async def test_a_file_with_very_many_gaps_neither_stops_the_loop_nor_fills_the_journal(rig: Rig) -> None:
    count = 200_000
    heartbeat = Heartbeat()

    def push() -> None:
        for number in range(count):
            rig.push("gaps", b"x", offset=2 * number + 1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heartbeat.run)
        async with rig.pushed(sinks=["null:"]) as capture:
            await run_sync(push)
        tasks.cancel_scope.cancel()

    lost = count - _MOST_PIECES
    (row,) = (await run_sync(rig.rows))["gaps"]
    assert capture.report.losses == {"too_many_pieces": LossCount(lost, lost)}
    assert await run_sync(losses, rig) == [LossRow("too_many_pieces", lost, lost)]
    assert (row.verdict, row.cause, row.lost_bytes) == (Verdict.LOST, "too_many_pieces", lost)
    assert (row.bytes, len(row.missing)) == (_MOST_PIECES, _MOST_PIECES)
    assert heartbeat.longest < _LONGEST_TURN_S


async def test_pieces_beyond_the_limit_are_lost_and_those_before_it_stored(rig: Rig) -> None:
    async with rig.pushed(max_pieces=2):
        for offset in (0, 10, 20, 30, 40):
            rig.push("gaps", b"piece", offset=offset)
        rig.push("other", b"whole", last=True)

    (row,) = (await run_sync(rig.rows))["gaps"]
    assert [(part.offset, part.bytes) for part in row.stored] == [(0, 5), (10, 5), (20, 5)]
    assert (row.verdict, row.lost_bytes) == (Verdict.LOST, 10)
    assert (await run_sync(rig.read))["other"] == (Verdict.UNPARSED, b"whole")


async def test_very_many_open_files_close_the_idlest_ones_with_a_cause_and_a_count(rig: Rig) -> None:
    async with rig.pushed(max_open_files=100) as capture:
        for number in range(150):
            rig.push(f"file {number}", b"data")
        await rig.until(lambda: capture.report.files == 50)
        open_files = capture.report.open_files

    rows = await run_sync(rig.rows)
    closed = [name for name, (row,) in rows.items() if row.cause == "too_many_open"]
    assert open_files == 100
    assert capture.report.verdicts == {"never_closed": 150}
    assert closed == [f"file {number}" for number in range(50)]
    assert capture.report.losses == {"too_many_open": LossCount(50, 0)}
    assert await run_sync(losses, rig) == [LossRow("too_many_open", 50, 0)]
    assert not capture.report.whole


async def test_a_file_that_had_to_make_room_goes_on_as_a_further_part(rig: Rig) -> None:
    async with rig.pushed(max_open_files=1):
        rig.push("first", b"be")
        rig.push("second", b"a", last=False)
        rig.push("first", b"gin", last=True)

    rows = (await run_sync(rig.rows))["first"]
    assert [row.cause for row in rows] == ["too_many_open", None]
    assert (await run_sync(rig.read))["first"].data == b"begin"


async def test_closing_very_many_files_at_the_end_does_not_stop_the_loop(rig: Rig) -> None:
    count = 16_000
    most = 0

    def push_beginnings() -> None:  # in a thread, because the ring has no room for so many
        for number in range(count):
            rig.push(f"file {number}", b"data")

    async def watch(capture: Capture) -> None:
        nonlocal most
        while True:
            before = capture.report.files
            await checkpoint()
            most = max(most, capture.report.files - before)

    async with anyio.create_task_group() as tasks:
        async with rig.pushed(sinks=["null:"]) as capture:
            await run_sync(push_beginnings)
            await rig.until(lambda: capture.report.open_files == count)
            tasks.start_soon(watch, capture)
        tasks.cancel_scope.cancel()

    assert capture.report.verdicts == {"never_closed": count}
    assert most < count / 4


async def test_a_capture_that_runs_out_of_memory_tells_the_remedy(rig: Rig) -> None:
    class Exhausted(RingSource):
        async def receive(self) -> Batch:
            batch = await super().receive()
            if any(chunk.name == "large" for chunk in batch.chunks):
                batch.release()
                raise MemoryError
            return batch

    source = Exhausted(RingOptions(buffer_bytes=1 << 20))
    remedy = r"ran out of memory; lower max_open_bytes, .* or capture less"
    async with rig.raising(SinkError, remedy, open_capture(rig.path, source=source)) as capture:
        rig.push("open", b"data")
        await rig.until(lambda: capture.report.open_files == 1)
        rig.push("large", b"data", last=True)

    assert capture.report.losses == {"no_memory": LossCount(1, 4)}
    (row,) = (await run_sync(rig.rows))["open"]
    assert (row.verdict, row.cause) == (Verdict.LOST, "no_memory")


async def test_a_sink_that_runs_out_of_memory_tells_the_remedy_too(rig: Rig) -> None:
    class Exhausted(MemorySink):
        async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
            raise MemoryError

    capturing = rig.pushed(sinks=[Exhausted()])
    async with rig.raising(SinkError, r"ran out of memory; lower max_open_bytes", capturing):
        rig.push("file", b"data", last=True)
