"""Captures whose files a process of its own stores: the same as those of this process, and what differs."""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.to_thread import run_sync
from tests.conftest import LIMIT_S

import dumpstream
from dumpstream import StoredCapture, _errors, open_capture
from dumpstream.reading.stored import State
from dumpstream.reading.verification import verify
from dumpstream.simulation import SimulatedRuntime, Workload
from dumpstream.sinks.memory import MemorySink

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tests.capture.conftest import Rig

    from dumpstream import Capture

pytestmark = pytest.mark.anyio


def companions() -> list[int]:
    """Return the processes that this one has started to store captures."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
            words = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(rest.split()[1]) == os.getpid() and b"dumpstream.companion" in words:
            found.append(int(name.split()[0]))
    return found


def apart(rig: Rig, **options: Any) -> AbstractAsyncContextManager[Capture]:
    """Capture what the test pushes, stored by a companion."""
    options = {"buffer_bytes": 4 << 20, "own_process": True} | options
    return open_capture(rig.path, acl_library=rig.library, **options)


async def test_a_process_of_its_own_stores_the_files_and_ends_with_the_capture(rig: Rig) -> None:
    workload = Workload(ops=8)

    with SimulatedRuntime(workload) as runtime:
        async with rig.simulated(own_process=True) as capture:
            (companion,) = await run_sync(companions)
            await run_sync(runtime.run)

    assert capture.report.own_process
    assert capture.report.whole
    assert companion not in await run_sync(companions)
    read = await run_sync(rig.read)
    assert {name: file.data for name, file in read.items()} == {
        file.name: file.data for file in workload.expected_files(rig.dump_path)
    }


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sinks": [MemorySink()]}, "sinks= has objects"),
        ({"sinks": ["memory:"]}, "sinks of other packages"),
    ],
)
async def test_what_needs_this_process_stays_here(rig: Rig, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        async with apart(rig, **options):
            pass
    async with apart(rig, own_process=False, **options) as capture:
        pass

    assert not capture.report.own_process


async def test_errors_are_those_of_a_capture_in_this_process(rig: Rig) -> None:
    text = json.dumps({"dump": {"dump_path": "/nowhere", "dump_mode": "sideways"}})
    await run_sync(rig.config.write_text, text)
    with pytest.raises(_errors.ConfigError, match="dump_mode") as config:
        async with rig.simulated(own_process=True):
            pass
    await run_sync(rig.path.mkdir)
    await run_sync((rig.path / "somebody-else").write_bytes, b"")
    with pytest.raises(_errors.DestinationError) as destination:
        async with open_capture(rig.path, acl_library=rig.library, own_process=True):
            pass

    assert config.value.problems
    assert destination.value.path == rig.path
    assert await run_sync(companions) == []


async def test_a_second_capture_is_refused_and_leaves_nothing(rig: Rig, tmp_path: Path) -> None:
    async with apart(rig):
        with pytest.raises(_errors.CaptureInUseError):
            async with open_capture(tmp_path / "second", acl_library=rig.library, own_process=True):
                pass

    assert not (tmp_path / "second").exists()


async def test_a_runtime_that_refuses_undoes_everything(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(_errors.LibraryNotFoundError):
        async with open_capture(rig.path, acl_library=tmp_path / "missing.so", own_process=True):
            pass

    assert not rig.path.exists()


@pytest.mark.parametrize("buffer_file", [False, True])
async def test_what_a_killed_program_had_dumped_is_stored(rig: Rig, *, buffer_file: bool) -> None:
    """The ring outlives the program: not one chunk that the callback took is lost."""
    program = """
import os, signal, sys, anyio
from pathlib import Path
from dumpstream import _native, open_capture

