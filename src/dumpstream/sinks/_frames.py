"""Pieces of a file in, zstd frames in a tree out. Runs on worker threads."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from threading import Condition
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar

from xxhash import xxh3_64
from zstandard import ZstdCompressor, ZstdError

from dumpstream._errors import SinkError
from dumpstream.sinks import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from typing_extensions import Buffer

    from dumpstream.sinks._tree import Draft, Tree

    Block: TypeAlias = list[memoryview]
    Job: TypeAlias = Callable[[ZstdCompressor], None]

_T = TypeVar("_T")
_P = ParamSpec("_P")

#: Pieces below this share a frame: smaller frames cost both ratio and speed.
SMALL_BYTES = 256 << 10
# Larger pieces are cut into frames of at most this: four windows of level 1, and still in the cache.
_FRAME_BYTES = 2 << 20

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
    return view.cast("B") if view.nbytes else memoryview(b"")


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


class Writer:
    """One file on its way into the tree.

    Holds no descriptor and no compressor between jobs. Failures do not raise: they are the `outcome`, and
    every later job does nothing.
    """

    __slots__ = ("_bytes", "_draft", "_hash", "_name", "_number", "_tree", "outcome")

    def __init__(self, tree: Tree, name: str, *, number: int = 1) -> None:
        self._tree, self._name, self._number = tree, name, number
        self._draft: Draft | None = None
        self._hash: xxh3_64 | None = None
        self._bytes = 0
        self.outcome: Stored | SinkError | None = None

    def jobs(self, blocks: Sequence[Block], *, finish: bool) -> list[Job]:
        """Return the jobs that append *blocks* and then, if *finish*, publish the file.

        They must be started in this order, by as many threads as one likes: each compresses at once, then
        waits for those before it.
        """
        if len(blocks) < 2:  # noqa: PLR2004 - a lone block has no order to keep
            return [partial(self._append, blocks[0] if blocks else [], nullcontext(), finish=finish)]
        turns, last = Turns(), len(blocks) - 1
        return [
            partial(self._append, block, turns.turn(ticket), finish=finish and ticket == last)
            for ticket, block in enumerate(blocks)
        ]

    @property
    def begun(self) -> bool:
        """Whether there is something of the file in the tree that is not published."""
        return self._draft is not None

    def fail(self, error: SinkError) -> None:
        """Make *error* the outcome, unless there is one."""
        self.outcome = self.outcome or error

    def discard(self) -> None:
        """Remove what there is of the file.

        Raises:
            OSError: some of it may be left.
        """
        if self._draft is not None:
            self._tree.discard(self._draft)
            self._draft = None

    def _append(
        self, block: Block, turn: AbstractContextManager[None], compressor: ZstdCompressor, *, finish: bool
    ) -> None:
        data = block[0] if len(block) == 1 else memoryview(b"".join(block))
        # A file without bytes is one empty frame.
        frame = self._attempt(compressor.compress, data) if block or self._draft is None else b""
        with turn:
            if frame:
                self._attempt(self._write, data, frame)
            if finish:
                self.outcome = self._attempt(self._publish) or self.outcome
                if isinstance(self.outcome, SinkError):
                    with suppress(OSError):  # the first failure is the one to report
                        self.discard()

    def _attempt(self, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        """Return what *step* returns, or None if it failed or something did before."""
        if self.outcome is None:
            try:
                return step(*args, **kwargs)
            except (OSError, MemoryError, ZstdError) as exc:
                self.fail(sink_error(f"store {self._name!r}", exc))
        return None

    def _write(self, data: memoryview, frame: bytes) -> None:
        if self._draft is None or self._hash is None:
            self._draft, fd = self._tree.create(self._name)
            self._hash = xxh3_64()
        else:
            fd = self._tree.append(self._draft)
        try:
            unwritten = memoryview(frame)
            while unwritten:
                unwritten = unwritten[os.write(fd, unwritten) :]
        finally:
            os.close(fd)
        self._hash.update(data)
        self._bytes += len(frame)

    def _publish(self) -> Stored:
        assert self._draft is not None
        assert self._hash is not None
        path = self._tree.publish(self._draft, number=self._number)
        self._draft = None
        return Stored(path, self._bytes, self._hash.hexdigest())
