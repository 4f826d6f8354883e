"""Compressed files: blocks of a file in, frames out to where the file is stored. Runs on worker threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

from xxhash import xxh3_64
from zstandard import ZstdError

from dumpstream._errors import SinkError
from dumpstream.sinks import Stored
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks._frames import EMPTY_FRAME, NO_BYTES, Block

# What it costs to store a frame, as the number of bytes that are compressed in the same time.
_STORING_WORK = 32 << 10


class CompressedFile(ABC):
    """One file, whose compressed blocks go where the subclass stores them.

    Failures do not raise: they become the `outcome`, and everything after them does nothing. The abstract
    methods may raise `OSError` or `MemoryError`.
    """

    __slots__ = ("_hash", "name", "outcome")

    def __init__(self, name: str) -> None:
        self.name = name
        self._hash: xxh3_64 | None = None
        self.outcome: Stored | SinkError | None = None

    @abstractmethod
    def add(self, frame: memoryview) -> None:
        """Store *frame* behind the earlier ones."""

    @abstractmethod
    def publish(self) -> Stored:
        """Make the file visible, and return where it is."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what there is of the file, if anything; after an `OSError` some of it may be left."""

    def jobs(self, blocks: Sequence[Block], *, finish: bool) -> list[Job]:
        """Return the jobs that append *blocks* and then, if *finish*, publish the file."""
        *first, last = blocks or [[]]
        return [*(Job(self, block) for block in first), Job(self, last, finish=finish)]

    def cancel(self) -> None:
        """Make it fail, because some of the file may be missing."""
        self.outcome = self.outcome or SinkError(f"storing {self.name!r} was cancelled; abort it")

    def fail(self, exc: OSError | MemoryError | ZstdError) -> None:
        """Make *exc* the outcome, unless there is one."""
        self.outcome = self.outcome or sink_error(f"store {self.name!r}", exc)

    def append(self, data: memoryview, frame: memoryview) -> None:
        """Add *data*, whose compressed form is *frame*."""
        if self.outcome is not None:
            return
        try:
            self.add(frame)
        except (OSError, MemoryError) as exc:
            self.fail(exc)
        else:
            if self._hash is None:
                self._hash = xxh3_64()
            self._hash.update(data)

    def finish(self) -> None:
        """Publish the file; if anything failed, remove it."""
        if self._hash is None:
            self.append(NO_BYTES, EMPTY_FRAME)
        if self.outcome is None:
            assert self._hash is not None
            try:
                self.outcome = self.publish()._replace(xxh3=self._hash.hexdigest())
            except (OSError, MemoryError) as exc:
                self.fail(exc)
        if isinstance(self.outcome, SinkError):
            with suppress(OSError):  # the first failure is the one to report
                self.discard()


class Frames(CompressedFile):
    """A file whose frames are kept in memory until they are taken."""

    __slots__ = ("_frames", "_stored")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._frames: list[memoryview] = []
        self._stored = 0

    def add(self, frame: memoryview) -> None:
        self._frames.append(frame)
        self._stored += len(frame)

    def publish(self) -> Stored:
        return Stored(bytes=self._stored)

    def discard(self) -> None:
        self._frames.clear()

    def take(self) -> list[memoryview]:
        """Return the frames that were added since the last call."""
        frames, self._frames = self._frames, []
        return frames


class Job:
    """A block of a file, to be compressed by any thread and then stored after the blocks before it."""

    __slots__ = ("_file", "_finish", "_frame", "data", "work")

    def __init__(self, file: CompressedFile, block: Block, *, finish: bool = False) -> None:
        self._file, self._finish = file, finish
        self.data = block[0] if len(block) == 1 else memoryview(b"".join(block))
        self._frame = NO_BYTES
        self.work = len(self.data) + _STORING_WORK

    def take(self, frame: memoryview) -> None:
        self._frame = frame

    def fail(self, exc: MemoryError | ZstdError) -> None:
        self._file.fail(exc)

    def store(self) -> None:
        """Append the frame to the file, and after the last one publish the file."""
        if self._frame:
            self._file.append(self.data, self._frame)
            self._frame = NO_BYTES
        if self._finish:
            self._file.finish()
