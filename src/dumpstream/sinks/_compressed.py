"""Compressed files: blocks of a file in, frames out to where the file is stored. Runs on worker threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress

from xxhash import xxh3_64
from zstandard import ZstdError

from dumpstream._errors import SinkError
from dumpstream._native import layout_of
from dumpstream.codec import Codec
from dumpstream.format.verdict import WHOLE_HEADER, HeaderReader
from dumpstream.sinks import Stored
from dumpstream.sinks._compressors import empty_file
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks._frames import NO_BYTES, Block

# What it costs to store a frame, as the number of bytes that are compressed in the same time.
_STORING_WORK = 32 << 10
# A longer header is not read; without it, tensors are compressed as other bytes.
_LONGEST_HEADER = 1 << 20


class CompressedFile(ABC):
    """One file, whose compressed blocks go where the subclass stores them.

    Failures do not raise: they become the `outcome`, and everything after them does nothing. The abstract
    methods may raise `OSError` or `MemoryError`.

    Args:
        name: of the file.
        codec: how its bytes are compressed.
        offset: where its first byte belongs; behind a gap, there is no header to find tensors by.
    """

    __slots__ = ("_codec", "_hash", "_header", "_layout", "_position", "name", "outcome")

    def __init__(self, name: str, codec: Codec, *, offset: int = 0) -> None:
        self.name, self._codec = name, codec
        self._hash: xxh3_64 | None = None
        self._position = offset
        self._layout = b""
        self._header: HeaderReader | None = None
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
        jobs = [Job(self, block, self._position) for block in blocks or [[]]]
        for job in jobs:
            if self._codec is not Codec.ZSTD:
                self._find_tensors(job)
            self._position += len(job.data)
        jobs[-1].finishes = finish
        return jobs

    def _find_tensors(self, job: Job) -> None:
        """Tell *job* where the tensors of the file are, as far as its bytes up to those of *job* tell."""
        if job.position == 0:
            self._layout = layout_of(job.data)
            if not self._layout:
                self._header = HeaderReader(_LONGEST_HEADER)
        if self._header is not None:
            self._header.add(job.position, job.data)
            if self._header.settled:
                if self._header.header[0] == WHOLE_HEADER:
                    self._layout = layout_of(self._header.kept)
                self._header = None
        job.tensors = self._layout

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
            self.append(NO_BYTES, empty_file(self._codec))
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

    def __init__(self, name: str, codec: Codec, *, offset: int = 0) -> None:
        super().__init__(name, codec, offset=offset)
        self._frames: list[memoryview] = []
        self._stored = 0

    def add(self, frame: memoryview) -> None:
        # Only zstd frames have memory of their own.
        self._frames.append(frame if self._codec is Codec.ZSTD else memoryview(bytes(frame)))
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

    __slots__ = ("_file", "_frame", "data", "finishes", "position", "tensors", "work")

    def __init__(self, file: CompressedFile, block: Block, position: int) -> None:
        self._file, self.position = file, position
        self.data = block[0] if len(block) == 1 else memoryview(b"".join(block))
        self.tensors = b""  #: where they are in the file, if that is known
        self.finishes = False  #: whether the file is published behind it
        self._frame = NO_BYTES
        self.work = len(self.data) + _STORING_WORK

    def layout(self) -> bytes:
        return self.tensors

    def take(self, frame: memoryview) -> None:
        self._frame = frame

    def fail(self, exc: MemoryError | ZstdError) -> None:
        self._file.fail(exc)

    def store(self) -> None:
        """Append the frame to the file, and after the last one publish the file."""
        if self._frame:
            self._file.append(self.data, self._frame)
            self._frame = NO_BYTES
        if self.finishes:
            self._file.finish()


def store_jobs(jobs: Iterable[Job]) -> None:
    """Store *jobs*, which are compressed, in order."""
    for job in jobs:
        job.store()
