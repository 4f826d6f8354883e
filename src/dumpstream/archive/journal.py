"""The journal of a capture: lines are added at little cost, and written in batches in the background."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Protocol

import aiofiles
import anyio
import anyio.to_thread
from aiofiles.threadpool.binary import AsyncFileIO

from dumpstream.custody import Custody
from dumpstream.system.durable import Fsync, force_path
from dumpstream.system.nofollow import open_regular

_FULL_BYTES = 4 << 20
_GATHER_BYTES = 256 << 10
_GATHER_S = 0.02
_RESERVE_BYTES = 256 << 10


class Lines(Protocol):
    """Where the lines of a journal go."""

    @property
    def full(self) -> bool:
        """Whether so much is unwritten that the caller should `drain` before it adds more."""

    @property
    def waiting(self) -> int:
        """How many lines an object store does not have yet, or not the file that they name."""

    @property
    def waiting_files(self) -> int:
        """How many of them are of finished files."""

    def add(self, line: str, custodies: Sequence[Custody] = ()) -> None:
        """Append *line*, ASCII and without its newline, soon; never waits, and `drain` raises what fails.

        The line says that something is stored which so far is only in *custodies*.
        """

    async def drain(self) -> None:
        """Wait until every line added so far is on the local disk.

        Raises:
            OSError: a write failed since the last call. Its lines are kept: the next call tries again.
        """

    async def aclose(self) -> None:
        """Write what is left and close, also if the caller is cancelled; raises `OSError` if that fails."""


class Journal:
    """An append-only file of lines.

    A write in a thread costs as much as a hundred lines, so lines are gathered for 20 ms or up to 256 KiB.
    Lines that are added during a write share the next one.
    """

    waiting = 0
    waiting_files = 0

    def __init__(self, file: AsyncFileIO, reserve: IO[bytes], fsync: Fsync) -> None:
        self._file = file
        self._reserve = reserve
        self._fsync = fsync
        self._lines: list[str] = []
        self._unwritten = b""  # the rest of a failed write
        self._doubtful_from: int | None = None  # where in the file a failed write began
        self._added = 0  # bytes, like _written
        self._written = 0
        # Not in a task group: a cancellation must not leave half a line, or keep `add` waiting.
        self._flush: asyncio.Task[None] | None = None
        self._urgent = asyncio.Event()
        self._error: OSError | None = None
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path, *, fsync: Fsync = Fsync.NONE) -> AsyncIterator[Journal]:
        """Open the journal at *path* for appending, and close it at the end of the block.

        A line that an earlier process left unfinished is ended first.

        Raises:
            OSError: on entering, if *path* cannot be opened or is a symbolic link; on leaving, as `aclose`.
        """
        with anyio.CancelScope(shield=True):  # a cancelled caller would leave the file open
            file = await aiofiles.open(path, "ab", buffering=0, opener=_open_and_mend)
            journal = cls(file, await anyio.to_thread.run_sync(_take_reserve, path.parent), fsync)
        async with aclosing(journal):
            if fsync is not Fsync.NONE:
                await anyio.to_thread.run_sync(force_path, path)
            yield journal

    @property
    def full(self) -> bool:
        return self._added - self._written >= _FULL_BYTES

    def add(self, line: str, custodies: Sequence[Custody] = ()) -> None:  # noqa: ARG002 - see `Lines`
        self._lines.append(line)
        self._added += len(line) + 1
        if self._flush is None and self._error is None:
            self._start_flush()
        elif self._added - self._written >= _GATHER_BYTES:
            self._urgent.set()

    async def drain(self) -> None:
        goal = self._added
        while self._written < goal and self._error is None:
            flush = self._flush or self._start_flush()
            self._urgent.set()
            await asyncio.wait([flush])
            flush.result()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    async def aclose(self) -> None:
        if self._closed:
            return
        with anyio.CancelScope(shield=True):
            try:
                await anyio.to_thread.run_sync(self._reserve.close)
                self._error = None
                await self.drain()
                if self._fsync is Fsync.CAPTURE:
                    await self._sync()
            finally:
                self._closed = True
                await self._file.close()

    def _start_flush(self) -> asyncio.Task[None]:
        if self._closed:
            raise ValueError("the journal is closed")
        self._urgent.clear()
        self._flush = asyncio.get_running_loop().create_task(self._flush_once())
        return self._flush

    async def _flush_once(self) -> None:
        try:
            with anyio.move_on_after(_GATHER_S):
                await self._urgent.wait()
            await self._write_pending()
        except OSError as exc:
            self._error = exc
        finally:
            self._flush = None
        if self._lines and self._error is None:
            self._start_flush()

    async def _write_pending(self) -> None:
        goal = self._added
        if self._lines:
            self._lines.append("")
            self._unwritten += "\n".join(self._lines).encode("ascii")
            self._lines.clear()
        if self._unwritten:
            await asyncio.to_thread(self._write_all)
        if self._fsync is Fsync.FILE:
            await self._sync()
        self._written = goal

    def _write_all(self) -> None:
        """Write everything; after a failure, first find out how much of it is in the file already."""
        fd = self._file.fileno()
        if self._doubtful_from is not None:
            self._unwritten = self._unwritten[_mend_failed_write(fd, self._doubtful_from, self._unwritten) :]
        self._doubtful_from = os.fstat(fd).st_size
        while self._unwritten:
            written = os.write(fd, self._unwritten)
            self._doubtful_from += written
            self._unwritten = self._unwritten[written:]
        self._doubtful_from = None

    async def _sync(self) -> None:
        await anyio.to_thread.run_sync(os.fsync, self._file.fileno())


def _take_reserve(directory: Path) -> IO[bytes]:
    """Return a file without a name that reserves space for the last lines, as sinks may fill the disk."""
    reserve = TemporaryFile(dir=directory)  # noqa: SIM115 - aclose() closes it
    with suppress(OSError):  # a disk that is nearly full cannot reserve so much
        os.posix_fallocate(reserve.fileno(), 0, _RESERVE_BYTES)
    return reserve


def _mend_failed_write(fd: int, end: int, unwritten: bytes) -> int:
    """Return how much of *unwritten* is behind *end* in the file, and remove all else that is there.

    A write to a network file system may fail after it has written some. If the rest cannot be removed, its
    line is ended, so that readers pass over one line that they cannot read, and no line is there twice.
    """
    there = os.pread(fd, len(unwritten) + 1, end)
    pairs = enumerate(zip(there, unwritten, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(there), len(unwritten)))
    if same == len(there):
        return same
    try:
        os.ftruncate(fd, end + same)
    except OSError:
        os.write(fd, b"\n")
        return unwritten.rfind(b"\n", 0, same) + 1
    return same


def _open_and_mend(path: str, _flags: int) -> int:
    fd = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            os.write(fd, b"\n")
    except OSError:
        os.close(fd)
        raise
    return fd
