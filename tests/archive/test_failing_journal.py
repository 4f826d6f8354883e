"""A journal whose disk fails: no line is lost quietly, or there twice."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.conftest import LIMIT_S
from tests.failingwrites import failing_writes

from dumpstream.archive.journal import Journal, _mend_failed_write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


@contextmanager
def small_file_limit() -> Iterator[None]:
    """Let files of this process grow to 10 bytes only: a real write error, as a full disk gives one.

    Not for longer than a test runs: the report of the tests may go to a file too.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.anyio
class TestFailingWrites:
    async def test_drain_tells_of_a_failed_write(self, journal_path: Path) -> None:
        async with Journal.open(journal_path) as journal:
            with small_file_limit():
                journal.add("longer than the limit")

                with pytest.raises(OSError, match="large") as caught:
                    await journal.drain()

        assert caught.value.errno == errno.EFBIG

    async def test_closing_tells_of_a_failed_write(self, journal_path: Path) -> None:
        with small_file_limit(), pytest.raises(OSError, match="large"):
            async with Journal.open(journal_path) as journal:
                journal.add("longer than the limit")

    async def test_nothing_is_lost_or_doubled_when_there_is_room_again(self, journal_path: Path) -> None:
        async with Journal.open(journal_path) as journal:
            with small_file_limit():
                journal.add("longer than the limit")
                with pytest.raises(OSError, match="large"):
                    await journal.drain()
            journal.add("next")
            await journal.drain()

        assert await anyio.Path(journal_path).read_text() == "longer than the limit\nnext\n"


_FAILING_JOURNAL = """
import sys
from pathlib import Path
import anyio
from tests.conftest import LIMIT_S
from tests.failingwrites import failing_writes

from dumpstream.archive.journal import Journal, _mend_failed_write

async def main():
    async with Journal.open(Path(sys.argv[1])) as journal:
        for number in range(100):
            journal.add(str(number))
        try:
            await journal.drain()
        except OSError as exc:
            print(exc.strerror)
        journal.add("next")

anyio.run(main)
"""


def test_no_line_is_there_twice_after_a_write_that_failed_half_way(
    tmp_path: Path, journal_path: Path
) -> None:
    environment = failing_writes(tmp_path, journal_path.name)
    command = [sys.executable, "-c", _FAILING_JOURNAL, str(journal_path)]

    told = subprocess.check_output(command, env=environment, timeout=LIMIT_S, text=True)

    assert told == "Input/output error\n"
    assert journal_path.read_text() == "".join(f"{number}\n" for number in [*range(100), "next"])


LINES = b"first line\nsecond line\nthird line\n"


@pytest.mark.parametrize(
    ("left", "append_only", "mended", "rest"),
    [
        (b"", False, b"", LINES),
        (LINES[:15], False, LINES[:15], LINES[15:]),
        (LINES, False, LINES, b""),
        (LINES[:15] + bytes(4), False, LINES[:15], LINES[15:]),
        (LINES[:15] + bytes(4), True, LINES[:15] + bytes(4) + b"\n", LINES[11:]),
        (LINES + b"more than was to be written", True, LINES + b"more than was to be written\n", b""),
    ],
    ids=["nothing", "half", "everything", "half and other bytes", "they stay", "more, and it stays"],
)
def test_what_a_failed_write_left_is_kept_if_it_is_right(
    left: bytes,
    append_only: bool,  # noqa: FBT001 - a parameter of the test
    mended: bytes,
    rest: bytes,
) -> None:
    fd = os.memfd_create("journal", os.MFD_ALLOW_SEALING)
    with os.fdopen(fd, "r+b", buffering=0) as file:
        file.write(b"before\n" + left)
        if append_only:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)

        written = _mend_failed_write(fd, len(b"before\n"), LINES)

        assert LINES[written:] == rest
        assert os.pread(fd, 1000, 0) == b"before\n" + mended
