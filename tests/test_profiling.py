"""Profiling: every rule with its refused and its allowed twin, and the block around a program."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import (
    AclError,
    AicoreMetric,
    Collect,
    Lifecycle,
    OrderError,
    Profiler,
    ProfileSettings,
    ProfilingError,
    ProfilingInUseError,
    ProfilingWarning,
    Subscriber,
    open_profile,
)
from dumpstream.acl import Acl, load_acl, load_profiling
from dumpstream.profiling.settings import EXTRAS
from dumpstream.simulation import SimulatedRuntime, Workload, simulated_library
from dumpstream.simulation.workload import opened

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

LIBRARY = simulated_library()

#: Some are right for one setting, some for another, some for none.
_VALUES = [
    "1",
    "0",
    "50",
    "51",
    "100",
    "101",
    "10000",
    "10001",
    "200MB",
    "199MB",
    "cpu",
    "cpu,mem",
    "cpu,",
    "read",
]

_ONE, _OTHER = ProfileSettings(), ProfileSettings(devices=[1])


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """A runtime that remembers nothing, and a turn that no other process of this machine wants."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    library = SimulatedRuntime().library
    library.dssim_reset()
    yield library
    library.dssim_reset()


@pytest.fixture
def acl() -> Acl:
    return load_profiling(LIBRARY)


@pytest.fixture
def profiler(acl: Acl, tmp_path: Path) -> Iterator[Profiler]:
    profiler = Profiler(acl)
    yield profiler
    profiler.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "profile"


def sample(place: Path, device: int = 0) -> dict[str, Any]:
    """Return what the runtime was told about *device*."""
    (path,) = place.glob(f"PROF_*/device_{device}/sample.json")
    result: dict[str, Any] = json.loads(path.read_text())
    return result


# The order of calls


def test_calls_in_the_right_order_collect(profiler: Profiler, place: Path) -> None:
    profiler.init(place)
    profiler.set_config("storage_limit", "500MB")
    profiler.start(_ONE)
    profiler.ran()
    profiler.stop(_ONE)
    profiler.finalize()

    assert sample(place)["storage_limit"] == "500MB"
    assert not profiler.initialized


def test_the_message_shows_the_right_order(profiler: Profiler) -> None:
    with pytest.raises(OrderError) as raised:
        profiler.start(_ONE)

    assert raised.value.call == "aclprofStart"
    assert str(raised.value).startswith(
        "aclprofStart: aclprofInit has not been called; the order is: aclInit, "
    )


def test_init_before_acl_init_is_refused(acl: Acl, place: Path) -> None:
    with pytest.raises(OrderError, match="aclInit has not been called"):
        Profiler(acl, Lifecycle(acl)).init(place)


def test_a_configuration_of_acl_init_that_profiles_excludes_everything(
    acl: Acl, tmp_path: Path, place: Path
) -> None:
    config = tmp_path / "acl.json"
    config.write_text('{"profiler": {"switch": "on"}}')
    lifecycle = Lifecycle(acl)
    lifecycle.init(config)
    profiler = Profiler(acl, lifecycle)

    with pytest.raises(OrderError, match="take the profiler section out"):
        profiler.init(place)
    with pytest.raises(OrderError, match="take the profiler section out"):
        Subscriber(profiler).count_operators(b"")


def test_what_the_configuration_of_acl_init_said_counts_though_the_file_has_changed(
    acl: Acl, tmp_path: Path, place: Path
) -> None:
    config = tmp_path / "acl.json"
    config.write_text('{"profiler": {"switch": "on"}}')
    lifecycle = Lifecycle(acl)
    lifecycle.init(config)
    config.write_text("{}")

    with pytest.raises(OrderError, match="take the profiler section out"):
        Profiler(acl, lifecycle).init(place)


@pytest.mark.parametrize(
    "content", ['{"profiler": {"switch": "off"}}', '{"profiler": {}}', '{"profiler": 1}', "{}", ""]
)
def test_a_configuration_of_acl_init_that_does_not_profile_excludes_nothing(
    acl: Acl, tmp_path: Path, place: Path, content: str
) -> None:
    config = tmp_path / "acl.json"
    config.write_text(content)
    lifecycle = Lifecycle(acl)
    lifecycle.init(config)
    profiler = Profiler(acl, lifecycle)

    profiler.init(place)

    assert profiler.initialized
    profiler.finalize()


