"""A capture that asyncio itself cancels, which no shield holds off, at every moment of its life."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import RingOptions, RingSource, open_capture
from dumpstream.archive.manifest import MANIFEST, read_manifest
from dumpstream.archive.rows import JOURNAL, BeginRow, EndRow, read_journal
from dumpstream.simulation import SimulatedRuntime, Workload
from dumpstream.system.lock import lock_holder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.capture.conftest import Rig

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

_RING_BYTES = 1 << 16
_MOMENTS = range(1, 120, 7)
_STEP_S = 0.0004
_INITIALISED = 100002


async def cancel_once(work: Callable[[], Awaitable[None]], moment: int) -> None:
    task = asyncio.ensure_future(work())
    await asyncio.sleep(moment * _STEP_S)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def cancel_often(work: Callable[[], Awaitable[None]], moment: int) -> None:
    task = asyncio.ensure_future(work())
    await asyncio.sleep(moment * _STEP_S)
    while not task.done():
        task.cancel()
        await asyncio.sleep(_STEP_S)
    with suppress(asyncio.CancelledError):
        task.result()


async def time_out(work: Callable[[], Awaitable[None]], moment: int) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(moment * _STEP_S):
            await work()


def check_remains(path: Path) -> list[str]:
    """Return what is wrong with a capture that has been cancelled."""
    if not path.exists():
        return []
    rows = list(read_journal(path / JOURNAL))
    runs = read_manifest(path).runs
    begun = sum(isinstance(row, BeginRow) for row in rows)
    ended = sum(isinstance(row, EndRow) for row in rows)
    problems = {
        "its lock is held": lock_holder(path) is not None,
        "a run has no line at its end": not begun == ended == len(runs) == 1,
        "a run has no outcome": any(run.outcome is None for run in runs),
    }
    return [problem for problem, found in problems.items() if found]


def count_descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("cancel", [cancel_once, cancel_often, time_out])
async def test_whenever_it_is_cancelled_nothing_is_left_behind(
    rig: Rig, cancel: Callable[[Callable[[], Awaitable[None]], int], Awaitable[None]]
) -> None:
    async def work() -> None:
        async with rig.simulated(buffer_bytes=_RING_BYTES):
            await run_sync(runtime.run)

    problems: list[tuple[int, list[str]]] = []
    directory = rig.path
    await rig.run(Workload(steps=1), buffer_bytes=_RING_BYTES)  # whatever is made once is made now
    before = await run_sync(count_descriptors)
    for moment in _MOMENTS:
        rig.path = directory.with_name(f"moment{moment}")
        with SimulatedRuntime(Workload(steps=2)) as runtime:
            await cancel(work, moment)
            found = await run_sync(check_remains, rig.path)
            if runtime.library.aclmdlInitDump() == _INITIALISED:
                found.append("the dump goes on")
            runtime.library.aclmdlFinalizeDump()
        problems += [(moment, found)] if found else []
    after = await run_sync(count_descriptors)

    assert problems == []
    assert after <= before
    assert (await rig.run(Workload(), append=True, buffer_bytes=_RING_BYTES)).whole


async def test_the_same_directory_can_be_captured_to_after_any_timeout(rig: Rig) -> None:
    ring = RingOptions(buffer_bytes=_RING_BYTES)

    for moment in range(0, 60, 3):
        with suppress(TimeoutError):
            async with asyncio.timeout(moment * _STEP_S), rig.pushed(ring, append=True):
                pass
        async with rig.pushed(ring, append=True):
            rig.push("file", b"data", last=True)

    assert (await run_sync(rig.read))["file"].data == b"data" * 20


async def test_cancelled_before_its_run_begins_it_leaves_no_trace(rig: Rig) -> None:
    class SlowSource(RingSource):
        async def __aenter__(self) -> Self:
            await super().__aenter__()
            entered.set()
            with anyio.CancelScope(shield=True):
                await let_go.wait()
            return self

    async def work() -> None:
        async with open_capture(rig.path, source=SlowSource(RingOptions(buffer_bytes=_RING_BYTES))):
            pytest.fail("entered")

    entered, let_go = anyio.Event(), anyio.Event()
    task = asyncio.ensure_future(work())
    await entered.wait()
    during = await run_sync(lock_holder, rig.path)
    task.cancel()
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert during == os.getpid()
    assert not await run_sync((rig.path / MANIFEST).exists)
    assert not await run_sync(rig.path.exists)
