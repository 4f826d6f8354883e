"""What a sink that fails, an exception and a cancellation leave behind."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import RingOptions, SinkError, _native
from dumpstream.reading.problem import Kind
from dumpstream.simulation import SimulatedRuntime, Workload
from dumpstream.sinks.memory import MemorySink

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.capture.conftest import Rig
    from typing_extensions import Buffer

    from dumpstream import Capture, SinkFile, Stored, WholeFile

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

_PIECE = bytes(700_000)
_BROKEN = r"faulty sink failed: OSError\('no more'\)"
#: What verification may say of a capture that ended early but is sound.
_SOUND = {Kind.FAILED, Kind.LOSS, Kind.VERDICT}


class FaultySink(MemorySink):
    """Fails, or never answers, in one kind of call from the moment it is told to."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where
        self.broken = False
        self.stalled = False
        self.entered = anyio.Event()  #: a call has been made to wait

    async def check(self, call: str) -> None:
        if call == self._where and self.broken:
            raise OSError("no more")
        if call == self._where and self.stalled:
            self.entered.set()
            await anyio.sleep_forever()

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        await self.check("put")
        return await super().put(files)

    async def aclose(self) -> None:
        await self.check("aclose")

    async def open(self, name: str, *, offset: int = 0) -> FaultyFile:  # type: ignore[override]
        await self.check("open")
        return FaultyFile(self, await super().open(name, offset=offset))


class FaultyFile:
    def __init__(self, sink: FaultySink, file: SinkFile) -> None:
        self._sink, self._file = sink, file

    async def write(self, pieces: Sequence[Buffer]) -> None:
        await self._sink.check("write")
        await self._file.write(pieces)

    async def commit(self) -> Stored:
        await self._sink.check("commit")
        return await self._file.commit()

    async def abort(self) -> None:
        await self._file.abort()


def push_all(rig: Rig, name: str) -> None:
    """Push a file small enough to be put whole, one that is written in pieces, and the start of a third."""
    rig.push(f"{name}/small", b"small", last=True)
    rig.push(f"{name}/large", _PIECE)
    rig.push(f"{name}/large", _PIECE, last=True)
    rig.push(f"{name}/open", _PIECE)


async def check_remains(rig: Rig, cause: str) -> None:
    """Check that what was finished is sound, and that what was not is said to be lost to *cause*."""
    rows = await run_sync(rig.rows)
    verification = await run_sync(rig.verify)
    assert [row.verdict for row in rows["before/small"] + rows["before/large"]] == ["unparsed"] * 2
    assert [row.cause for row in rows["before/open"]] == [cause]
    assert {problem.kind for problem in verification.problems} <= _SOUND
    assert verification.leftovers == []