def test_what_acl_init_did_unseen_the_runtime_says(
    profiler: Profiler, library: ctypes.CDLL, tmp_path: Path, place: Path
) -> None:
    config = tmp_path / "acl.json"
    config.write_text('{"profiler": {"switch": "on"}}')
    library.aclInit(os.fsencode(config))

    with pytest.raises(AclError, match="100042"):
        profiler.init(place)

    assert not profiler.initialized


@pytest.mark.parametrize("call", ["start", "stop", "finalize", "set_config"])
def test_nothing_goes_before_init(profiler: Profiler, call: str) -> None:
    calls: dict[str, Callable[[], None]] = {
        "start": lambda: profiler.start(_ONE),
        "stop": lambda: profiler.stop(_ONE),
        "finalize": profiler.finalize,
        "set_config": lambda: profiler.set_config("dvpp_freq", "1"),
    }

    with pytest.raises(OrderError, match="aclprofInit has not been called"):
        calls[call]()


def test_late_calls_warn_that_data_is_missing(profiler: Profiler, place: Path) -> None:
    profiler.lifecycle.loaded("resnet")
    with pytest.warns(ProfilingWarning, match="loaded before aclprofInit"):
        profiler.init(place)
    profiler.ran()
    with pytest.warns(ProfilingWarning, match="ran before aclprofStart"):
        profiler.start(_ONE)


def test_several_devices_at_once(profiler: Profiler, place: Path) -> None:
    settings = ProfileSettings(devices=[2, 5], collect=Collect.AICPU, metric=AicoreMetric.NONE)
    profiler.init(place)

    profiler.start(settings)
    profiler.stop(settings)

    assert sample(place, 2) == {"device": 2, "data_types": 8, "aicore_metrics": 255}
    assert sample(place, 5)["device"] == 5


def test_a_device_twice_is_refused_until_it_is_stopped(profiler: Profiler, place: Path) -> None:
    again = ProfileSettings(devices=[0, 1], collect=Collect.AICPU)
    profiler.init(place)
    profiler.start(_ONE)

    with pytest.raises(OrderError, match="device 0 is being collected"):
        profiler.start(again)

    profiler.stop(_ONE)
    profiler.start(again)
    assert profiler.started == (again,)


def test_the_same_configuration_twice_is_refused(profiler: Profiler, place: Path) -> None:
    ranges = ProfileSettings(devices=[], collect=Collect.MSPROFTX)
    profiler.init(place)
    profiler.start(ranges)

    with pytest.raises(OrderError, match="the same is being collected"):
        profiler.start(ranges)


def test_other_devices_may_follow_with_a_warning(profiler: Profiler, place: Path) -> None:
    profiler.init(place)
    profiler.start(_ONE)

    with pytest.warns(ProfilingWarning, match="name all devices in the first"):
        profiler.start(_OTHER)

    assert profiler.started == (_ONE, _OTHER)


@pytest.mark.parametrize(
    "other",
    [
        ProfileSettings(devices=[0, 1]),
        ProfileSettings(collect=Collect.AICPU),
        ProfileSettings(metric=AicoreMetric.L2_CACHE),
    ],
)
def test_stop_must_match_its_start(profiler: Profiler, place: Path, other: ProfileSettings) -> None:
    profiler.init(place)
    profiler.start(_ONE)

    with pytest.raises(OrderError, match="nothing was started with these settings"):
        profiler.stop(other)

    profiler.stop(ProfileSettings(extra={"dvpp_freq": "1"}))  # which are not the start's
    assert profiler.started == ()


def test_settings_come_before_the_start(profiler: Profiler, place: Path) -> None:
    profiler.init(place)
    profiler.start(_ONE)

    with pytest.raises(OrderError, match="only before"):
        profiler.set_config("dvpp_freq", "10")

    profiler.stop(_ONE)
    profiler.set_config("dvpp_freq", "10")


