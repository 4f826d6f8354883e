"""Standard output and standard error that have no reader any more, are full, or are closed."""

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

from dumpstream.archive.manifest import read_manifest
from dumpstream.archive.rows import FileRow
from dumpstream.format.verdict import Verdict
from dumpstream.reading.stored import StoredCapture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.conftest import CaptureBuilder, DumpBuilder

_DUMPSTREAM = [sys.executable, "-m", "dumpstream"]
#: Lines of a list that is longer than what Python and a pipe keep.
_MANY = 2000
_FULL = (
    "dumpstream: cannot write to standard output: No space left on device; free some space, or redirect it "
)

_FORCE = {"extract": ("--force",), "convert": ("--force",)}
_READERS = [
    "ls",
    "ls --json",
    "verify",
    "verify --json",
    "stats",
    "stats --format csv",
    "stats --format json",
]
_READERS += ["overflow", "overflow --json", "extract --out extracted", "convert --out converted"]


@pytest.fixture
def many(builder: CaptureBuilder) -> Path:
    """A capture of many files."""
    (part,) = [builder.store("files/one.zst", b"bytes")]
    for number in range(_MANY):
        builder.write(FileRow(f"op.{number:064}", 5, 1, Verdict.UNPARSED, [part]).to_line())
    return builder.finish()


@pytest.fixture
def few(builder: CaptureBuilder, dump: DumpBuilder) -> Path:
    """A capture of one file."""
    builder.add("MatMul.layer.0.0.1780159660546556", dump.output(np.ones(4, np.float32)).build())
    return builder.finish()


@pytest.fixture
def broken_pipe() -> Iterator[int]:
    """The writing end of a pipe that has no reader."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.fixture
def full() -> Iterator[int]:
    """A device that is full."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


def run(words: Sequence[object], cwd: Path, **streams: int) -> tuple[int, str]:
    """Run a command of dumpstream, and return its exit code and what it says on standard error."""
    ended = subprocess.run(
        [*_DUMPSTREAM, *map(str, words)],
        cwd=cwd,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},  # type: ignore[call-overload]
    )
    return ended.returncode, ended.stderr or ""


@pytest.mark.parametrize("arguments", ["ls", "ls --json"])
def test_a_long_list_without_a_reader_ends_as_other_programs_do(
    many: Path, broken_pipe: int, arguments: str
) -> None:
    assert run([*arguments.split(), many], many.parent, stdout=broken_pipe) == (-signal.SIGPIPE, "")


def test_a_list_whose_reader_takes_one_line_ends_as_other_programs_do(many: Path) -> None:
    command = f"{' '.join(_DUMPSTREAM)} ls {many} | head -1; exit ${{PIPESTATUS[0]}}"

    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")
    assert ended.stdout.startswith("verdict")


@pytest.mark.parametrize("arguments", _READERS)
def test_a_short_answer_without_a_reader_has_the_exit_code_that_it_would_have_had(
    few: Path, broken_pipe: int, arguments: str
) -> None:
    command, *flags = arguments.split()
    expected, _ = run([command, few, *flags, *_FORCE.get(command, ())], few.parent)

    assert run([command, few, *flags, *_FORCE.get(command, ())], few.parent, stdout=broken_pipe) == (
        expected,
        "",
    )


@pytest.mark.parametrize("arguments", [*_READERS, "--help", "ls --help", "config schema"])
def test_a_full_disk_for_standard_output_is_one_line(few: Path, full: int, arguments: str) -> None:
    command, *flags = arguments.split()
    place = () if {"--help", "schema"} & {command, *flags} else (few,)

    code, errors = run([command, *place, *flags], few.parent, stdout=full)

    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(_FULL)


def test_a_long_list_for_a_full_disk_is_one_line(many: Path, full: int) -> None:
    code, errors = run(["ls", many], many.parent, stdout=full)

    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(_FULL)


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
def test_a_capture_goes_on_without_a_reader(tmp_path: Path, broken_pipe: int, flags: Sequence[str]) -> None:
    words = ["capture", "--out", tmp_path / "run", "--simulate", *flags]

    assert run(words, tmp_path, stdout=broken_pipe, stderr=broken_pipe) == (0, "")
    assert len(StoredCapture.open(tmp_path / "run").files) == 16


def test_a_command_is_captured_to_its_end_though_its_log_has_no_reader(
    tmp_path: Path, broken_pipe: int
) -> None:
    words = ["capture", "--out", tmp_path / "run", "--", *_DUMPSTREAM, "simulate"]

    assert run(words, tmp_path, stdout=broken_pipe, stderr=broken_pipe) == (0, "")
    (process,) = read_manifest(tmp_path / "run").processes
    assert len(StoredCapture.open(tmp_path / "run" / process.directory).files) == 16


def test_a_report_that_cannot_be_printed_makes_the_exit_code_1(tmp_path: Path, full: int) -> None:
    code, errors = run(["capture", "--out", tmp_path / "run", "--simulate"], tmp_path, stdout=full)

    assert code == 1
    assert errors.startswith(_FULL)
    assert len(StoredCapture.open(tmp_path / "run").files) == 16


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_said_appears_at_once(tmp_path: Path, unbuffered: str) -> None:
    words = ["collect", "--socket", str(tmp_path / "socket"), "--out", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen([*_DUMPSTREAM, *words], stderr=subprocess.PIPE, env=environment) as collector:
        assert collector.stderr is not None
        assert b"listening" in collector.stderr.readline()
        collector.terminate()


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(few: Path, closed: str) -> None:
    command = f"{' '.join(_DUMPSTREAM)} ls --json {few} {closed}"

    assert subprocess.run(["sh", "-c", command], stdout=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_line_of_a_service_comes_out_at_once(tmp_path: Path, unbuffered: str) -> None:
    command = [*_DUMPSTREAM, "collect", "--socket", str(tmp_path / "socket"), "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": unbuffered}
    ) as service:
        assert service.stderr is not None
        try:
            assert "listening" in service.stderr.readline()
        finally:
            service.terminate()
            service.communicate(timeout=LIMIT_S)
