from __future__ import annotations

import os
import signal
import subprocess
import sys

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream.processes.liveness import (
    ProcessHandle,
    _unreaped_status,
    ending_text,
    exit_code,
    signal_name,
)

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
sys.stdin.read()
"""


def spawn(code: str) -> int:
    return os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)


def collect(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def spawn_zombie(code: str) -> int:
    pid = spawn(code)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def spawn_grandchild(code: str) -> tuple[subprocess.Popen[bytes], int]:
    """Return a process, which collects its children at once, and such a child that runs *code*."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


async def wait_for(process: ProcessHandle) -> int | None:
    ended = anyio.Event()
    process.when_ended(ended.set)
    with anyio.fail_after(20):
        await ended.wait()
    return await process.status()


@pytest.mark.parametrize(
    ("code", "ending", "shell"),
    [
        ("raise SystemExit(0)", "exit code 0", 0),
        ("raise SystemExit(41)", "exit code 41", 41),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL", 137),
        ("import os; os.kill(os.getpid(), 15)", "killed by SIGTERM", 143),
    ],
)
async def test_the_end_of_a_child_is_known_exactly_and_it_can_still_be_collected(
    code: str, ending: str, shell: int
) -> None:
    pid = spawn(code)

    with ProcessHandle(pid) as process:
        status = await wait_for(process)

    assert status is not None
    assert (ending_text(status), exit_code(status)) == (ending, shell)
    assert collect(pid) == status


async def test_the_end_of_a_stranger_is_known_or_called_unknown() -> None:
    parent, pid = spawn_grandchild("import time; time.sleep(30)")
    with parent, ProcessHandle(pid) as process:
        assert process.alive
        os.kill(pid, signal.SIGUSR1)

        status = await wait_for(process)

        assert not process.alive
        assert ending_text(status) in ("killed by SIGUSR1", ending_text(None))


async def test_a_zombie_tells_how_it_ended_until_it_is_collected() -> None:
    pid = spawn_zombie("raise SystemExit(9)")

    status = await run_sync(_unreaped_status, pid)

    collect(pid)
    assert status == 9 << 8
    assert await run_sync(_unreaped_status, pid) is None
    assert await run_sync(_unreaped_status, os.getpid()) is None


async def test_signals_reach_the_process_and_none_that_has_ended() -> None:
    pid = spawn("import time; time.sleep(30)")
    with ProcessHandle(pid) as process:
        process.send_signal(signal.SIGTERM)
        status = await wait_for(process)
        collect(pid)

        process.send_signal(signal.SIGTERM)

    assert ending_text(status) == "killed by SIGTERM"


async def test_what_does_not_exist_cannot_be_watched() -> None:
    pid = spawn("")
    collect(pid)

    with pytest.raises(ProcessLookupError):
        ProcessHandle(pid)


async def test_signals_without_a_name_have_their_number() -> None:
    assert signal_name(9) == "SIGKILL"
    assert signal_name(40) == "signal 40"
