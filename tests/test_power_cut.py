"""What the disk has after a power cut: ext4 on a loop device, shut down without writing anything back."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from dumpstream import StoredCapture
from dumpstream.reading.problem import Kind
from dumpstream.reading.verification import verify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DISK_BYTES = 192 << 20
_LIMIT_S = 60
_EXT4_IOC_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING = struct.pack("I", 2)

# Captures files in ever new directories, as many as it is told to, or until it is killed.
_CAPTURE = """
import asyncio, ctypes, os, sys
from dumpstream import RingOptions, RingSource, _native, open_capture

async def main(out, fsync, pack, count):
    def push_all():
        for number in range(count):
            data = os.urandom(3000)
            buffer = ctypes.create_string_buffer(data, len(data))
            name = f"step{number // 64}/device{number // 16}/op{number}"
            _native.push(name.encode(), ctypes.addressof(buffer), len(data), True, -1, 0)
    source = RingSource(RingOptions(buffer_bytes=1 << 20))
    async with open_capture(out, source=source, fsync=fsync, pack=pack) as capture:
        await asyncio.to_thread(push_all)
    assert capture.report.whole

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] == "packed", int(sys.argv[4])))
"""


class Disk:
    """A file system of its own on *image*, mounted at *path*."""

    def __init__(self, image: Path, path: Path) -> None:
        self._image, self.path = image, path
        with image.open("wb") as file:
            file.truncate(_DISK_BYTES)
        path.mkdir()

    def format(self) -> bool:
        """Make the file system, and tell whether it could be mounted here."""
        try:
            subprocess.run(["mkfs.ext4", "-q", self._image], check=True, timeout=_LIMIT_S)
            self.mount()
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self.path], check=True, timeout=_LIMIT_S)

    def unmount(self) -> None:
        subprocess.run(["umount", self.path], check=True, timeout=_LIMIT_S)

    def cut_power(self) -> None:
        """Let nothing more reach the disk, and lose what has not."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, _WITHOUT_FLUSHING)
        finally:
            os.close(fd)

    def restart(self) -> None:
        """Mount what is left."""
        self.unmount()
        self.mount()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "image", tmp_path / "disk")
    if not disk.format():
        pytest.skip("no ext4 on a loop device can be mounted here")
    yield disk
    disk.unmount()


@contextmanager
def capturing(out: Path, fsync: str, packed: str, count: int) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [sys.executable, "-c", _CAPTURE, str(out), fsync, packed, str(count)]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def lines_in(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def wait_for_lines(journal: Path, count: int) -> int:
    """Return how many lines there are when there are at least *count*."""
    until = time.monotonic() + _LIMIT_S
    while (lines := lines_in(journal)) < count:
        assert time.monotonic() < until, f"{lines} lines of {count}"
        time.sleep(0.005)
    return lines


@pytest.mark.parametrize("packed", ["single", "packed"])
def test_every_file_in_the_journal_outlives_a_power_cut_if_each_is_forced(disk: Disk, packed: str) -> None:
    out = disk.path / "runs" / "run"
    with capturing(out, "file", packed, 1_000_000):
        early = wait_for_lines(out / "journal.jsonl", 50)
        wait_for_lines(out / "journal.jsonl", early + 500)

        disk.cut_power()
    disk.restart()

    found = verify(StoredCapture.open(out))
    assert found.files >= early - 1  # the first line is the run's
    assert {problem.kind for problem in found.problems} <= {Kind.INTERRUPTED, Kind.EXTRA}


@pytest.mark.parametrize("packed", ["single", "packed"])
def test_capture_that_was_forced_at_its_end_outlives_a_power_cut(disk: Disk, packed: str) -> None:
    out = disk.path / "runs" / "run"
    with capturing(out, "capture", packed, 1000) as process:
        assert process.wait(_LIMIT_S) == 0

        disk.cut_power()
    disk.restart()

    found = verify(StoredCapture.open(out))
    assert found.whole
    assert found.files == 1000
    assert found.leftovers == []
