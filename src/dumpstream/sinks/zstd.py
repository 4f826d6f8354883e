"""The zstd sink: every dump file becomes one ``.zst`` file, compressed on worker threads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync
from zstandard import ZstdCompressor

from dumpstream._errors import SinkError
from dumpstream.sinks import Fsync, Stored
from dumpstream.sinks._frames import SMALL_BYTES, Turns, Writer, compress, cut, sink_error, view_bytes
from dumpstream.sinks._tree import TRANSIENT_DESCRIPTORS, Tree, is_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Buffer

    from dumpstream.sinks import SinkSettings, WholeFile
    from dumpstream.sinks._frames import Job

__all__ = ["ZstdSink", "is_temporary"]

# A thread takes at once small jobs that cost as much as compressing so many bytes: enough to be worth its
# wake-up, and not so much that the other threads wait for it.
_LEAST_WORK, _MOST_WORK = 1 << 20, 4 << 20


class ZstdSink:
    """Mirrors the tree of the runtime's names as ``<name>.zst`` files, which ``zstd -d`` turns back.

    They go below *location*, or if it is empty, below ``files`` in the capture's directory. A name that
    comes again, and a piece behind a gap, takes the next free of ``<name>.2.zst``, ``<name>.3.zst``, ...
    """

    def __init__(self, location: str, settings: SinkSettings) -> None:
        # One descriptor is the root's, and each thread needs one for the directory it works in.
        descriptors = settings.max_descriptors - 1
        threads = min(settings.workers, descriptors // (1 + TRANSIENT_DESCRIPTORS))
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
        self._workers = _Workers(threads, settings.level, settings.threads)
        self._closed = False

    async def open(self, name: str, *, offset: int = 0) -> _ZstdFile:
        self._check_open()
        writer = Writer(self._tree, name, number=2 if offset else 1)
        return _ZstdFile(name, writer, self._workers)

    async def put(self, files: Sequence[WholeFile]) -> list[Stored | SinkError]:
        self._check_open()
        writers = [Writer(self._tree, file.name) for file in files]
        jobs: list[Job] = []
        for writer, file in zip(writers, files, strict=True):
            jobs += writer.jobs(cut([view_bytes(file.data)]), finish=True)
        with anyio.CancelScope(shield=True):  # what is stored must be reported
            await self._workers.run(jobs)
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

    def __init__(self, threads: int, level: int, limiter: anyio.CapacityLimiter | None) -> None:
        self._threads, self._level = threads, level
        self._limiter = limiter or anyio.CapacityLimiter(threads)
        self._compressors: list[ZstdCompressor] = []

    async def run(self, jobs: Sequence[Job]) -> None:
        """Run *jobs* on as many threads as are worth it, storing in order what they compress.

        Only one thread stores at a time: making files takes many short calls, and several threads at it
        would spend more on taking the interpreter's lock from each other than on the files. Once a job is
        begun all are run, even if the caller is cancelled.
        """
        batches = _batches(jobs, self._threads)
        queue, turns = iter(batches), Turns()
        async with anyio.create_task_group() as group:
            for _ in range(min(self._threads, len(batches))):
                group.start_soon(self._run_in_thread, queue, turns)

    async def finish(self, function: Callable[[], None]) -> None:
        """Run *function*, even if the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            await run_sync(function, limiter=self._limiter)

    async def _run_in_thread(self, queue: Iterator[tuple[int, list[Job]]], turns: Turns) -> None:
        await run_sync(self._work, queue, turns, limiter=self._limiter)

    def _work(self, queue: Iterator[tuple[int, list[Job]]], turns: Turns) -> None:
        try:
            compressor = self._compressors.pop()
        except IndexError:
            compressor = ZstdCompressor(level=self._level, write_checksum=True, write_content_size=True)
        for ticket, batch in queue:
            compress(batch, compressor)
            with turns.turn(ticket):
                for job in batch:
                    job.store()
        self._compressors.append(compressor)


def _batches(jobs: Sequence[Job], threads: int) -> list[tuple[int, list[Job]]]:
    """Divide *jobs* into batches worth a thread's while, each with its ticket."""
    share = sum(job.work for job in jobs) // (2 * threads)
    batches: list[list[Job]] = []
    room = 0  # in the last batch, for more small jobs
    for job in jobs:
        if room <= 0 or job.work >= SMALL_BYTES:
            batches.append([])
            room = max(_LEAST_WORK, min(share, _MOST_WORK))
        batches[-1].append(job)
        room = 0 if job.work >= SMALL_BYTES else room - job.work
    return list(enumerate(batches))


class _ZstdFile:
    """A file of a `ZstdSink`; each write ends in a frame, so that nothing is held between them."""

    __slots__ = ("_name", "_workers", "_writer")

    def __init__(self, name: str, writer: Writer, workers: _Workers) -> None:
        self._name, self._writer, self._workers = name, writer, workers

    async def write(self, pieces: Sequence[Buffer]) -> None:
        self._check_open()
        await self._append([view_bytes(piece) for piece in pieces], finish=False)

    async def commit(self) -> Stored:
        self._check_open()
        with anyio.CancelScope(shield=True):  # what is visible must be reported
            await self._append([], finish=True)
        assert isinstance(self._writer.outcome, Stored)
        return self._writer.outcome

    async def abort(self) -> None:
        if self._writer.begun:
            await self._workers.finish(self._discard)

    async def _append(self, views: list[memoryview], *, finish: bool) -> None:
        try:
            await self._workers.run(self._writer.jobs(cut(views), finish=finish))
        except anyio.get_cancelled_exc_class():
            self._writer.cancel()
            raise
        finally:
            views.clear()  # the traceback of an error must not hold the caller's buffers
        if isinstance(self._writer.outcome, SinkError):
            raise self._writer.outcome

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
