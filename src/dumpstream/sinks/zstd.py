"""The zstd sink: every dump file becomes one ``.zst`` file, compressed on worker threads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync
from zstandard import ZstdCompressor

from dumpstream._errors import SinkError
from dumpstream.sinks import Fsync, Stored
from dumpstream.sinks._frames import SMALL_BYTES, Writer, cut, sink_error, view_bytes
from dumpstream.sinks._tree import TRANSIENT_DESCRIPTORS, Tree, is_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Buffer

    from dumpstream.sinks import SinkSettings, WholeFile
    from dumpstream.sinks._frames import Job

__all__ = ["ZstdSink", "is_temporary"]

# A thread is worth its wake-up for as much work as compressing this many bytes; making a file costs as
# much as compressing so many more.
_THREAD_BYTES = 512 << 10
_FILE_BYTES = 32 << 10
# Small writes wait in memory for more of their file, those of all files together up to this.
_WAITING_BYTES = 16 << 20


class ZstdSink:
    """Mirrors the tree of the runtime's names as ``<name>.zst`` files, which ``zstd -d`` turns back.

    They go below *location*, or if it is empty, below ``files`` in the capture's directory. A name that
    comes again, and a piece behind a gap, takes the next free of ``<name>.2.zst``, ``<name>.3.zst``, ...

    Raises:
        SinkError: *settings* allow no worker, or too few descriptors for one.
    """

    def __init__(self, location: str, settings: SinkSettings) -> None:
        # One descriptor is the root's, and each thread needs one for the directory it works in.
        descriptors = settings.max_descriptors - 1
        threads = min(settings.workers, descriptors // (1 + TRANSIENT_DESCRIPTORS))
        if threads < 1:
            raise SinkError(
                f"the zstd sink cannot work with {settings.workers} workers and {settings.max_descriptors} "
                f"descriptors; allow at least 1 and {2 + TRANSIENT_DESCRIPTORS}"
            )
        self._root = Path(location) if location else settings.directory
        self._tree = Tree(
            self._root,
            below=() if location else ("files",),
            suffix=".zst",
            base=settings.directory,
            directories=descriptors - threads * TRANSIENT_DESCRIPTORS,
            durable=settings.fsync is Fsync.FILE,
        )
        self._sync_at_close = settings.fsync is Fsync.CAPTURE
        self._workers = _Workers(threads, settings.level)
        self._waiting_room = _WaitingRoom(_WAITING_BYTES)
        self._closed = False

    async def open(self, name: str, *, offset: int = 0) -> _ZstdFile:
        self._check_open()
        writer = Writer(self._tree, name, number=2 if offset else 1)
        return _ZstdFile(name, writer, self._workers, self._waiting_room)

    async def put(self, files: Sequence[WholeFile]) -> list[Stored | SinkError]:
        self._check_open()
        writers = [Writer(self._tree, file.name) for file in files]
        jobs: list[Job] = []
        work = 0
        for writer, file in zip(writers, files, strict=True):
            data = view_bytes(file.data)
            jobs += writer.jobs(cut([data]), finish=True)
            work += len(data) + _FILE_BYTES
        with anyio.CancelScope(shield=True):  # what is stored must be reported
            await self._workers.run(jobs, work)
        return [writer.outcome for writer in writers if writer.outcome is not None]

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._workers.finish(self._close)

    def _check_open(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError

    def _close(self) -> None:
        try:
            if self._sync_at_close:
                self._tree.sync()
        except OSError as exc:
            raise sink_error(f"force {self._root} to the disk", exc) from exc
        finally:
            self._tree.close()


class _Workers:
    """The threads of a sink, with a compressor each."""

    def __init__(self, threads: int, level: int) -> None:
        self._threads, self._level = threads, level
        self._limiter = anyio.CapacityLimiter(threads)
        self._compressors: list[ZstdCompressor] = []

    async def run(self, jobs: Sequence[Job], work: int) -> None:
        """Run *jobs*, which cost as much as compressing *work* bytes, on as many threads as are worth it.

        The threads take them one by one, in order. Once the first is taken all are run, even if the caller
        is cancelled.
        """
        queue = iter(jobs)
        async with anyio.create_task_group() as group:
            for _ in range(min(self._threads, len(jobs), 1 + work // _THREAD_BYTES)):
                group.start_soon(self._run_in_thread, queue)

    async def finish(self, function: Callable[[], None]) -> None:
        """Run *function*, even if the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            await run_sync(function, limiter=self._limiter)

    async def _run_in_thread(self, queue: Iterator[Job]) -> None:
        await run_sync(self._work, queue, limiter=self._limiter)

    def _work(self, queue: Iterator[Job]) -> None:
        try:
            compressor = self._compressors.pop()
        except IndexError:
            compressor = ZstdCompressor(level=self._level, write_checksum=True, write_content_size=True)
        for job in queue:
            job(compressor)
        self._compressors.append(compressor)


class _WaitingRoom:
    """Counts the bytes that all files of a sink together still may keep in memory."""

    def __init__(self, room: int) -> None:
        self._room = room

    def enter(self, size: int) -> bool:
        """Take *size* bytes of the room, if there are so many."""
        if size > self._room:
            return False
        self._room -= size
        return True

    def leave(self, size: int) -> None:
        self._room += size


class _ZstdFile:
    """A file of a `ZstdSink`; small writes wait in memory until they make a frame worth having."""

    __slots__ = ("_name", "_room", "_waiting", "_workers", "_writer")

    def __init__(self, name: str, writer: Writer, workers: _Workers, room: _WaitingRoom) -> None:
        self._name, self._writer, self._workers, self._room = name, writer, workers, room
        self._waiting = bytearray()

    async def write(self, pieces: Sequence[Buffer]) -> None:
        self._check_open()
        views = [view_bytes(piece) for piece in pieces]
        size = sum(map(len, views))
        if len(self._waiting) + size < SMALL_BYTES and self._room.enter(size):
            for view in views:
                self._waiting += view
        else:
            await self._flush(views, finish=False)

    async def commit(self) -> Stored:
        self._check_open()
        with anyio.CancelScope(shield=True):  # what is visible must be reported
            await self._flush([], finish=True)
        assert isinstance(self._writer.outcome, Stored)
        return self._writer.outcome

    async def abort(self) -> None:
        self._take_waiting()
        if self._writer.begun:
            await self._workers.finish(self._discard)

    async def _flush(self, views: list[memoryview], *, finish: bool) -> None:
        """Pass on what waits, and *views* after it."""
        views.insert(0, self._take_waiting())
        work = sum(map(len, views)) + _FILE_BYTES
        try:
            await self._workers.run(self._writer.jobs(cut(views), finish=finish), work)
        except anyio.get_cancelled_exc_class():
            self._writer.fail(SinkError(f"storing {self._name!r} was cancelled; abort it"))
            raise
        finally:
            views.clear()  # the traceback of an error must not hold the caller's buffers
        if isinstance(self._writer.outcome, SinkError):
            raise self._writer.outcome

    def _take_waiting(self) -> memoryview:
        waiting, self._waiting = self._waiting, bytearray()
        self._room.leave(len(waiting))
        return memoryview(waiting)

    def _check_open(self) -> None:
        if isinstance(self._writer.outcome, SinkError):
            raise self._writer.outcome
        if self._writer.outcome is not None:
            raise anyio.ClosedResourceError

    def _discard(self) -> None:
        try:
            self._writer.discard()
        except OSError as exc:
            raise sink_error(f"remove what there is of {self._name!r}", exc) from exc
