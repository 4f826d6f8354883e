"""Pieces of a file in, zstd frames out. Runs on worker threads."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from threading import Condition
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from xxhash import xxh3_64
from zstandard import ZstdCompressor, ZstdError, backend_features

from dumpstream._errors import SinkError
from dumpstream.sinks import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    Block: TypeAlias = list[memoryview]

_T = TypeVar("_T")
_P = ParamSpec("_P")

#: Pieces below this share a frame: smaller frames cost both ratio and speed.
SMALL_BYTES = 256 << 10
# Larger pieces are cut into frames of at most this: four windows of level 1, and still in the cache.
_FRAME_BYTES = 2 << 20
# What it costs to store a frame, in bytes compressed meanwhile.
_STORING_WORK = 32 << 10

# Only zstandard's C implementation can compress many blocks in one call.
_MANY_AT_ONCE = "multi_compress_to_buffer" in backend_features

_NO_BYTES = memoryview(b"")
#: What no bytes are compressed to.
EMPTY_FRAME = memoryview(ZstdCompressor(write_checksum=True).compress(b""))

_NO_SPACE = "free some space or choose another destination"
_NO_ACCESS = "make the destination writable or choose another"
_NO_DESCRIPTORS = "raise the limit of open files (ulimit -n) or lower max_descriptors"
_REMEDIES = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.EROFS: _NO_ACCESS,
    errno.EMFILE: _NO_DESCRIPTORS,
    errno.ENFILE: _NO_DESCRIPTORS,
    errno.ENOENT: "leave the directories of a running capture in place",
    errno.ENOTDIR: "remove what is in the place of a directory or choose another destination",
}


def sink_error(what: str, exc: OSError | MemoryError | ZstdError) -> SinkError:
    """Return the error to report for *exc*, which kept the sink from doing *what*."""
    if isinstance(exc, OSError):
        problem = os.strerror(exc.errno) if exc.errno else str(exc)
        remedy = _REMEDIES.get(exc.errno or 0, "check the destination or choose another")
    else:
        problem, remedy = str(exc) or "out of memory", "use fewer workers or a lower level"
    error = SinkError(f"cannot {what}: {problem}; {remedy}")
    # A copy: the tracebacks behind the original would hold views of the caller's buffers with the error.
    error.__cause__ = type(exc)(*exc.args)
    return error


def view_bytes(data: Buffer) -> memoryview:
    """Return *data* as one row of bytes."""
    view = memoryview(data)
    return view.cast("B") if view.nbytes else _NO_BYTES


def cut(pieces: Iterable[memoryview]) -> list[Block]:
    """Arrange *pieces* into blocks that are to become a frame each."""
    blocks: list[Block] = []
    room = 0  # in the last block, for more small pieces
    for piece in pieces:
        size = len(piece)
        if size >= SMALL_BYTES:
            step = -(-size // -(-size // _FRAME_BYTES))
            blocks += [[piece[start : start + step]] for start in range(0, size, step)]
            room = 0
        elif size:
            if room <= 0:
                blocks.append([])
                room = SMALL_BYTES
            blocks[-1].append(piece)
            room -= size
    return blocks


class Turns:
    """Lets threads through in the order of their tickets, which begin at 0."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._done = 0

    @contextmanager
    def turn(self, ticket: int) -> Iterator[None]:
        """Wait until all lower tickets are done; the block is the turn of this one."""
        with self._condition:
            self._condition.wait_for(lambda: self._done == ticket)
        try:
            yield
        finally:
            with self._condition:
                self._done += 1
                self._condition.notify_all()


class Compressible(Protocol):
    """What any thread may compress.

    Attributes:
        data: the bytes.
        work: what it costs, as the number of bytes that are compressed in the same time.
    """

    data: memoryview
    work: int

    def take(self, frame: memoryview) -> None:
        """Have *frame*, the compressed form of `data`."""

    def fail(self, exc: MemoryError | ZstdError) -> None:
        """Have none, because of *exc*."""