async def main(out, library, ring):
    options = {"buffer_file": ring} if ring else {}
    async with open_capture(out, acl_library=library, buffer_bytes=8 << 20, own_process=True, **options):
        import ctypes
        data = ctypes.create_string_buffer(bytes(10_000))
        for number in range(500):
            assert _native.push(f"file-{number}".encode(), ctypes.addressof(data), 10_000, True, -1, 0) == 0
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main, *sys.argv[1:])
"""
    ring = str(rig.path.parent / "ring") if buffer_file else ""
    command = [sys.executable, "-c", program, str(rig.path), str(rig.library), ring]
    done = await run_sync(lambda: subprocess.run(command, check=False, timeout=LIMIT_S))
    with anyio.fail_after(LIMIT_S):
        while (await run_sync(StoredCapture.open, rig.path)).state is State.RUNNING:  # noqa: ASYNC110
            await anyio.sleep(0.01)

    stored = await run_sync(StoredCapture.open, rig.path)
    (end,) = await run_sync(rig.ends)
    assert done.returncode == -signal.SIGKILL
    assert {name: file.data for name, file in (await run_sync(rig.read)).items()} == {
        f"file-{number}": bytes(10_000) for number in range(500)
    }
    assert end.outcome == "failed"
    assert "did not leave the capture" in end.report["failure"]
    assert not (await run_sync(verify, stored)).whole
    assert not ring or not os.path.exists(ring)  # noqa: ASYNC240, PTH110 - a moment


async def test_a_companion_that_is_killed_ends_the_capture_but_not_the_program(rig: Rig) -> None:
    async with rig.raising(_errors.CompanionError, "killed by SIGKILL", apart(rig)) as capture:
        (companion,) = await run_sync(companions)
        os.kill(companion, signal.SIGKILL)
        await capture.wait()
        refused = await run_sync(lambda: rig.push("late", bytes(100), last=True))

    assert refused
    assert capture.report.losses["discarded"] == (1, 100)
    assert capture.report.failure is not None
    assert (await run_sync(StoredCapture.open, rig.path)).state is State.INTERRUPTED


async def test_a_callback_does_not_wait_for_a_companion_that_is_gone(rig: Rig) -> None:
    async with rig.raising(_errors.CompanionError, "killed", apart(rig, block_timeout=10_000)):
        (companion,) = await run_sync(companions)
        os.kill(companion, signal.SIGSTOP)

        def fill() -> None:
            while not rig.push("file", bytes(1 << 20)):
                pass

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_sync, fill)
            await anyio.sleep(0.2)
            os.kill(companion, signal.SIGKILL)


async def test_a_sink_that_fails_there_is_told_here(rig: Rig) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, before[1]))
    try:
        opened = apart(rig)
        async with rig.raising(_errors.SinkError, "File too large", opened) as capture:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            await run_sync(lambda: rig.push("large", os.urandom(16 << 20), last=True))
            await capture.wait()
            assert isinstance(capture.error, _errors.SinkError)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert sum(loss.chunks for loss in capture.report.losses.values()) == 1


async def test_signals_to_the_group_of_the_program_do_not_end_its_companion(rig: Rig) -> None:
    async with apart(rig) as capture:
        (companion,) = await run_sync(companions)
        assert os.getpgid(companion) != os.getpgid(0)
        rig.push("file", b"bytes", last=True)

    assert capture.report.whole


async def test_a_forked_child_does_not_keep_the_companion(rig: Rig) -> None:
    async with apart(rig) as capture:
        child = os.fork()
        if child == 0:
            signal.pause()
        rig.push("file", b"bytes", last=True)
    os.kill(child, signal.SIGKILL)
    await run_sync(os.waitpid, child, 0)

    assert capture.report.files == 1


@pytest.mark.parametrize(
    "error",
    [
        _errors.AclError("aclInit", 100001),
        _errors.ConfigError(Path("acl.json"), ()),
        _errors.DestinationInUseError("run", 7),
        _errors.DumpFormatError("is short", 3, source="file"),
        _errors.StoreError("away", away=True),
        _errors.CompanionError("exit code 1"),
    ],
)
def test_errors_can_be_sent(error: dumpstream.DumpstreamError) -> None:
    error.add_note("how it came")

    sent = pickle.loads(pickle.dumps(error))

    assert type(sent) is type(error)
    assert str(sent) == str(error)
    assert vars(sent) == vars(error)
