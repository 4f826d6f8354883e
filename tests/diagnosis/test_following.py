"""A run that is diagnosed while it is captured."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

import dumpstream
from dumpstream.diagnosis.following import follow, is_running
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = [sys.executable, "-m", "dumpstream"]
WORKLOAD = Workload.parse(
    "flow=on,models=1,ops=6,steps=4,tensor_bytes=256,op_types=MatMulV2+Relu+LayerNorm,nan=4@2"
)
LIBRARY = simulated_library()


class EnoughError(Exception):
    """The test has seen what it waited for."""


def follow_until_told(path: Path) -> tuple[bool, str]:
    """Return whether *path* is being captured, and the first that is told about it."""
    told: list[str] = []

    def pause(_: float) -> None:
        if told:
            raise EnoughError

    running = is_running(path)
    try:
        follow(path, tell=told.append, pause=pause)
    except EnoughError:
        return running, told[0]
    raise AssertionError("the capture ended")


async def capture_and_follow(directory: Path) -> tuple[bool, str]:
    """Capture a run, and follow it before the capture has ended."""
    with SimulatedRuntime(WORKLOAD) as runtime:
        async with dumpstream.open_capture(
            directory / "run",
            config=directory / "acl.json",
            acl_library=LIBRARY,
            sinks=["zstd:"],
        ):
            await anyio.to_thread.run_sync(runtime.run)
            return await anyio.to_thread.run_sync(follow_until_told, directory / "run")


def test_the_first_nan_is_told_before_the_capture_ends(tmp_path: Path) -> None:
    (tmp_path / "npu").mkdir()
    (tmp_path / "acl.json").write_text(dump_config(tmp_path / "npu"))

    running, told = anyio.run(capture_and_follow, tmp_path)

    assert running
    assert told.startswith("The run made the first NaN: step 2, operator layer_4_Relu (Relu), output 0: ")
    assert follow(tmp_path / "run") == told
    assert not is_running(tmp_path / "run")


@contextmanager
def captured_job(path: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Capture a job of three ranks, of which one makes a NaN, and which goes on until it is ended."""
    workload = "flow=on,models=1,ops=6,tensor_bytes=4096,dtypes=float32,rate=400000"
    workload += ",op_types=MatMulV2+Relu+LayerNorm+HcomAllReduce"
    job = [
        "simulate",
        "--ranks",
        "3",
        "--workload",
        workload,
        "--steps",
        "100000",
        "--fault",
        "rank1:nan=1@2",
    ]
    command = [*PROGRAM, "capture", "--out", str(path), "--alert", *flags, "--", *PROGRAM, *job]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=120)


@pytest.mark.parametrize(
    ("flags", "who"), [([], "Rank 1"), (["--host", "a"], "Rank 1 of host a")], ids=["processes", "hosts"]
)
def test_a_running_job_is_followed_over_all_its_processes(tmp_path: Path, flags: list[str], who: str) -> None:
    path = tmp_path / "job"
    with captured_job(path, *flags) as job:
        assert job.stderr is not None
        alert = next(line for line in job.stderr if "The run made the first NaN" in line)
        following = subprocess.Popen(
            [*PROGRAM, "diagnose", str(path), "--follow"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert following.stderr is not None
        told = following.stderr.readline()
        running = job.poll() is None and following.poll() is None

    out, _ = following.communicate(timeout=120)

    assert running
    assert "rank-1" in alert
    assert f"{who} made the first NaN: step 2, operator layer_1_Relu (Relu), output 0" in told
    assert following.returncode == 3
    assert out.startswith(f"{who} made the first NaN: step 2, operator layer_1_Relu (Relu), output 0")
    assert "it reached 2 other ranks" in out.splitlines()[0]
