"""The companion of a capture: killed, signalled and cancelled at any moment, and started anywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.to_thread import run_sync
from tests.capture.test_own_process import apart, companions
from tests.conftest import LIMIT_S

from dumpstream import StoredCapture
from dumpstream.reading.stored import State

if TYPE_CHECKING:
    from tests.capture.conftest import Rig

pytestmark = pytest.mark.anyio

#: Captures `file`, in the loop that is called `run`.
_PROGRAM = """
import ctypes, os, signal, sys, anyio
from dumpstream import _native, open_capture

def push(name):
    data = ctypes.create_string_buffer(bytes(10_000))
    assert _native.push(name, ctypes.addressof(data), 10_000, True, -1, 0) == 0

async def main():
    async with open_capture(
        sys.argv[1], acl_library=sys.argv[2], buffer_bytes=1 << 20, own_process=True
    ) as capture:
        push(b"file")
    assert capture.report.files == 1
"""


async def run_program(rig: Rig, text: str, *options: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run a program of its own, with the destination and the library as its arguments."""
    command = [sys.executable, *options, "-c", _PROGRAM + text, str(rig.path), str(rig.library)]
    return await run_sync(
        lambda: subprocess.run(
            command, check=False, timeout=LIMIT_S, text=True, stderr=subprocess.PIPE, **kwargs
        )
    )


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
async def test_a_signal_to_every_process_of_a_service_does_not_end_it(rig: Rig, number: int) -> None:
    async with apart(rig) as capture:
        (companion,) = await run_sync(companions)
        os.kill(companion, number)
        rig.push("file", b"bytes", last=True)

    assert capture.report.whole
    assert capture.report.files == 1


@pytest.mark.parametrize("paths", ["[__import__('pathlib').Path('/tmp'), None]", "[b'/tmp']"])
async def test_a_path_that_is_not_text_is_no_path_of_the_companion(rig: Rig, paths: str) -> None:
    done = await run_program(rig, f"sys.path[:0] = {paths}\nanyio.run(main)")

    assert done.returncode == 0, done.stderr


async def test_files_of_the_program_do_not_take_the_place_of_modules(rig: Rig, tmp_path: Path) -> None:
    """The program itself has imported what it needs; its companion imports everything again."""
    place = tmp_path / "modules"
    await run_sync(place.mkdir)
    for name in ("socket", "struct", "pickle", "runpy", "queue", "secrets", "statistics"):
        await run_sync((place / f"{name}.py").write_text, "raise SystemExit('not this one')")
    done = await run_program(rig, f"sys.path.insert(0, {str(place)!r})\nanyio.run(main)")

    assert done.returncode == 0, done.stderr


async def test_a_companion_that_cannot_be_started_is_told(rig: Rig) -> None:
    done = await run_program(
        rig,
        """
from dumpstream import CompanionError
sys.path.append("/" + "long" * 100_000)
try:
    anyio.run(main)
except CompanionError as exc:
    print(exc, file=sys.stderr)
""",
    )

    assert done.returncode == 0, done.stderr
    assert "Argument list too long" in done.stderr


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_a_program_dumped_that_is_killed_on_entering_is_stored(rig: Rig, when: str) -> None:
    """The callback takes chunks before the capture is open: the runtime may call it from any thread."""
    done = await run_program(
        rig,
        f"""
from dumpstream.run import apart
ask = apart._ask
async def killed(interpreter, kind, value):
    if kind == "begin":
        push(b"early")
        if {when == "after"}:
            await interpreter.channel.send(kind, value)
        os.kill(os.getpid(), signal.SIGKILL)
    return await ask(interpreter, kind, value)
apart._ask = killed
anyio.run(main)
""",
    )
    assert done.returncode == -signal.SIGKILL
    await until_over(rig)

    (end,) = await run_sync(rig.ends)
    assert list(await run_sync(rig.read)) == ["early"]
    assert end.outcome == "failed"
    assert "did not leave the capture" in end.report["failure"]


async def change_companion(directory: Path, text: str) -> None:
    """Let companions that find modules in *directory* run *text* first."""
    condition = "import sys\nif 'dumpstream.companion' in sys.orig_argv:\n"
    await run_sync((directory / "sitecustomize.py").write_text, condition + text)


async def until_over(rig: Rig) -> None:
    """Wait for the end of the companion of a program that was killed."""
    with anyio.fail_after(LIMIT_S):
        while not rig.path.exists() or (await run_sync(StoredCapture.open, rig.path)).state is State.RUNNING:  # noqa: ASYNC110
            await anyio.sleep(0.01)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
async def test_a_program_without_standard_streams_captures(rig: Rig, closed: tuple[int, ...]) -> None:
    log = rig.path.parent / "log"
    done = await run_program(
        rig,
        f"""
for number in {closed}:
    os.close(number)
try:
    anyio.run(main)
except BaseException as exc:
    open({str(log)!r}, "w").write(repr(exc))
    raise
""",
    )

    assert done.returncode == 0, log.read_text()


async def test_an_error_of_the_companion_ends_the_capture(rig: Rig, tmp_path: Path) -> None:
    """Whatever fails there, also what is not foreseen, ends the capture here instead of leaving it open."""
    await change_companion(
        tmp_path,
        """
    from dumpstream.run.session import Session
    async def fail(self):
        raise RuntimeError('unforeseen')
    Session._close_each = fail
""",
    )
    done = await run_program(
        rig,
        f"""
sys.path.insert(0, {str(tmp_path)!r})
try:
    anyio.run(main)
except Exception as exc:
    print(repr(exc), file=sys.stderr)
""",
    )

    assert done.returncode == 0
    assert "CompanionError" in done.stderr
    assert "unforeseen" in done.stderr


@pytest.mark.parametrize(
    "waits",
    [
        "from dumpstream.pipeline import Pipeline as changed; method = 'run'",
        "from dumpstream.run.session import Session as changed; method = '_close_each'",
    ],
    ids=["drains", "closes"],
)
async def test_a_program_that_is_cancelled_does_not_wait_for_a_companion_that(
    rig: Rig, tmp_path: Path, waits: str
) -> None:
    await change_companion(
        tmp_path,
        f"    import anyio\n    {waits}\n    setattr(changed, method, lambda _: anyio.sleep_forever())\n",
    )
    done = await run_program(
        rig,
        f"""
sys.path.insert(0, {str(tmp_path)!r})
async def scoped():
    with anyio.CancelScope() as leaving:
        async with open_capture(sys.argv[1], acl_library=sys.argv[2], buffer_bytes=1 << 20, own_process=True):
            leaving.deadline = anyio.current_time() + 1
    assert leaving.cancelled_caught
anyio.run(scoped)
""",
    )

    assert done.returncode == 0, done.stderr
