"""Progress in real terminals."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cli.screen.terminal import TerminalProgram

if TYPE_CHECKING:
    from pathlib import Path

#: Is at 30 % until it reads a line; then prints one, and ends with the next line.
_WORK = """
import sys
from argparse import Namespace
from dumpstream.cli._display import say
from dumpstream.cli.screen import live
from dumpstream.cli.screen.options import use_screen
from dumpstream.cli.screen.progress import Progress
use_screen(Namespace(quiet=True) if sys.argv[1] == "quiet" else Namespace(progress=sys.argv[1]))
live.LOG_S = 0.3
with Progress("verifying") as progress:
    progress.expect(1000, 10**9)
    progress.show(300, 3 * 10**8)
    sys.stdin.readline()
    say("a problem")
    sys.stdin.readline()
print("done")
"""


def _work(kind: str = "auto", **settings: object) -> TerminalProgram:
    return TerminalProgram(["-c", _WORK, kind], **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_bar_fits_the_terminal_and_is_removed(columns: int) -> None:
    program = _work(columns=columns)
    program.wait_for("verifying.*30 %")
    program.type("\n\n")

    assert program.finish() == 0
    drawn = [frame for frame in program.frames if frame.startswith("verifying")]
    assert drawn
    assert all(len(line) < columns for frame in drawn for line in frame.split("\r\n")[0].splitlines())
    assert program.plain.rstrip().endswith("\r\x1b[Jdone")
    assert "\x1b[?25l" not in program.shown  # the cursor stays visible


def test_wide_bar_has_amounts() -> None:
    program = _work(columns=120)
    program.wait_for("verifying +[━╸╺]+ +30 % +300 of 1000 files +300.0 MB of 1.0 GB")
    program.type("\n\n")

    assert program.finish() == 0


def test_lines_are_printed_above_the_bar() -> None:
    program = _work()
    program.wait_for("30 %")
    program.type("\n")
    end = program.wait_for(r"\x1b\[Jdumpstream: a problem\r\n")
    program.wait_for("verifying.*30 %", after=end)
    program.type("\n")

    assert program.finish() == 0


def test_terminal_that_becomes_narrower_is_drawn_again() -> None:
    program = _work(columns=120)
    before = program.wait_for("1.0 GB")
    program.resize(40)
    # The old line takes several lines by now, and all of them are erased.
    after = program.wait_for(r"\r\x1b\[2A\x1b\[Jverifying", after=before)
    program.type("\n\n")

    assert program.finish() == 0
    assert all(len(frame.split("\r\n")[0]) < 40 for frame in program.frames[-3:-1]), program.shown[after:]


def test_dumb_terminal_gets_lines() -> None:
    program = _work(environment={"TERM": "dumb"})
    program.wait_for("dumpstream: verifying: 30 %, 300 of 1000 files, 300.0 MB of 1.0 GB(, 0 B/s)?\r\n")
    program.type("\n\n")

    assert program.finish() == 0
    assert "\x1b" not in program.shown


@pytest.mark.parametrize("kind", ["none", "quiet"])
def test_nothing_is_drawn_if_nothing_is_wanted(kind: str) -> None:
    program = _work(kind)
    program.type("\n\n")

    assert program.finish() == 0
    assert "verifying" not in program.shown
    assert "dumpstream: a problem" in program.shown


def test_terminal_without_unicode_gets_ascii() -> None:
    program = _work(environment={"PYTHONIOENCODING": "ascii:backslashreplace"})
    program.wait_for("verifying +-+ -+ +30 %")
    program.type("\n\n")

    assert program.finish() == 0
    assert program.shown.isascii()
    assert "\\u" not in program.shown


def test_colours_are_left_out_on_request() -> None:
    program = _work(environment={"NO_COLOR": "1"})
    program.wait_for("30 %")
    program.type("\n\n")

    assert program.finish() == 0
    assert not re.search(r"\x1b\[[0-9;]*m", program.shown)


def test_pipe_gets_a_line_from_time_to_time() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WORK, "auto"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.communicate("\n\n")

    assert line.startswith("dumpstream: verifying: 30 %, 300 of 1000 files, 300.0 MB of 1.0 GB")


def _capture(tmp_path: Path, *rest: str, columns: int = 100) -> TerminalProgram:
    arguments = [
        "-m",
        "dumpstream",
        "capture",
        "--out",
        str(tmp_path / "run"),
        "--buffer-bytes",
        "64M",
        *rest,
    ]
    return TerminalProgram(arguments, columns=columns)


def test_interrupt_in_the_middle_of_a_bar_leaves_a_clean_terminal(tmp_path: Path) -> None:
    program = _capture(tmp_path, "--simulate", "steps=100000,rate=2000000")
    program.wait_for(r"capturing, 0:0\d +\d+ files? +.* MB")
    program.type("\x03")

    assert program.finish() == 0
    assert "\r\x1b[Jdumpstream: finishing what has come; again to abort\r\n" in program.plain
    assert re.search(r"\r\x1b\[J\d+ files", program.plain.replace("\r\x1b[J\r\x1b[J", "\r\x1b[J"))
    assert "\x1b[?25l" not in program.shown


def test_ranks_are_drawn_below_what_the_command_prints(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dumpstream", "simulate", "--ranks", "12"]
    program = _capture(tmp_path, "--", *command, "--steps", "100000", "--rate", "500K")
    program.wait_for(r"rank \d+ +\d+ files? .*ring +[━╸╺]+ +\d+ %")
    program.wait_for("and [0-9]+ more")
    program.type("\x03")

    program.finish()
    plain = program.plain
    regions = [*re.finditer(r"\x1b\[1;(\d+)r", plain)]
    assert regions
    # The command prints while the lines at the bottom are there,
    assert regions[0].start() < plain.index("then stopped")
    # which are at most a third of the terminal,
    assert all(int(region[1]) >= 16 for region in regions)
    # and in the end the whole terminal scrolls again.
    assert plain.rindex("\x1b[r") > regions[-1].start()
    assert "12 processes" in plain


def test_verdict_is_coloured_on_a_terminal(tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "dumpstream",
            "capture",
            "--out",
            str(tmp_path / "run"),
            "--simulate",
            "--quiet",
        ],
        check=True,
        capture_output=True,
    )
    program = TerminalProgram(["-m", "dumpstream", "verify", str(tmp_path / "run")])

    assert program.finish() == 0
    assert program.shown.endswith("\x1b[32meverything is whole\x1b[0m\r\n")
