"""What is lost when the ring is full, and how the capture says so."""

from __future__ import annotations

import json
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import OnFull, RingOptions, Verdict
from dumpstream.sinks.memory import MemorySink

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.capture.conftest import Rig

    from dumpstream import Capture, SinkError, Stored, WholeFile

pytestmark = pytest.mark.anyio

_CHUNK = bytes(4000)  # a record of its own
_DROP = RingOptions(buffer_bytes=1 << 16, on_full=OnFull.DROP)
_GIVE_UP = RingOptions(buffer_bytes=1 << 16, block_timeout=0.05)


class GatedSink(MemorySink):
    """Takes nothing until its gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        await self.gate.wait()
        return await super().put(files)


def has_taken(capture: Capture, chunks: int) -> bool:
    return capture.report.chunks == chunks


async def stall(rig: Rig, capture: Capture, names: Iterator[str]) -> None:
    """Push files, one at a time, until the pipeline takes no more from the ring."""
    for taken in range(1, 4):
        rig.push(next(names), _CHUNK, last=True)
        await rig.until(partial(has_taken, capture, taken))


async def overflow(rig: Rig, sink: GatedSink, capture: Capture) -> str:
    """Push files until the ring has no room for one, and half a file; then let the sink go on.

    Returns the name of the first file that was refused; the half file is called ``half``.
    """
    names = (f"file {number}" for number in count())
    await stall(rig, capture, names)
    refused = await run_sync(lambda: next(name for name in names if rig.push(name, _CHUNK, last=True)))
    assert await run_sync(rig.push, "half", _CHUNK) != 0
    sink.gate.set()
    await rig.until(lambda: capture.report.ring_fill == 0)
    return refused


@pytest.mark.parametrize(
    ("ring", "cause"), [(_DROP, "ring_full"), (_GIVE_UP, "timeout")], ids=["drop", "block"]
)
async def test_a_full_ring_costs_files_by_name_and_spares_the_others(
    rig: Rig, ring: RingOptions, cause: str
) -> None:
    sink = GatedSink()

    async with rig.pushed(ring, sinks=["zstd:", sink]) as capture:
        refused = await overflow(rig, sink, capture)
        rest = [rig.push("half", _CHUNK), rig.push("half", b"end", last=True)]
        again = rig.push("half", b"a file of its own", last=True)
        other = rig.push("other", b"whole", last=True)

    rows = await run_sync(rig.rows)
    report = capture.report
    assert all(rest)
    assert (again, other) == (0, 0)
    assert [(row.verdict, row.cause) for row in rows.pop(refused)] == [(Verdict.LOST, cause)]
    lost, whole = rows.pop("half")
    assert (lost.verdict, lost.cause) == (Verdict.LOST, cause)
    assert lost.lost_bytes == 2 * len(_CHUNK) + 3
    assert whole.verdict is Verdict.UNPARSED
    assert {row.verdict for of_name in rows.values() for row in of_name} == {Verdict.UNPARSED}
    assert report.losses == {cause: (2, 2 * len(_CHUNK)), "after_loss": (2, len(_CHUNK) + 3)}
    assert report.unnamed_losses == 0
    assert not report.whole


async def test_a_file_that_is_refused_to_the_end_is_lost_by_name_too(rig: Rig) -> None:
    sink = GatedSink()

    async with rig.pushed(_DROP, sinks=[sink]) as capture:
        await overflow(rig, sink, capture)
        rig.push("half", _CHUNK)

    (row,) = (await run_sync(rig.rows))["half"]
    assert (row.verdict, row.cause, row.lost_bytes) == (Verdict.LOST, "ring_full", 2 * len(_CHUNK))


async def test_a_chunk_that_is_cut_off_is_lost_by_name_when_other_losses_no_longer_are(rig: Rig) -> None:
    sink = GatedSink()
    large = bytes(200_000)

    async with rig.pushed(_GIVE_UP, sinks=["zstd:", sink]) as capture:
        await stall(rig, capture, (f"file {number}" for number in count()))
        while not capture.report.unnamed_losses:
            rig.push("n" * 200, b"x", last=True, offset=-2)
        cut = await run_sync(partial(rig.push, "cut", large, last=True))
        sink.gate.set()
        await rig.until(lambda: capture.report.ring_fill == 0)
        again = rig.push("cut", b"a file of its own", last=True)

    lost, whole = (await run_sync(rig.rows))["cut"]
    assert cut != 0
    assert again == 0
    assert (lost.verdict, lost.cause) == (Verdict.LOST, "timeout")
    assert 0 < lost.bytes < len(large)
    assert lost.bytes + lost.lost_bytes == len(large)
    assert (whole.verdict, whole.bytes) == (Verdict.UNPARSED, len(b"a file of its own"))
    assert capture.report.unnamed_losses == 1


async def test_losses_of_a_capture_that_is_given_up_keep_their_names(rig: Rig) -> None:
    sink = GatedSink()

    with anyio.CancelScope() as scope:
        async with rig.pushed(_DROP, sinks=[sink]) as capture:
            names = [f"file {number}" for number in range(30)]
            refused = [name for name in names if rig.push(name, _CHUNK, last=True)]
            scope.cancel()
            await anyio.sleep_forever()

    causes = {name: [row.cause for row in rows] for name, rows in (await run_sync(rig.rows)).items()}
    assert refused
    assert causes == {name: ["ring_full" if name in refused else "cancelled"] for name in names}
    assert sum(loss.chunks for loss in capture.report.losses.values()) == 30


async def test_a_refused_chunk_is_a_loss_in_report_journal_and_verification(rig: Rig) -> None:
    async with rig.pushed(RingOptions(buffer_bytes=1 << 16, max_file_bytes=100)) as capture:
        rig.push("too large", bytes(101), last=True)
        rig.push("", b"no name", last=True)
        rig.push("cut\0off", b"no name either", last=True)
        rig.push("fine", b"fine", last=True)

    problems = {(str(problem.kind), problem.subject) for problem in (await run_sync(rig.verify)).problems}
    assert capture.report.losses == {"too_large": (1, 101), "bad_name": (2, 21)}
    assert capture.report.unnamed_losses == 2
    assert capture.report.verdicts == {"lost": 1, "unparsed": 1}
    assert problems == {("loss", "too_large"), ("loss", "bad_name"), ("verdict", "too large")}


async def test_calls_after_the_end_are_refused_and_belong_to_no_capture(rig: Rig) -> None:
    async with rig.pushed() as capture:
        pass

    assert rig.push("late", b"data", last=True) != 0
    assert capture.report.losses == {}


async def test_a_call_while_the_capture_ends_is_counted_as_late(rig: Rig) -> None:
    class Slow(MemorySink):
        async def aclose(self) -> None:
            assert rig.push("late", b"data", last=True) != 0

    async with rig.pushed(sinks=[Slow()]) as capture:
        rig.push("file", b"data", last=True)

    assert capture.report.losses == {"late": (1, 0)}
    assert not capture.report.whole
    assert {str(it.kind) for it in (await run_sync(rig.verify)).problems} == {"loss"}


async def test_the_report_of_a_running_capture_is_up_to_date(rig: Rig) -> None:
    sink = GatedSink()

    async with rig.pushed(sinks=[sink]) as capture:
        rig.push("open", b"abc")
        rig.push("whole", b"defgh", last=True)
        await rig.until(lambda: capture.report.chunks == 2)
        waiting = capture.report
        sink.gate.set()
        await rig.until(lambda: capture.report.files == 1)
        stored = capture.report

    assert (waiting.bytes, waiting.files, waiting.open_files) == (8, 0, 1)
    assert waiting.ring_fill > 0
    assert waiting.ring_bytes >= 4 << 20
    assert (stored.files, stored.ring_fill) == (1, 0)
    assert stored.verdicts == {"unparsed": 1}
    assert stored.chunks_per_second == pytest.approx(2 / stored.seconds)
    assert capture.report.seconds == capture.report.seconds > stored.seconds


async def test_a_capture_without_a_chunk_says_what_may_be_wrong(rig: Rig) -> None:
    async with rig.pushed() as capture:
        pass

    report = capture.report
    assert len(report.hints) == 4
    assert "--config" in report.hints[0]
    assert report.whole
    assert json.loads(json.dumps(report.as_dict()))["hints"] == list(report.hints)


async def test_a_capture_with_a_chunk_needs_no_hints(rig: Rig) -> None:
    async with rig.pushed() as capture:
        rig.push("file", last=True)

    assert capture.report.hints == ()
