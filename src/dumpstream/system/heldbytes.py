"""Held bytes: those that cannot go on yet, in memory first and then in a temporary file."""

import os
from bisect import bisect_left, insort
from collections.abc import Hashable
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from anyio import CancelScope, to_thread
from typing_extensions import Buffer

from dumpstream.system.publishing import write_all


class HeldBytes:
    """Keeps bytes by key, up to *memory_bytes* in memory and the rest in an unlinked file in *directory*.

    The file keeps its largest size until it is empty. For one task at a time.
    """

    def __init__(self, directory: Path, *, memory_bytes: int = 32 << 20) -> None:
        self._directory = directory
        self._free_memory = memory_bytes
        self._memory: dict[Hashable, bytes] = {}
        self._spilled: dict[Hashable, tuple[int, int]] = {}  #: where in the file, and how many
        self._space = _Space()
        self._file: IO[bytes] | None = None

    async def keep(self, key: Hashable, data: Buffer) -> None:
        """Copy *data*. If that raises `OSError`, nothing is kept under *key*."""
        view = memoryview(data)
        length = view.nbytes
        if length <= self._free_memory:
            self._free_memory -= length
            self._memory[key] = bytes(view)
            return
        offset = self._space.take(length)
        try:
            await to_thread.run_sync(self._write, offset, view)
        except BaseException:
            self._space.give_back(offset, length)
            raise
        self._spilled[key] = (offset, length)

    async def take(self, key: Hashable) -> Buffer:
        """Return the bytes kept under *key*, and forget them; raises `KeyError` or `OSError`."""
        kept = self._memory.pop(key, None)
        if kept is not None:
            self._free_memory += len(kept)
            return kept
        offset, length = self._spilled.pop(key)
        try:
            return await to_thread.run_sync(self._read, offset, length)
        finally:
            self._space.give_back(offset, length)

    async def aclose(self) -> None:
        """Forget everything and give the space back."""
        self._memory.clear()
        self._spilled.clear()
        file, self._file = self._file, None
        if file is not None:
            with CancelScope(shield=True):
                await to_thread.run_sync(file.close)

    def _write(self, offset: int, view: memoryview) -> None:
        if self._file is None:
            self._file = TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115  # aclose() closes it
        descriptor = self._file.fileno()
        os.lseek(descriptor, offset, os.SEEK_SET)
        write_all(descriptor, view)

    def _read(self, offset: int, length: int) -> bytearray:
        assert self._file is not None
        descriptor = self._file.fileno()
        data = bytearray(length)
        with memoryview(data) as view:
            at = 0
            while at < length:
                count = os.preadv(descriptor, [view[at:]], offset + at)
                if count == 0:
                    raise OSError(f"the temporary file in {self._directory} was shortened by another process")
                at += count
        if not self._spilled:
            os.ftruncate(descriptor, 0)
        return data


class _Space:
    """Which ranges of a file are free: the holes, and all behind the last range that is taken."""

    def __init__(self) -> None:
        self._end = 0
        # The holes in front of `_end`, so that each is found at once by its start, its end or its length.
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._lengths: list[tuple[int, int]] = []  #: length and start, in order

    def take(self, length: int) -> int:
        """Return the start of *length* free bytes: in the smallest hole that has them, or at the end."""
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
