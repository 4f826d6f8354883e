"""Consumers that raise, stop, hang or are cancelled, and captures that fail under them."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.conftest import LIMIT_S

from dumpstream import (
    CaptureCancelledError,
    CaptureInUseError,
    Chunk,
    ChunkSource,
    SinkError,
    Stored,
    open_capture,
)
from dumpstream.sinks.null import NullSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.capture.conftest import Rig

    from dumpstream import Capture, FinishedFile, WholeFile

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

_FILES = 30
_LARGE = bytes(2 << 20)


@pytest.fixture
def rig(either_rig: Rig) -> Rig:
    return either_rig


@pytest.fixture(autouse=True)
async def _time_limit() -> AsyncIterator[None]:
    with anyio.fail_after(LIMIT_S):
        yield


class FailingSink(NullSink):
    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        if any(file.name == "poison" for file in files):
            raise SinkError("the disk is full; free some space")
        return await super().put(files)


def push_all(rig: Rig) -> None:
    for number in range(_FILES):
        rig.push(str(number), b"1", last=True)


async def all_finished(capture: Capture, files: int = _FILES) -> None:
    report = capture.report
    while report.files < files:
        report = await capture.changed(report)


async def test_a_consumer_that_raises_does_not_hold_the_capture_up(rig: Rig) -> None:
    async def consume(capture: Capture) -> None:
        files = capture.files(max_files=1, timeout=None)  # a local name keeps it alive in the traceback
        async for file in files:
            raise LookupError(file.name)

    async with rig.pushed() as capture:
        task = asyncio.create_task(consume(capture))
        await asyncio.sleep(0)
        push_all(rig)
        await all_finished(capture)

    assert isinstance(task.exception(), LookupError)
    assert capture.report.whole
    assert capture.report.skipped_files == _FILES - 2


async def test_a_consumer_that_breaks_off_is_not_waited_for(rig: Rig) -> None:
    async with rig.pushed() as capture:
        push_all(rig)
        async for file in capture.files(max_files=1, timeout=None):
            assert file.size == 1
            break
        await all_finished(capture)

    assert capture.report.whole


async def test_a_consumer_that_is_garbage_is_not_waited_for(rig: Rig) -> None:
    async with rig.pushed() as capture:
        loop: list[object] = [capture.files(max_files=1, timeout=None)]
        loop.append(loop)
        push_all(rig)
        await anyio.wait_all_tasks_blocked()
        del loop
        gc.collect()
        await all_finished(capture)

    assert capture.report.skipped_files == 0


async def test_a_consumer_that_is_closed_gets_nothing_more(rig: Rig) -> None:
    async with rig.pushed() as capture:
        files = capture.files(max_files=1, timeout=None)
        push_all(rig)
        await anext(files)
        await files.aclose()
        await files.aclose()
        await all_finished(capture)

    assert [file async for file in files] == []


async def test_leaving_the_block_does_not_wait_for_the_task_that_leaves(rig: Rig) -> None:
    async with rig.pushed() as capture:
        files = capture.files(max_files=3, timeout=None)
        push_all(rig)

    assert [file.name async for file in files] == ["0", "1", "2"]
    assert files.skipped == capture.report.skipped_files == _FILES - 3


async def test_leaving_the_block_waits_for_consumers_in_other_tasks(rig: Rig) -> None:
    seen = []

    async def consume(capture: Capture) -> None:
        async for file in capture.files(max_files=1, timeout=None):
            await asyncio.sleep(0.001)
            seen.append(file.name)

    async with rig.pushed() as capture:
        task = asyncio.create_task(consume(capture))
        await asyncio.sleep(0)
        push_all(rig)
    await task

    assert seen == [str(number) for number in range(_FILES)]


async def test_a_destination_that_fails_while_a_consumer_waits_is_told_at_once(rig: Rig) -> None:
    seen = []

    async def consume(capture: Capture) -> None:
        async for file in capture.files():
            seen.append(file.name)  # noqa: PERF401 - what it has seen when it raises

    async with rig.raising(SinkError, "the disk is full", rig.pushed(sinks=[FailingSink()])) as capture:
        task = asyncio.create_task(consume(capture))
        await asyncio.sleep(0)
        rig.push("before", b"1", last=True)
        await all_finished(capture, 1)
        rig.push("poison", b"1", last=True)
        with pytest.raises(SinkError, match="the disk is full"):
            await task  # while the block still runs
        assert capture.ended
        assert (await capture.changed()).failure is not None

    assert seen == ["before", "poison"]  # as in the journal, where it is lost


async def test_a_capture_that_fails_does_not_wait_for_its_consumers(rig: Rig) -> None:
    async with rig.raising(SinkError, "the disk is full", rig.pushed(sinks=[FailingSink()])) as capture:
        files = capture.files(max_files=1, timeout=None)
        push_all(rig)
        await anyio.wait_all_tasks_blocked()
        rig.push("poison", b"1", last=True)
        await anext(files)
        await anext(files)

    with pytest.raises(SinkError, match="the disk is full"):
        [file async for file in files]


async def test_files_after_the_end_end_at_once(rig: Rig) -> None:
    async with rig.pushed() as capture:
        rig.push("file", b"1", last=True)

    assert [file async for file in capture.files()] == []


async def test_files_after_a_failure_raise_it(rig: Rig) -> None:
    async with rig.raising(SinkError, "the disk is full", rig.pushed(sinks=[FailingSink()])) as capture:
        rig.push("poison", b"1", last=True)
        await capture.wait()

    with pytest.raises(SinkError, match="the disk is full"):
        await anext(capture.files())


async def test_consumers_of_a_cancelled_capture_are_told(rig: Rig) -> None:
    entered = asyncio.Event()
    captures = []

    async def run() -> None:
        async with rig.pushed() as capture:
            captures.append(capture)
            entered.set()
            await asyncio.sleep(LIMIT_S)

    async def consume() -> list[FinishedFile]:
        return [file async for file in captures[0].files()]

    task = asyncio.create_task(run())
    await entered.wait()
    consumer = asyncio.create_task(consume())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(CaptureCancelledError, match="the capture was cancelled"):
        await consumer
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_full_queue_does_not_hold_a_cancellation_up(rig: Rig) -> None:
    async def run() -> None:
        async with rig.pushed() as capture:
            files.append(capture.files(max_files=1, timeout=None))
            push_all(rig)
            full.set()
            await asyncio.sleep(LIMIT_S)

    files: list[object] = []
    full = asyncio.Event()
    task = asyncio.create_task(run())
    await full.wait()
    await anyio.wait_all_tasks_blocked()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_no_file_is_lost_to_a_cancelled_consumer(rig: Rig) -> None:
    """At every await: the consumer is cancelled again and again, and goes on."""
    seen: list[bytes] = []

    async with rig.pushed() as capture:
        files = capture.files(max_files=2, timeout=None)
        push_all(rig)
        turns = 0
        while len(seen) < _FILES:
            turns += 1

            async def take() -> None:
                seen.append((await anext(files)).name.encode())

            task = asyncio.create_task(take())
            for _ in range(turns % 4):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    assert seen == [str(number).encode() for number in range(_FILES)]
    assert capture.report.skipped_files == 0


@pytest.mark.parametrize("stores", [True, False])
async def test_whenever_the_capture_is_cancelled_its_consumers_end(rig: Rig, stores: bool) -> None:  # noqa: FBT001
    """At any moment: the capture is cancelled a little later each time."""

    async def run(directory: Path | None) -> None:
        source = ChunkSource([Chunk(str(number), _LARGE, is_last=True) for number in range(3)])
        async with open_capture(directory, source=source) as capture:
            consumers.append(asyncio.create_task(consume(capture)))
            entered.set()
            await capture.wait()

    async def consume(capture: Capture) -> str:
        try:
            async for file in capture.files(max_files=1, max_bytes=1000, timeout=None):
                async for _ in file.pieces():
                    pass
        except CaptureCancelledError:
            return "cancelled"
        return "ended"

    consumers: list[asyncio.Task[str]] = []
    endings: set[str] = set()
    for moment in range(40):
        entered = asyncio.Event()
        task = asyncio.create_task(run(rig.path.with_name(str(moment)) if stores else None))
        await entered.wait()
        for _ in range(moment % 10):
            await asyncio.sleep(0)
        await asyncio.sleep(moment // 10 * 0.001)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        endings |= set(await asyncio.gather(*consumers))

    assert "cancelled" in endings
    assert endings <= {"cancelled", "ended"}


async def test_a_second_capture_of_the_same_callback_is_refused_and_the_first_goes_on(rig: Rig) -> None:
    async with rig.pushed() as capture:
        files = capture.files()
        first, rig.path = rig.path, rig.path.with_name("second")
        with pytest.raises(CaptureInUseError, match="a capture is already running in this process"):
            async with rig.pushed():
                pytest.fail("entered")
        rig.path = first
        rig.push("file", b"1", last=True)
        assert (await anext(files)).name == "file"
