"""What Ctrl-C and SIGTERM do to commands that have not begun, that are kept waiting, or that write files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.conftest import LIMIT_S

from dumpstream.format.verdict import Verdict
from dumpstream.system.publishing import is_temporary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import CaptureBuilder, DumpBuilder

_SCRIPT = [str(Path(sys.executable).with_name("dumpstream"))]
_MODULE = [sys.executable, "-m", "dumpstream"]

# The block swallows every interrupt, as waiting native code does.
_STUBBORN = """
import sys, time
from dumpstream.cli import _interrupt
_interrupt._CLEANUP_S = float(sys.argv[1])
with _interrupt.ending_soon():
    while True:
        try:
            print("waiting", flush=True)
            time.sleep(1000)
        except KeyboardInterrupt:
            pass
"""

# A thread outlives the command, as one of a pool does that was interrupted while it started.
_FORGETFUL = """
import sys, threading, time
from dumpstream import __main__, cli
def main():
    threading.Thread(target=time.sleep, args=(1000,)).start()
    print("interrupted")
    return 130
cli.main = main
sys.exit(__main__.main())
"""


def interrupt_while_loading(
    tmp_path: Path, module: str, command: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run *command* with a signal that comes as *module* is imported."""
    return interrupt_when(tmp_path, f"event == 'import' and args[0] == '{module}'", signal.SIGINT, command)


def interrupt_when(
    tmp_path: Path, condition: str, number: int, command: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run *command* with a signal that comes when *condition* is true of an audit event."""
    (tmp_path / "sitecustomize.py").write_text(
        "import itertools, os, sys\n"
        "times = itertools.count()\n"
        "def hook(event, args):\n"
        f"    if {condition}:\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "sys.addaudithook(hook)\n"
    )
    return subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", [_SCRIPT, _MODULE], ids=["script", "module"])
@pytest.mark.parametrize(
    "module",
    ["dumpstream.cli", "argparse", "dumpstream.cli._interrupt", "dumpstream.reading.collection", "zstandard"],
)
def test_interrupt_while_it_is_loaded_ends_it_as_any_program(
    tmp_path: Path, module: str, command: Sequence[str]
) -> None:
    ended = interrupt_while_loading(tmp_path, module, [*command, "ls", str(tmp_path)])

    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_interrupt_that_is_ignored_from_the_start_does_nothing(tmp_path: Path) -> None:
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *_MODULE, "--version"]

    ended = interrupt_while_loading(tmp_path, "dumpstream.cli", command)

    assert ended.returncode == 0
    assert ended.stderr.startswith("dumpstream ")  # argparse has a version go there


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("tidy_s", "interrupts"), [(0.05, 1), (1000, 2)])
def test_command_that_does_not_end_by_itself_is_ended(
    tidy_s: float, interrupts: int, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _STUBBORN, str(tidy_s)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for _ in range(interrupts):
            assert process.stdout.readline() == b"waiting\n"
            process.send_signal(number)
        _, errors = process.communicate(timeout=LIMIT_S)

    assert (process.returncode, errors) == (128 + number, b"")


def test_interrupted_command_does_not_wait_for_a_thread_that_was_forgotten() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _FORGETFUL], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "interrupted\n", "")


#: When the first file is written, but not published.
_DRAFTED = {
    "extract": "event == 'os.truncate' and next(times) == 0",
    "convert": "event == 'open' and 'dumpstream-part' in str(args[0]) and next(times) == 1",
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["extract", "convert"])
def test_a_command_that_is_ended_leaves_no_draft(
    builder: CaptureBuilder, dump: DumpBuilder, tmp_path: Path, command: str, number: signal.Signals
) -> None:
    tensor = np.zeros(1 << 18, np.float32)
    builder.add("Add.a.1.2.3", dump.input(tensor).output(tensor).build(), Verdict.COMPLETE)
    out = tmp_path / "out"
    arguments = [*_MODULE, command, str(builder.finish()), "--out", str(out)]

    ended = interrupt_when(tmp_path, _DRAFTED[command], number, arguments)

    assert (ended.returncode, ended.stderr) == (128 + number, "")
    assert out.exists()
    assert not [path for path in out.rglob("*") if is_temporary(path.name)]
