"""Compressed files: blocks of a file in, frames out to where the file is stored. Runs on worker threads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from xxhash import xxh3_64
from zstandard import ZstdError

from dumpstream._errors import SinkError
from dumpstream.sinks import Stored
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks._frames import EMPTY_FRAME, NO_BYTES, Block

# What it costs to store a frame, as the number of bytes that are compressed in the same time.
_STORING_WORK = 32 << 10


class FrameTarget(Protocol):
    """Where the frames of one file go. Every method may raise `OSError` or `MemoryError`."""

    @property
    def begun(self) -> bool:
        """Whether some of the file is there and not published."""

    def append(self, data: memoryview, frame: memoryview) -> None:
        """Add *frame*, the compressed form of *data*, which is valid only until this call returns."""

    def publish(self) -> Stored:
        """Make the file visible, and return where it is."""

    def discard(self) -> None:
        """Remove what there is of the file, if anything."""


class Frames:
    """The frames of a file, kept in memory until they are taken."""

    __slots__ = ("_frames", "_stored")

    def __init__(self) -> None:
        self._frames: list[memoryview] = []
        self._stored = 0

    @property
    def begun(self) -> bool:
        return bool(self._frames)

    def append(self, data: memoryview, frame: memoryview) -> None:  # noqa: ARG002 - the frame has it all
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


class CompressedFile:
    """One file on its way to *target*.

    Failures do not raise: they become the `outcome`, and everything after them does nothing.
    """

    __slots__ = ("_hash", "_name", "_target", "outcome")

    def __init__(self, name: str, target: FrameTarget) -> None:
        self._name, self._target = name, target
        self._hash: xxh3_64 | None = None
        self.outcome: Stored | SinkError | None = None

    def jobs(self, blocks: Sequence[Block], *, finish: bool) -> list[Job]:
        """Return the jobs that append *blocks* and then, if *finish*, publish the file."""
        last = len(blocks) - 1
        return [Job(self, block, finish=finish and at == last) for at, block in enumerate(blocks)] or [
            Job(self, [], finish=finish)
        ]

    @property
    def begun(self) -> bool:
        return self._target.begun

    def cancel(self) -> None:
        """Make it fail, because some of the file may be missing."""
        self.outcome = self.outcome or SinkError(f"storing {self._name!r} was cancelled; abort it")

    def fail(self, exc: OSError | MemoryError | ZstdError) -> None:
        """Make *exc* the outcome, unless there is one."""
        self.outcome = self.outcome or sink_error(f"store {self._name!r}", exc)

    def append(self, data: memoryview, frame: memoryview) -> None:
        """Add *data*, whose compressed form is *frame*."""
        if self.outcome is not None:
            return
        try:
            self._target.append(data, frame)
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
                self.outcome = self._target.publish()._replace(xxh3=self._hash.hexdigest())
            except (OSError, MemoryError) as exc:
                self.fail(exc)
        if isinstance(self.outcome, SinkError):
            with suppress(OSError):  # the first failure is the one to report
                self.discard()

    def discard(self) -> None:
        """Remove what there is of the file; after an `OSError` some of it may be left."""
        self._target.discard()


class Job:
    """A block of a file, to be compressed by any thread and then stored after the blocks before it."""

    __slots__ = ("_file", "_finish", "_frame", "data", "work")

    def __init__(self, file: CompressedFile, block: Block, *, finish: bool) -> None:
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