class Job:
    """A block of a file, to be compressed by any thread and then stored after the blocks before it.

    Attributes:
        work: what it costs, as the number of bytes that are compressed in the same time.
    """

    __slots__ = ("data", "file", "finish", "frame", "work")

    def __init__(self, file: CompressedFile, block: Block, *, finish: bool) -> None:
        self.file, self.finish = file, finish
        self.data = block[0] if len(block) == 1 else memoryview(b"".join(block))
        self.frame = _NO_BYTES
        self.work = len(self.data) + _STORING_WORK

    def take(self, frame: memoryview) -> None:
        self.frame = frame

    def fail(self, exc: MemoryError | ZstdError) -> None:
        self.file.fail(exc)

    def store(self) -> None:
        """Append the frame to the file, and if it is the last, publish the file."""
        if self.frame:
            self.file.append(self.data, self.frame)
            self.frame = _NO_BYTES
        if self.finish:
            self.file.finish()


def compress(jobs: Iterable[Compressible], compressor: ZstdCompressor) -> None:
    """Make the frames of *jobs*; those without bytes have none."""
    jobs = [job for job in jobs if job.data]
    try:
        frames = _frames([job.data for job in jobs], compressor)
    except (MemoryError, ZstdError) as exc:
        for job in jobs:
            job.fail(exc)
    else:
        for job, frame in zip(jobs, frames, strict=True):
            job.take(memoryview(frame))


def _frames(blocks: list[bytes | bytearray | memoryview], compressor: ZstdCompressor) -> Collection[Buffer]:
    if len(blocks) > 1 and _MANY_AT_ONCE:
        # One call for all, so that the thread takes the interpreter's lock once, not once for each.
        return cast("Collection[Buffer]", compressor.multi_compress_to_buffer(blocks))
    return [compressor.compress(block) for block in blocks]


class FrameTarget(Protocol):
    """Where the frames of one file go. Every method may raise `OSError` or `MemoryError`."""

    @property
    def begun(self) -> bool:
        """Whether there is something of the file that is not published."""

    def append(self, data: memoryview, frame: memoryview) -> None:
        """Add *frame*, the compressed form of *data*, which is valid only until this call returns."""

    def publish(self) -> Stored:
        """Make the file visible, and tell where it is."""

    def discard(self) -> None:
        """Remove what there is of the file, if anything."""


class Frames:
    """The frames of a file, kept in memory for who takes them from there."""

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
        """Return the frames that have come since the last call."""
        frames, self._frames = self._frames, []
        return frames


class CompressedFile:
    """One file on its way into its output.

    Holds no compressor between calls. Failures do not raise: they are the `outcome`, and everything after
    them does nothing.
    """

    __slots__ = ("_hash", "_name", "_output", "outcome")

    def __init__(self, name: str, output: FrameTarget) -> None:
        self._name, self._output = name, output
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
        """Whether there is something of the file that is not published."""
        return self._output.begun

    def cancel(self) -> None:
        """Make it fail, because not all of the file may have been passed on."""
        self.outcome = self.outcome or SinkError(f"storing {self._name!r} was cancelled; abort it")

    def fail(self, exc: OSError | MemoryError | ZstdError) -> None:
        """Make *exc* the outcome, unless there is one."""
        self.outcome = self.outcome or sink_error(f"store {self._name!r}", exc)

    def append(self, data: memoryview, frame: memoryview) -> None:
        """Add *data*, which *frame* is the compressed form of."""
        self._attempt(self._append, data, frame)

    def finish(self) -> None:
        """Publish the file; if anything failed, remove it."""
        if self._hash is None:
            self.append(_NO_BYTES, EMPTY_FRAME)
        self.outcome = self._attempt(self._publish) or self.outcome
        if isinstance(self.outcome, SinkError):
            with suppress(OSError):  # the first failure is the one to report
                self.discard()

    def discard(self) -> None:
        """Remove what there is of the file.

        Raises:
            OSError: some of it may be left.
        """
        self._output.discard()

    def _attempt(self, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        """Return what *step* returns, or None if it failed or something did before."""
        if self.outcome is None:
            try:
                return step(*args, **kwargs)
            except (OSError, MemoryError) as exc:
                self.fail(exc)
        return None

    def _append(self, data: memoryview, frame: memoryview) -> None:
        self._output.append(data, frame)
        if self._hash is None:
            self._hash = xxh3_64()
        self._hash.update(data)

    def _publish(self) -> Stored:
        assert self._hash is not None
        return self._output.publish()._replace(xxh3=self._hash.hexdigest())
