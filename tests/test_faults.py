"""Real processes that are killed, interrupted, or run out of disk while they capture."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S
from tests.failingwrites import failing_writes

from dumpstream.archive.rows import JOURNAL
from dumpstream.reading.problem import Kind
from dumpstream.reading.stored import State, StoredCapture
from dumpstream.reading.verification import verify
from dumpstream.simulation import Workload, dump_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_DUMPSTREAM = [sys.executable, "-m", "dumpstream"]
_STEADY = "models=1,ops=20,steps=2000,tensor_bytes=200-60000,slice_bytes=20000,rate=30000000"
#: A queue that takes longer than any test waits: it is compressed slowly.
_BACKLOG = ("models=1,ops=50,steps=4,tensor_bytes=300000", "--level", "19", "--workers", "1")


class Capturing:
    """A process that captures a simulated run."""

    def __init__(self, directory: Path) -> None:
        self.out = directory / "run"
        self.dump_path = directory / "dump"
        self.dump_path.mkdir()
        self.config = directory / "acl.json"
        self.config.write_text(dump_config(self.dump_path))
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, workload: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        command = [*_DUMPSTREAM, "capture", "--out", str(self.out), "--config", str(self.config)]
        process = subprocess.Popen(
            [*command, "--simulate", workload, "--buffer-bytes", "1M", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.processes.append(process)
        return process

    def wait_for_files(self, count: int) -> None:
        """Wait until the journal has lines of so many files."""
        deadline = time.monotonic() + LIMIT_S
        while self._lines() < count + 1:
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def _lines(self) -> int:
        try:
            return (self.out / JOURNAL).read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def read(self) -> dict[str, bytes]:
        """Return the bytes of every file that the journal calls whole."""
        stored = StoredCapture.open(self.out)
        return {
            file.name: b"".join(bytes(block) for part in file.parts for block in stored.read_part(part))
            for file in stored.files
            if file.verdict.whole
        }

    def problems(self) -> set[Kind]:
        return {problem.kind for problem in verify(StoredCapture.open(self.out)).problems}


@pytest.fixture
def capturing(tmp_path: Path) -> Iterator[Capturing]:
    capturing = Capturing(tmp_path)
    yield capturing
    for process in capturing.processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_capture_leaves_a_sound_journal_and_sound_files(capturing: Capturing, seed: int) -> None:
    chance = random.Random(seed)
    process = capturing.start(_STEADY)

    capturing.wait_for_files(chance.choice([0, 1, 30, 200]))
    time.sleep(chance.random() / 20)
    process.kill()
    process.wait()

    stored = StoredCapture.open(capturing.out)
    files = capturing.read()
    steps = range(len(files) // 20 + 20)
    workload = Workload.parse(_STEADY)
    expected = {
        file.name: file.data for step in steps for file in workload.expected_files(capturing.dump_path, step)
    }
    assert stored.state is State.INTERRUPTED
    assert len(files) == len(stored.files)
    assert {name: expected[name] for name in files} == files
    assert capturing.problems() <= {Kind.INTERRUPTED, Kind.EXTRA}


def test_a_killed_capture_can_be_continued(capturing: Capturing) -> None:
    process = capturing.start(_STEADY)
    capturing.wait_for_files(20)
    process.kill()
    process.wait()
    before = capturing.read()

    again = capturing.start("seed=1", "--append")
    again.communicate()

    assert again.returncode == 0
    after = capturing.read()
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 16
    assert StoredCapture.open(capturing.out).outcomes == {1: None, 2: "finished"}
    assert capturing.problems() <= {Kind.INTERRUPTED, Kind.EXTRA}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_finishes_what_has_come(capturing: Capturing, signum: signal.Signals) -> None:
    process = capturing.start(_STEADY)
    capturing.wait_for_files(20)

    process.send_signal(signum)
    output, errors = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 0
    assert errors == "dumpstream: finishing what has come; again to abort\n"
    assert " complete) from " in output
    assert StoredCapture.open(capturing.out).state is State.FINISHED
    assert capturing.problems() == set()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_aborts_but_keeps_what_is_finished(
    capturing: Capturing, signum: signal.Signals
) -> None:
    process = capturing.start(*_BACKLOG)
    capturing.wait_for_files(2)
    assert process.stderr is not None

    process.send_signal(signum)
    told = process.stderr.readline()
    process.send_signal(signum)
    output, errors = process.communicate(timeout=LIMIT_S)

    assert "again to abort" in told
    assert process.returncode == 1
    assert (output, errors) == ("", "dumpstream: aborted; what was finished stays\n")
    assert StoredCapture.open(capturing.out).outcomes == {1: "cancelled"}
    assert len(capturing.read()) >= 2
    assert capturing.problems() == {Kind.FAILED, Kind.LOSS, Kind.VERDICT}


_ON_A_FULL_DISK = """
mount -t tmpfs -o "size=$1" tmpfs "$2" || exit 77
shift 2
python=$1 results=$2 out=$3
shift 3
"$python" -m dumpstream capture --out "$out" "$@" > "$results/out" 2> "$results/err"
echo $? > "$results/code"
"$python" -m dumpstream verify --json "$out" > "$results/verify"
exit 0
"""


@pytest.mark.parametrize(
    ("size", "workload", "arguments", "end"),
    [
        pytest.param("8m", "steps=50,tensor_bytes=300000", (), "failed", id="files"),
        pytest.param("8m", "steps=50,tensor_bytes=30000,slice_bytes=5000", (), "failed", id="pieces"),
        pytest.param("64k", "tiny-files,steps=1", ("--sink", "null:"), "interrupted", id="journal"),
        pytest.param(
            "1m",
            "steps=50,tensor_bytes=300000,slice_bytes=50000,shuffle=1.0",
            ("--sink", "null:", "--held-bytes", "0"),
            "failed",
            id="held",
        ),
    ],
)
def test_a_full_disk_ends_the_capture_with_an_error_and_keeps_what_is_finished(
    tmp_path: Path, size: str, workload: str, arguments: tuple[str, ...], end: str
) -> None:
    disk, results = tmp_path / "disk", tmp_path / "results"
    disk.mkdir()
    results.mkdir()
    places = [size, str(disk), sys.executable, str(results), str(disk / "run")]
    options = ["--simulate", workload, "--buffer-bytes", "1M", *arguments]
    command = ["unshare", "-rm", "sh", "-c", _ON_A_FULL_DISK, "sh", *places, *options]

    namespace = subprocess.run(command, timeout=LIMIT_S, capture_output=True, text=True, check=False)
    if namespace.returncode == 77 or "unshare" in namespace.stderr:
        pytest.skip("no file system can be mounted here")

    error = (results / "err").read_text()
    verification = json.loads((results / "verify").read_text())
    kinds = {problem["kind"] for problem in verification["problems"]}
    assert (results / "code").read_text() == "1\n"
    told, last = error.splitlines()
    assert told.startswith(f"dumpstream: {disk / 'run'}: ")
    assert told.endswith("; whatever else comes is lost, and counted")
    assert last.startswith("dumpstream: ")
    assert "No space left on device" in last
    assert "choose another" in last
    assert end in kinds <= {end, "loss", "verdict"}
    assert verification["leftovers"] == []


_HALF = "models=1,ops=20,steps=3,tensor_bytes=200-60000,slice_bytes=20000"


@pytest.mark.parametrize(
    ("target", "packs"),
    [
        ("journal.jsonl", "--no-pack"),
        ("journal.jsonl", "--pack"),
        ("/#", "--no-pack"),  # a small file has no name until it is whole
        (".zip", "--pack"),
    ],
)
def test_a_write_that_fails_half_way_leaves_nothing_that_is_called_whole_and_is_not(
    capturing: Capturing, tmp_path: Path, target: str, packs: str
) -> None:
    environment = failing_writes(tmp_path, target, least=100)
    process = capturing.start(_HALF, packs, environment=environment)

    _, errors = process.communicate(timeout=LIMIT_S)

    stored = StoredCapture.open(capturing.out)
    forecast = Workload.parse(_HALF).expected_files
    expected = {file.name: file.data for step in range(3) for file in forecast(capturing.dump_path, step)}
    whole = capturing.read()
    if target == "journal.jsonl" and process.returncode == 0:  # the last write, which is tried again
        assert whole == expected
    else:
        assert process.returncode == 1
        assert "Input/output error" in errors
        assert errors.count("\n") <= 2  # when it happened, and at the end
    assert all(sum(row.verdict.whole for row in file.rows) <= 1 for file in stored.files)
    assert {name: expected[name] for name in whole} == whole
    assert capturing.problems() <= {Kind.FAILED, Kind.LOSS, Kind.VERDICT, Kind.INTERRUPTED}


_EXITING = """
import sys
import anyio
from dumpstream import open_capture
from dumpstream.simulation import SimulatedRuntime, Workload, simulated_library

async def main():
    with SimulatedRuntime(Workload(steps=30)) as runtime:
        async with open_capture(
            sys.argv[1], config=sys.argv[2], acl_library=simulated_library(), buffer_bytes=1 << 16
        ):
            runtime.start()
            sys.exit(7)

anyio.run(main)
"""


def test_a_process_that_exits_inside_the_block_finishes_the_capture_first(capturing: Capturing) -> None:
    command = [sys.executable, "-c", _EXITING, str(capturing.out), str(capturing.config)]

    exited = subprocess.run(command, timeout=LIMIT_S, capture_output=True, text=True, check=False)

    assert (exited.returncode, exited.stderr) == (7, "")
    assert len(capturing.read()) == 16 * 30
    assert capturing.problems() == set()
