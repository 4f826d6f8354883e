"""Processes that flood a collector with introductions, and those that it captures meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream.archive.manifest import MANIFEST
from dumpstream.outside.wire import VERSION, encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import Popen

    from tests.outside.conftest import Outside

_LARGEST_LIST = 4 << 20
_FLOOD = 300
_JOINED = 6
_ROOT = Path(__file__).parents[2]


#: A disk that takes its time with every file that is forced to it.
_SLOW_DISK = """
#include <unistd.h>
int fsync(int fd) { (void)fd; return usleep(2000); }
"""


class Service:
    """A collector in a process of its own, that has captured one job."""

    def __init__(self, outside: Outside, *more: str, env: dict[str, str] | None = None) -> None:
        self._outside = outside
        self.socket = outside.directory / "socket"
        flags = ("--socket", self.socket, "--out", outside.out, "--buffer-bytes", "32M", *more)
        self.collector: Popen[str] = outside.start(*outside.dumpstream, "collect", *flags, env=env)
        outside.until(self.socket.exists)
        self.run_job(0)

    def run_job(self, rank: int) -> None:
        job = self._outside.start(*self._outside.job, env=self._outside.joined(self.socket, RANK=str(rank)))
        assert job.wait(LIMIT_S) == 0

    def introduce(self, packet: bytes) -> bytes:
        """Return what the collector answers to a peer that begins with *packet*."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.settimeout(LIMIT_S)
            peer.connect(str(self.socket))
            peer.send(packet)
            return peer.recv(1 << 16)

    def end(self) -> str:
        """End the collector with SIGTERM, and return what it says."""
        self.collector.send_signal(signal.SIGTERM)
        _, errors = self.collector.communicate(timeout=LIMIT_S / 4)
        return errors


@pytest.fixture
def service(outside: Outside) -> Iterator[Service]:
    service = Service(outside)
    yield service
    service.collector.kill()


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program that hands over as many small files as it can."""
    directory = tmp_path_factory.mktemp("flood")
    program = directory / "flood"
    library = compiled(_ROOT / "benchmarks" / "acl.c", directory / "libascendcl.so", "-shared", "-fPIC")
    return compiled(_ROOT / "benchmarks" / "flood.c", program, library, f"-Wl,-rpath,{directory}")


@pytest.fixture(scope="module")
def slow_disk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a process whose disk is slow."""
    source = tmp_path_factory.mktemp("slow") / "slow.c"
    source.write_text(_SLOW_DISK)
    return os.environ | {"LD_PRELOAD": str(compiled(source, source.with_suffix(".so"), "-shared", "-fPIC"))}


def compiled(source: Path, output: Path, *flags: str | Path) -> Path:
    include = _ROOT / "src" / "dumpstream" / "native" / "include"
    compiler = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{include}"]
    subprocess.run([*compiler, "-o", output, source, *flags], check=True)
    return output


def hello(version: int, command: bytes) -> bytes:
    return encode("hello", [("version", version), ("parent", 1)]) + b"argv=" + command + b"\0"


@pytest.mark.parametrize("versions", [1, _FLOOD], ids=["one-reason", "many-reasons"])
def test_a_flood_of_refused_introductions_leaves_the_captures_of_others_readable(
    outside: Outside, service: Service, versions: int
) -> None:
    for number in range(_FLOOD):
        answer = service.introduce(hello(VERSION + 1 + number % versions, b"\xff" * 65000))
        assert answer.startswith(b"refused\0")
    service.run_job(1)

    errors = service.end()

    assert (outside.out / MANIFEST).stat().st_size < _LARGEST_LIST
    ranks = [process.rank for process in outside.processes() if process.directory]
    assert ranks == [0, 1]
    assert outside.verdicts() == ["complete"] * 32
    assert max(map(len, errors.splitlines())) < 2000
    listing = outside.start(*outside.dumpstream, "ls", outside.out)
    output, _ = listing.communicate(timeout=LIMIT_S)
    assert listing.returncode == 0
    assert "32 files (32 complete)" in output


def test_a_long_command_line_is_shortened_and_says_so(outside: Outside, service: Service) -> None:
    service.introduce(hello(VERSION + 1, b"train.py\0argv=" + b"x" * 60000))
    service.end()

    (refused,) = [process for process in outside.processes() if not process.directory]
    program, argument, mark = refused.command
    assert (program, set(argument)) == ("train.py", {"x"})
    assert 1000 < len(argument) < 2048
    assert mark == f"... ({60000 - len(argument)} more bytes)"


@pytest.mark.parametrize("kind", ["tiny", "same"])
def test_a_ring_full_of_tiny_files_delays_the_end_only_as_long_as_it_may(
    outside: Outside, flood: Path, slow_disk: dict[str, str], kind: str
) -> None:
    service = Service(outside, "--drain-timeout", "2", "--no-pack", "--fsync", "file", env=slow_disk)
    hostile = outside.start(flood, kind, 0, env=outside.joined(service.socket, RANK="9"), stdin=None)
    outside.until(lambda: outside.journal_lines() > 100)

    errors = service.end()
    hostile.kill()

    assert "rank-9" in errors
    assert "drain_timeout" in errors
    flooded = outside.stored("rank-9")
    (loss,) = [loss for loss in flooded.losses if loss.cause == "drain_timeout"]
    rows = [row for file in flooded.files for row in file.rows]
    lost = [row for row in rows if row.cause == "drain_timeout"]
    assert sum(row.chunks for row in lost) == loss.chunks > 0
    assert all(row.stored for row in rows if row.verdict == "unparsed")
    assert [str(file.verdict) for file in outside.stored("rank-0").files] == ["complete"] * 16
    assert not outside.problems() & {"missing", "damaged", "extra", "leftover", "interrupted"}


def own_memory(pid: int) -> int:
    """Return the bytes that the process *pid* shares with no other; rings are shared."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def test_a_collector_needs_a_few_mebibytes_for_each_process(
    outside: Outside, service: Service, flood: Path
) -> None:
    service.run_job(1)  # what every capture needs is loaded
    idle = own_memory(service.collector.pid)
    before, files = outside.journal_lines(), 500

    for rank in range(2, 2 + _JOINED):  # they hand over some files, and wait for the end of their input
        environment = outside.joined(service.socket, RANK=str(rank))
        outside.start(flood, "tiny", files, env=environment, stdin=subprocess.PIPE)
    outside.until(lambda: outside.journal_lines() >= before + _JOINED * files)
    busy = own_memory(service.collector.pid)

    assert idle < 60 << 20
    assert busy - idle < _JOINED * (8 << 20)
