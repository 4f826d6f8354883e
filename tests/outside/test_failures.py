"""Captures from outside that fail while the job runs: what is said at once, and what the job is spared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.outside.conftest import Outside

_LONG = ("--steps", "100000", "--rate", "40M")
_ON_A_SMALL_DISK = 'mount -t tmpfs -o size=8m tmpfs "$0" || exit 77; exec "$@"'
_LOST = "whatever else comes is lost, and counted"


def start_on_a_small_disk(outside: Outside, *flags: str) -> subprocess.Popen[str]:
    """Start to capture a long job to a disk that is soon full."""
    outside.out.mkdir()
    capture = [*outside.dumpstream, "capture", "--out", outside.out / "run", "--buffer-bytes", "32M", *flags]
    command = [*capture, "--", *outside.simulated, *_LONG]
    return outside.start("unshare", "-rm", "sh", "-c", _ON_A_SMALL_DISK, outside.out, *command)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Return the first line of standard error that has *text*."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return line
    if "unshare" in "".join(lines) or process.wait() == 77:
        pytest.skip("no file system can be mounted here")
    pytest.fail(f"{text!r} was not said, but {lines}")


def block_rank(outside: Outside, rank: int) -> Path:
    """Return a place for a sink in which the capture of *rank* must fail."""
    elsewhere = outside.directory / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"rank-{rank}").write_text("in the place of a directory")
    return elsewhere


def test_a_full_disk_is_told_while_the_job_runs(outside: Outside) -> None:
    capture = start_on_a_small_disk(outside)

    line = read_until(capture, "No space left on device")
    running = capture.poll() is None
    capture.send_signal(signal.SIGTERM)
    errors = capture.communicate(timeout=LIMIT_S)[1]

    assert running
    assert line.startswith(f"dumpstream: {outside.out}/run/pid-")
    assert "; free some space or choose another destination; " in line
    assert line.endswith(f"{_LOST}\n")
    assert "not everything is whole" in errors
    assert capture.returncode == 3


def test_a_full_disk_ends_the_job_if_that_is_asked_for(outside: Outside) -> None:
    capture = start_on_a_small_disk(outside, "--on-failure", "stop", "--json")

    read_until(capture, "asked to end (SIGTERM), because of that: --on-failure stop")
    output = capture.communicate(timeout=LIMIT_S)[0]

    report = json.loads(output[output.index("{") :])
    assert capture.returncode == 3  # the job ends in order, with 0
    assert "No space left on device" in report["stopped_for"]
    assert [process["ending"] for process in report["processes"]] == ["exit code 0"]


def test_a_command_that_is_ended_has_its_own_exit_code_and_the_summary_says_why(outside: Outside) -> None:
    elsewhere = block_rank(outside, 0)
    job = " ".join(outside.job)

    result = outside.capture(
        ["sh", "-c", f"RANK=0 {job}; exec sleep 1000"], "--sink", f"zstd:{elsewhere}", "--on-failure", "stop"
    )

    assert result.returncode == 128 + signal.SIGTERM
    assert "ended by --on-failure stop, because of rank-0: cannot " in result.stderr


def test_what_the_command_started_is_ended_too(outside: Outside) -> None:
    elsewhere = block_rank(outside, 1)
    waiting = " ".join([str(outside.programs.linked), "init", "wait"])
    job = " ".join(outside.job)
    fifo = outside.directory / "fifo"
    os.mkfifo(fifo)
    command = f"RANK=0 {waiting} <>{fifo} & RANK=1 {job}; trap '' TERM; wait"

    result = outside.capture(["sh", "-c", command], "--sink", f"zstd:{elsewhere}", "--on-failure", "stop")

    endings = {process.directory: process.ending for process in outside.processes()}
    assert endings["rank-0"] == "killed by SIGTERM"
    assert result.returncode == 3


def test_a_service_ends_the_process_whose_capture_failed_and_no_other(outside: Outside) -> None:
    elsewhere, socket = block_rank(outside, 1), outside.directory / "socket"
    collect = ("collect", "--socket", socket, "--out", outside.out, "--sink", f"zstd:{elsewhere}")
    collector = outside.start(*outside.dumpstream, *collect, "--on-failure", "stop")
    read_until(collector, "listening")
    other = outside.start(
        *(outside.programs.linked, "init", "wait"),
        env=outside.joined(socket, RANK="0"),
        stdin=subprocess.PIPE,
    )
    failing = outside.start(*outside.simulated, *_LONG, env=outside.joined(socket, RANK="1"))

    told = read_until(collector, _LOST)
    asked = read_until(collector, "--on-failure stop")
    failing.communicate(timeout=LIMIT_S)
    other.communicate("\n", timeout=LIMIT_S)
    collector.send_signal(signal.SIGTERM)
    errors = collector.communicate(timeout=LIMIT_S)[1]

    assert "/rank-1: cannot " in told
    assert asked == "dumpstream: rank-1 is asked to end (SIGTERM), because of that: --on-failure stop\n"
    assert (failing.returncode, other.returncode, collector.returncode) == (0, 0, 3)
    assert "ended by --on-failure stop, because of rank-1: cannot " in errors


def test_a_process_that_is_refused_is_told_at_once(outside: Outside) -> None:
    waiting = [str(outside.programs.linked), "init", "wait"]
    fifo = outside.directory / "fifo"
    os.mkfifo(fifo)
    command = f"RANK=0 {' '.join(waiting)} <{fifo} & RANK=1 {' '.join(waiting)} <{fifo}; wait"

    capture = outside.start_capture(["sh", "-c", command], "--buffer-bytes", "4M")
    with fifo.open("w"):
        line = read_until(capture, "is not captured as it should be")
    capture.communicate(timeout=LIMIT_S)

    assert line.startswith("dumpstream: process ")
    assert "is not captured as it should be: no ring is left" in line
    assert capture.returncode == 3