async def test_a_sink_that_fails_is_logged_at_once_with_what_is_lost(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    sink = FaultySink("put")
    sink.broken = True

    async with rig.raising(SinkError, _BROKEN, rig.pushed(sinks=[sink])):
        rig.push("first", b"bytes", last=True)
        await rig.until(lambda: bool(caplog.messages))
        rig.push("second", b"bytes", last=True)

    (message,) = caplog.messages
    assert message.startswith(f"{rig.path}: ")
    assert re.search(_BROKEN, message)
    assert message.endswith("; whatever else comes is lost, and counted")


@pytest.mark.parametrize("where", ["put", "open", "write", "commit"])
async def test_a_sink_that_fails_ends_the_capture_but_not_the_block(rig: Rig, where: str) -> None:
    sink = FaultySink(where)
    reached = False

    async with rig.raising(SinkError, _BROKEN, rig.pushed(sinks=["zstd:", sink])) as capture:
        await run_sync(push_all, rig, "before")
        await rig.until(lambda: capture.report.files == 2)
        sink.broken = True
        await run_sync(push_all, rig, "after")
        await capture.wait()
        before = capture.report.losses.get("discarded", (0, 0))
        refused = [rig.push("later", b"12345") for _ in range(3)]
        reached = True

    assert reached
    assert all(refused)
    await check_remains(rig, "sink_failed")
    rows = await run_sync(rig.rows)
    broken = "after/small" if where == "put" else "after/large"
    assert [row.cause for row in rows[broken]] == ["sink_failed"]
    assert capture.report.losses["discarded"] == (before[0] + 3, before[1] + 15)
    assert capture.report.failure == str(capture.error)
    assert not capture.report.whole
    assert [end.outcome for end in await run_sync(rig.ends)] == ["failed"]


async def test_every_chunk_is_counted_once_when_a_sink_fails(rig: Rig) -> None:
    sink = FaultySink("put")
    sink.broken = True

    async with rig.raising(SinkError, _BROKEN, rig.pushed(sinks=[sink])) as capture:
        taken = await run_sync(lambda: sum(not rig.push(f"{i % 50}", b"abc") for i in range(2000)))
        taken += await run_sync(lambda: sum(not rig.push(f"{i}", b"abc", last=True) for i in range(50)))
        await capture.wait()
        refused = sum(rig.push("later", b"abc") != 0 for _ in range(10))

    losses = capture.report.losses
    assert losses["sink_failed"].chunks + losses["discarded"].chunks == 2060
    assert losses["sink_failed"].chunks == taken
    assert refused == 10
    assert sum(row.chunks for rows in (await run_sync(rig.rows)).values() for row in rows) == taken


async def test_a_file_that_only_one_sink_took_is_lost_but_known(rig: Rig) -> None:
    sink = FaultySink("put")
    sink.broken = True

    async with rig.raising(SinkError, _BROKEN, rig.pushed(sinks=["zstd:", sink])) as capture:
        rig.push("file", b"data", last=True)
        await capture.wait()

    (row,) = (await run_sync(rig.rows))["file"]
    assert (row.verdict, row.cause) == ("lost", "sink_failed")
    assert [part.sink for part in row.stored] == ["zstd"]
    assert {problem.kind for problem in (await run_sync(rig.verify)).problems} <= _SOUND


async def test_an_exception_in_the_block_is_raised_as_it_is_after_draining(rig: Rig) -> None:
    async with rig.raising(ValueError, "mine", rig.pushed()) as capture:
        await run_sync(push_all, rig, "before")
        raise ValueError("mine")

    assert capture.report.verdicts == {"never_closed": 1, "unparsed": 2}
    assert [end.outcome for end in await run_sync(rig.ends)] == ["finished"]


async def test_a_sink_that_cannot_be_closed_fails_the_capture(rig: Rig) -> None:
    sink = FaultySink("aclose")
    sink.broken = True

    async with rig.raising(SinkError, _BROKEN, rig.pushed(sinks=["zstd:", sink])):
        rig.push("file", b"data", last=True)

    assert (await run_sync(rig.read))["file"].data == b"data"
    assert [end.outcome for end in await run_sync(rig.ends)] == ["failed"]


async def test_a_sink_that_tells_of_too_few_files_fails_the_capture(rig: Rig) -> None:
    class ForgetfulSink(MemorySink):
        async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
            return (await super().put(files))[1:]

    async with rig.raising(SinkError, "returned 0 results", rig.pushed(sinks=[ForgetfulSink()])) as capture:
        rig.push("file", b"data", last=True)

    assert capture.report.losses == {"sink_failed": (1, 4)}


@pytest.mark.parametrize("where", ["put", "aclose"])
async def test_an_exception_in_the_block_comes_before_that_of_a_sink(rig: Rig, where: str) -> None:
    sink = FaultySink(where)
    sink.broken = True

    async with rig.raising(ValueError, "mine", rig.pushed(sinks=[sink])):
        rig.push("file", b"data", last=True)
        raise ValueError("mine")

    assert [end.outcome for end in await run_sync(rig.ends)] == ["failed"]


async def cancel_by_scope(rig: Rig, sink: FaultySink) -> Capture:
    with anyio.CancelScope() as scope:
        async with rig.pushed(sinks=["zstd:", sink]) as capture:
            await start(rig, sink, capture)
            scope.cancel()
            await anyio.sleep_forever()
    return capture


async def cancel_by_asyncio(rig: Rig, sink: FaultySink) -> Capture:
    captures: list[Capture] = []
    running = anyio.Event()

    async def work() -> None:
        async with rig.pushed(sinks=["zstd:", sink]) as capture:
            captures.append(capture)
            await start(rig, sink, capture)
            running.set()
            await anyio.sleep_forever()

    task = asyncio.get_running_loop().create_task(work())
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return captures[0]


async def cancel_while_draining(rig: Rig, sink: FaultySink) -> Capture:
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks, rig.pushed(sinks=["zstd:", sink]) as capture:
            await start(rig, sink, capture)

            async def cancel_soon() -> None:
                await sink.entered.wait()
                scope.cancel()

            tasks.start_soon(cancel_soon)
    return capture


async def cancel_while_draining_by_asyncio(rig: Rig, sink: FaultySink) -> Capture:
    captures: list[Capture] = []

    async def work() -> None:
        async with rig.pushed(sinks=["zstd:", sink]) as capture:
            captures.append(capture)
            await start(rig, sink, capture)

    task = asyncio.get_running_loop().create_task(work())
    await sink.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return captures[0]


async def start(rig: Rig, sink: FaultySink, capture: Capture) -> None:
    """Finish some files, then have the sink stall in the next."""
    await run_sync(push_all, rig, "before")
    await rig.until(lambda: capture.report.files == 2)
    sink.stalled = True
    await run_sync(push_all, rig, "after")
    await sink.entered.wait()


@pytest.mark.parametrize("where", ["put", "open", "write", "commit"])
@pytest.mark.parametrize(
    "cancel", [cancel_by_scope, cancel_by_asyncio, cancel_while_draining, cancel_while_draining_by_asyncio]
)
async def test_a_cancelled_capture_ends_at_once_even_if_a_sink_never_answers(
    rig: Rig, cancel: Callable[[Rig, FaultySink], Awaitable[Capture]], where: str
) -> None:
    sink = FaultySink(where)

    with anyio.fail_after(20):
        capture = await cancel(rig, sink)

    await check_remains(rig, "cancelled")
    rows = await run_sync(rig.rows)
    stalled = "after/small" if where == "put" else "after/large"
    assert [row.cause for row in rows[stalled]] == ["cancelled"]
    assert capture.error is None
    assert capture.report.failure == "cancelled"
    assert [end.outcome for end in await run_sync(rig.ends)] == ["cancelled"]


async def test_an_exception_and_then_a_cancellation_while_draining_end_at_once(rig: Rig) -> None:
    sink = FaultySink("put")
    sink.stalled = True

    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks, rig.pushed(sinks=[sink]) as capture:

            async def cancel_soon() -> None:
                await sink.entered.wait()
                scope.cancel()

            tasks.start_soon(cancel_soon)
            rig.push("file", b"data", last=True)
            raise ValueError

    assert capture.report.losses == {"cancelled": (1, 4)}


async def test_a_cancelled_capture_finalises_the_dump_and_another_can_follow(rig: Rig) -> None:
    endless = Workload(models=1, ops=4, steps=100_000, rate=4 << 20)

    with SimulatedRuntime(endless) as runtime, anyio.fail_after(20), anyio.CancelScope() as scope:
        async with rig.simulated() as cancelled:
            runtime.start()
            await rig.until(lambda: cancelled.report.files > 0)
            scope.cancel()
            await anyio.sleep_forever()
    report = await rig.run(Workload(seed=1), append=True)

    assert cancelled.report.failure == "cancelled"
    assert report.whole
    assert [end.outcome for end in await run_sync(rig.ends)] == ["cancelled", "finished"]
    assert {problem.kind for problem in (await run_sync(rig.verify)).problems} <= _SOUND


async def test_a_callback_that_waits_for_space_is_let_go_when_the_capture_is_cancelled(rig: Rig) -> None:
    sink = FaultySink("put")
    sink.stalled = True

    async def fill() -> None:
        await run_sync(lambda: [rig.push(str(i), bytes(30_000), last=True) for i in range(20)])
        filled.set()

    filled = anyio.Event()
    late_before = _native.late_calls()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                async with rig.pushed(RingOptions(buffer_bytes=1 << 16), sinks=[sink]) as capture:
                    tasks.start_soon(fill)
                    await sink.entered.wait()
                    scope.cancel()
                    await anyio.sleep_forever()
            await filled.wait()

    lost = sum(loss.chunks for cause, loss in capture.report.losses.items() if cause != "late")
    assert lost + _native.late_calls() - late_before == 20  # some may have come after the end of the capture