def test_finalize_waits_for_the_stop(profiler: Profiler, place: Path) -> None:
    profiler.init(place)
    profiler.start(_ONE)

    with pytest.raises(OrderError, match="stop what was started"):
        profiler.finalize()

    profiler.stop(_ONE)
    profiler.finalize()
    assert not profiler.initialized


def test_the_path_changes_with_another_init(profiler: Profiler, tmp_path: Path) -> None:
    profiler.init(tmp_path / "first")
    with pytest.raises(OrderError, match="finalise it to change its path"):
        profiler.init(tmp_path / "second")

    profiler.finalize()
    profiler.init(tmp_path / "second")
    profiler.start(_ONE)
    profiler.stop(_ONE)

    assert sample(tmp_path / "second")["device"] == 0


def test_acl_is_finalized_after_profiling_and_its_answer_counts(
    acl: Acl, library: ctypes.CDLL, place: Path
) -> None:
    lifecycle = Lifecycle(acl)
    lifecycle.init()
    profiler = Profiler(acl, lifecycle)
    profiler.init(place)
    with pytest.raises(OrderError, match="profiling is not finalised"):
        lifecycle.finalize()

    profiler.finalize()
    library.aclFinalize()  # somebody else's

    with pytest.raises(AclError, match="100037"):
        lifecycle.finalize()


# Subscriptions


def test_subscriptions_and_profiling_exclude_each_other(profiler: Profiler, place: Path) -> None:
    subscriber = Subscriber(profiler)
    subscriber.subscribe(0, 1)
    with pytest.raises(OrderError, match="a model is subscribed"):
        profiler.init(place)

    subscriber.unsubscribe(0)
    profiler.init(place)

    for call in (
        lambda: subscriber.subscribe(0, 1),
        lambda: subscriber.unsubscribe(0),
        lambda: subscriber.count_operators(bytes(128)),
    ):
        with pytest.raises(OrderError, match="profiling is initialised"):
            call()


def test_a_model_is_subscribed_once_and_unsubscribed_once(profiler: Profiler) -> None:
    subscriber = Subscriber(profiler)
    subscriber.subscribe(1, 1)

    with pytest.raises(OrderError, match="model 1 is subscribed"):
        subscriber.subscribe(1, 1)
    assert subscriber.count_operators(bytes(256)) == 2
    subscriber.unsubscribe(1)
    with pytest.raises(OrderError, match="model 1 is not subscribed"):
        subscriber.unsubscribe(1)


def test_a_model_that_does_not_exist_is_the_runtimes_to_refuse(profiler: Profiler) -> None:
    with pytest.raises(AclError, match="100011"):
        Subscriber(profiler).subscribe(77, 1)

    assert profiler.subscribed == set()


# One process at a time


def test_a_second_profiler_of_the_process_is_refused(profiler: Profiler, acl: Acl, place: Path) -> None:
    other = Profiler(acl)
    profiler.init(place)

    with pytest.raises(ProfilingInUseError, match="this process is profiling") as raised:
        other.init(place)
    profiler.finalize()
    other.init(place)
    other.finalize()

    assert raised.value.pid == os.getpid()


