"""The block around a program."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import (
    AclError,
    Collect,
    OrderError,
    Profiler,
    ProfileSettings,
    ProfilingInUseError,
    open_profile,
)
from dumpstream.acl.library import Acl, load_acl, load_profiling
from dumpstream.simulation import SimulatedRuntime, Workload
from dumpstream.simulation.workload import opened

from .conftest import LIBRARY, sample

if TYPE_CHECKING:
    import ctypes
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def test_a_block_is_profiled(place: Path) -> None:
    settings = ProfileSettings(devices=[0, 1], extra={"host_sys": "cpu,mem"})

    with SimulatedRuntime() as runtime:
        async with open_profile(place, settings, acl_library=LIBRARY) as profile:
            await run_sync(runtime.run)

    (directory,) = await run_sync(profile.directories)
    assert directory.parent == place
    assert sample(place, 1)["host_sys"] == "cpu,mem"
    assert (await run_sync(place.stat)).st_mode & 0o777 == 0o700


async def test_blocks_follow_one_another_and_do_not_nest(place: Path) -> None:
    async with open_profile(place, acl_library=LIBRARY):
        with pytest.raises(ProfilingInUseError):
            async with open_profile(place, acl_library=LIBRARY):
                pytest.fail("entered")
    async with open_profile(place, acl_library=LIBRARY) as profile:
        pass

    assert len(await run_sync(profile.directories)) == 2


async def test_an_exception_of_the_block_ends_profiling_in_order(profiler: Profiler, place: Path) -> None:
    with pytest.raises(RuntimeError, match="mine"):
        async with open_profile(place, profiler=profiler):
            raise RuntimeError("mine")

    assert not profiler.initialized
    assert sample(place)["device"] == 0


async def test_a_cancelled_block_ends_profiling_in_order(profiler: Profiler, place: Path) -> None:
    with anyio.CancelScope() as scope:
        async with open_profile(place, profiler=profiler):
            scope.cancel()
            await anyio.sleep_forever()

    assert not profiler.initialized
    assert sample(place)["device"] == 0


async def test_a_task_that_is_cancelled_in_the_block_ends_profiling_too(
    profiler: Profiler, place: Path
) -> None:
    inside = anyio.Event()

    async def profile() -> None:
        async with open_profile(place, profiler=profiler):
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.get_running_loop().create_task(profile())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not profiler.initialized
    assert sample(place)["device"] == 0


class SlowProfiler(Profiler):
    """Is slow in the runtime, as on a device that has to be woken up."""

    def __init__(self, acl: Acl) -> None:
        super().__init__(acl)
        self.inside, self.go_on = threading.Event(), threading.Event()

    def init(self, path: Path) -> None:
        super().init(path)
        self.inside.set()
        self.go_on.wait(20)


async def test_a_task_that_is_cancelled_while_entering_leaves_nothing_behind(acl: Acl, place: Path) -> None:
    profiler = SlowProfiler(acl)

    async def profile() -> None:
        async with open_profile(place, profiler=profiler):
            pytest.fail("entered")

    task = asyncio.get_running_loop().create_task(profile())
    await run_sync(profiler.inside.wait, 20)
    task.cancel()
    await anyio.wait_all_tasks_blocked()
    profiler.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not profiler.initialized
    assert profiler.started == ()


async def test_what_fails_while_entering_is_undone(
    profiler: Profiler, library: ctypes.CDLL, place: Path
) -> None:
    unsupported = ProfileSettings(collect=Collect.TASK_TIME)
    object.__setattr__(unsupported, "collect", type("Kinds", (), {"value": 1 << 40})())

    with pytest.raises(AclError, match="200007"):
        async with open_profile(place, unsupported, profiler=profiler):
            pytest.fail("entered")

    assert not profiler.initialized
    assert library.aclprofFinalize() == 100043


async def test_an_end_that_fails_is_raised_and_the_rest_is_done(
    profiler: Profiler, library: ctypes.CDLL, place: Path
) -> None:
    with pytest.raises(AclError, match="aclprofStop returned 100043"):
        async with open_profile(place, profiler=profiler):
            library.aclprofFinalize()  # by the program

    assert not profiler.initialized
    assert profiler.started == ()


async def test_a_profiler_that_is_in_use_stays_so(profiler: Profiler, place: Path) -> None:
    await run_sync(profiler.init, place)

    with pytest.raises(OrderError):
        async with open_profile(place, profiler=profiler):
            pytest.fail("entered")

    assert profiler.initialized


async def test_on_cann_master_a_block_is_profiled_too(library: ctypes.CDLL, place: Path) -> None:
    with opened(Workload(cann="master")) as handle:
        library.dssim_load(handle)

    for _ in range(2):
        async with open_profile(place, acl_library=LIBRARY) as profile:
            pass

    assert len(await run_sync(profile.directories)) == 2


def test_loading_for_profiling_is_loading_for_dumping_too() -> None:
    assert load_profiling(LIBRARY).paths == load_acl(LIBRARY).paths
