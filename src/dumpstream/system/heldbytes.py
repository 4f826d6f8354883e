"""Held bytes: those that cannot go on yet, in memory first and then in a temporary file."""

import asyncio
import os
from bisect import bisect_left, insort
from collections.abc import Hashable
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, NamedTuple

from anyio import CancelScope, to_thread
from typing_extensions import Buffer

from dumpstream.system.publishing import write_all


class Range(NamedTuple):
    """Bytes of a file."""

    start: int
    length: int


class SpillFile:
    """A file without a name in *directory*, or in the system's for temporary files, used range by range.

    It keeps its largest size until it is empty. For several tasks at a time.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._space = _Space()
        self._file: IO[bytes] | None = None
        self._changing = Lock()  # so that it is not emptied while a range is being written

    async def write(self, data: Buffer) -> Range:
        """Copy *data*, and return where it is. If that raises `OSError`, nothing is kept."""
        view = memoryview(data).cast("B")
        taken = Range(self._space.take(view.nbytes), view.nbytes)
        try:
            await to_thread.run_sync(self._write, taken, view)
        except BaseException:
            self.free(taken)
            raise
        return taken

    async def read(self, taken: Range) -> bytearray:
        """Return the bytes that were written to *taken*; raises `OSError`."""
        return await to_thread.run_sync(self._read, taken)

    async def take(self, taken: Range) -> bytearray:
        """Return the bytes that were written to *taken*, and free it; raises `OSError`."""
        try:
            return await to_thread.run_sync(self._read_last, taken)
        finally:
            self.free(taken)

    def free(self, taken: Range) -> None:
        """Let the range be used again."""
        self._space.give_back(*taken)

    async def aclose(self) -> None:
        """Give the space back."""
        file, self._file = self._file, None
        self._space = _Space()
        if file is not None:
            with CancelScope(shield=True):
                await to_thread.run_sync(file.close)

    def close_soon(self) -> None:
        """Do as `aclose` without waiting for it; no range is being read or written."""
        file, self._file = self._file, None
        if file is not None:
            try:
                asyncio.get_running_loop().run_in_executor(None, file.close)
            except RuntimeError:  # the event loop has ended
                file.close()

    def _write(self, taken: Range, view: memoryview) -> None:
        with self._changing:
            if self._file is None:
                self._file = TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115  # aclose() closes it
            self._empty(taken)
            descriptor = self._file.fileno()
            os.lseek(descriptor, taken.start, os.SEEK_SET)
            write_all(descriptor, view)

    def _read(self, taken: Range) -> bytearray:
        if self._file is None:
            raise OSError("the temporary file is closed")
        descriptor = self._file.fileno()
        data = bytearray(taken.length)
        with memoryview(data) as view:
            at = 0
            while at < taken.length:
                count = os.preadv(descriptor, [view[at:]], taken.start + at)
                if count == 0:
                    raise OSError("the temporary file was shortened by another process")
                at += count
        return data

    def _read_last(self, taken: Range) -> bytearray:
        data = self._read(taken)
        with self._changing:
            self._empty(taken)
        return data

    def _empty(self, only: Range) -> None:
        """Give all space back if *only* is the one range in use, whose bytes are not needed."""
        if self._space.taken == only.length and self._file is not None:
            os.ftruncate(self._file.fileno(), 0)


class HeldBytes:
    """Keeps bytes by key, up to *memory_bytes* in memory and the rest in an unlinked file in *directory*.

    Without a *directory* the file is in the system's for temporary files. For one task at a time.
    """

    def __init__(self, directory: Path | None, *, memory_bytes: int = 32 << 20) -> None:
        self._free_memory = memory_bytes
        self._memory: dict[Hashable, bytes] = {}
        self._spilled: dict[Hashable, Range] = {}
        self._file = SpillFile(directory)

    async def keep(self, key: Hashable, data: Buffer) -> None:
        """Copy *data*. If that raises `OSError`, nothing is kept under *key*."""
        view = memoryview(data)
        length = view.nbytes
        if length <= self._free_memory:
            self._free_memory -= length
            self._memory[key] = bytes(view)
            return
        self._spilled[key] = await self._file.write(view)

    async def take(self, key: Hashable) -> Buffer:
        """Return the bytes kept under *key*, and forget them; raises `KeyError` or `OSError`."""
        kept = self._memory.pop(key, None)
        if kept is not None:
            self._free_memory += len(kept)
            return kept
        return await self._file.take(self._spilled.pop(key))

    async def aclose(self) -> None:
        """Forget everything and give the space back."""
        self._memory.clear()
        self._spilled.clear()
        await self._file.aclose()


class _Space:
    """Which ranges of a file are free: the holes, and all behind the last range that is taken."""

    def __init__(self) -> None:
        self.taken = 0  #: bytes
        self._end = 0
        # The holes in front of `_end`, so that each is found at once by its start, its end or its length.
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._lengths: list[tuple[int, int]] = []  #: length and start, in order

    def take(self, length: int) -> int:
        """Return the start of *length* free bytes: in the smallest hole that has them, or at the end."""
        self.taken += length
        index = bisect_left(self._lengths, (length, 0))
        if index == len(self._lengths):
            start = self._end
            self._end += length
            return start
        start = self._lengths[index][1]
        end = self._close(start)
        if start + length < end:
            self._open(start + length, end)
        return start

    def give_back(self, start: int, length: int) -> None:
        """Free a range, and join it with its free neighbours."""
        self.taken -= length
        end = start + length
        if end in self._starts:
            end = self._close(end)
        if start in self._ends:
            start = self._ends[start]
            self._close(start)
        if end == self._end:
            self._end = start
        else:
            self._open(start, end)

    def _open(self, start: int, end: int) -> None:
        self._starts[start], self._ends[end] = end, start
        insort(self._lengths, (end - start, start))

    def _close(self, start: int) -> int:
        """Forget the hole at *start*, and return where it ended."""
        end = self._starts.pop(start)
        del self._ends[end]
        del self._lengths[bisect_left(self._lengths, (end - start, start))]
        return end
