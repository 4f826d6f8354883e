"""What is drawn by a job that its shell stops, continues, or runs in the background."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from tests.cli.screen.terminal import TerminalProgram

if TYPE_CHECKING:
    from pathlib import Path

#: Runs its arguments as a shell runs a job in the foreground; continues it behind a line that it reads.
_SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if not job:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
_, status = os.waitpid(job, os.WUNTRACED)
os.tcsetpgrp(0, os.getpgrp())
print("job stopped" if os.WIFSTOPPED(status) else status, flush=True)
sys.stdin.readline()
os.tcsetpgrp(0, job)
os.killpg(job, signal.SIGCONT)
os.waitpid(job, 0)
"""
#: Draws in the background until a line comes.
_BACKGROUND = """
import os, sys
from dumpstream.cli.screen.progress import Progress
job = os.fork()
if not job:
    os.setpgid(0, 0)
    import time
    from dumpstream.cli.screen import live
    live.FIRST_S = 0
    with Progress("verifying") as progress:
        progress.expect(10)
        time.sleep(4 * live.FRAME_S)
    os._exit(0)
os.waitpid(job, 0)
print("job ended")
"""
_REGION = re.compile(r"\x1b\[(?:1;\d+)?r")


def test_stopped_capture_leaves_the_whole_terminal_to_the_shell(tmp_path: Path) -> None:
    command = ["-m", "dumpstream", "simulate", "--ranks", "2", "--steps", "100000", "--rate", "500K"]
    capture = ["-m", "dumpstream", "capture", "--out", str(tmp_path / "run"), "--buffer-bytes", "64M"]
    program = TerminalProgram(["-c", _SHELL, *capture, "--", sys.executable, *command], columns=100)
    program.wait_for(r"rank \d +\d+ files? .*%")
    program.type("\x1a")
    stopped = program.wait_for("job stopped")

    assert _REGION.findall(program.plain[:stopped])[-1] == "\x1b[r"
    program.type("\n")
    program.wait_for(r"rank \d +\d+ files? .*%", after=stopped)
    program.type("\x03")
    program.finish()
    assert "2 processes" in program.plain[stopped:] or "rank-1" in program.plain[stopped:]
    assert _REGION.findall(program.plain)[-1] == "\x1b[r"


def test_job_in_the_background_draws_nothing() -> None:
    program = TerminalProgram(["-c", _BACKGROUND])

    assert program.finish() == 0
    assert program.plain == "job ended\r\n"