def test_another_process_is_named_until_it_has_finalized(profiler: Profiler, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from dumpstream import Profiler; from dumpstream.acl import load_profiling\n"
        f"profiler = Profiler(load_profiling({str(LIBRARY)!r}))\n"
        f"profiler.init(pathlib.Path({str(tmp_path / 'theirs')!r}))\n"
        "print('begun', flush=True); sys.stdin.read(); profiler.finalize()"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as other:
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == "begun\n"

        with pytest.raises(ProfilingInUseError, match=f"process {other.pid} is profiling") as raised:
            profiler.init(tmp_path / "ours")
        other.stdin.close()
        assert other.wait(20) == 0

    assert raised.value.pid == other.pid
    profiler.init(tmp_path / "ours")


def test_a_refused_init_does_not_keep_the_turn(profiler: Profiler, acl: Acl, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(AclError, match="100003"):
        profiler.init(tmp_path / "file")

    other = Profiler(acl)
    other.init(tmp_path / "profile")
    other.finalize()


def test_a_lock_that_somebody_planted_is_refused(profiler: Profiler, tmp_path: Path, place: Path) -> None:
    (tmp_path / f"dumpstream-profiling-{os.getuid()}").symlink_to(tmp_path)

    with pytest.raises(ProfilingError, match="remove what is there or set TMPDIR"):
        profiler.init(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_lock_of_somebody_else_is_refused(profiler: Profiler, tmp_path: Path, place: Path) -> None:
    lock = tmp_path / f"dumpstream-profiling-{os.getuid()}"
    lock.mkdir()
    os.chown(lock, 12345, 12345)

    with pytest.raises(ProfilingError, match="belongs to somebody else"):
        profiler.init(place)


# Settings


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"devices": []}, "name at least one"),
        ({"devices": [1, 1]}, "each may be named once"),
        ({"devices": [64]}, "from 0 to 63"),
        ({"devices": [-1]}, "from 0 to 63"),
        ({"collect": Collect(0)}, "name something"),
        ({"extra": {"nonsense": "1"}}, "no setting 'nonsense'; it has storage_limit"),
        ({"extra": {"dvpp_freq": "0"}}, "a number of Hz from 1 to 100"),
        ({"extra": {"optype": "x" * 257}}, "in at most 256 bytes"),
        ({"extra": {"optype": "a\0b"}}, "types of operators"),
        ({"extra": {"llc_mode": "read"}}, "needs sys_hardware_mem_freq"),
    ],
)
def test_settings_that_cann_would_refuse_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ProfileSettings(**settings)


@pytest.mark.parametrize("name", EXTRAS)
def test_a_value_is_taken_if_the_runtime_takes_it(
    profiler: Profiler, library: ctypes.CDLL, place: Path, name: str
) -> None:
    number, accepts = EXTRAS[name].number, EXTRAS[name].accepts
    profiler.init(place)

    codes = {value: library.aclprofSetConfig(number, value.encode(), len(value)) for value in _VALUES}

    assert {value for value in _VALUES if accepts(value)} == {value for value in _VALUES if not codes[value]}


def test_an_empty_value_is_none() -> None:
    assert not any(extra.accepts("") for extra in EXTRAS.values())


def test_a_path_longer_than_cann_takes_is_refused(profiler: Profiler, place: Path) -> None:
    with pytest.raises(ProfilingError, match="use up to 4095"):
        profiler.init(place / ("x" * 4096))


def test_dynamic_profiling_from_outside_excludes_it(
    profiler: Profiler, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFILING_MODE", "dynamic")

    with pytest.raises(ProfilingError, match="unset it"):
        profiler.init(place)


# The libraries


def test_a_library_that_cannot_profile_is_refused_with_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "int acldumpRegCallback(void *callback, int flag) { return !callback + flag; }"
    path = tmp_path / "libdumponly.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
    code = f"from dumpstream.acl import load_profiling; load_profiling({str(path)!r})"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    message = result.stderr.splitlines()[-1]
    assert "ProfilingError: no library can profile; tried" in message
    assert f"{path} (has no aclprofInit)" in message
    assert "libmsprofiler.so" in message
    assert "Source the set_env.sh" in message


def test_the_profiler_of_the_installation_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lib64"
    folder.mkdir()
    for name, function in (("libascend_dump.so", "acldumpRegCallback"), ("libmsprofiler.so", "aclprofInit")):
        source = f"int {function}(void) {{ return 0; }}"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / name)]
        subprocess.run(command, input=source, text=True, check=True)
    code = (
        "from dumpstream.acl import load_profiling; acl = load_profiling()\n"
        "acl.call('aclprofInit'); print(acl.paths[-1])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"ASCEND_HOME_PATH": str(tmp_path)},
    )

    assert result.stdout == f"{folder / 'libmsprofiler.so'}\n"


# The block


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
    """Takes its time in the runtime, as on a device that has to be woken up."""

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
            library.aclprofFinalize()  # somebody else's

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
