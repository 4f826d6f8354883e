"""Workers: the threads that compress for a sink and store what comes out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio.to_thread import run_sync
from zstandard import ZstdCompressor

from dumpstream.sinks._frames import SMALL_BYTES, Compressible, Turns, compress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dumpstream.sinks._frames import Job

_Work = TypeVar("_Work", bound=Compressible)

# A thread takes at once small jobs that cost as much as compressing so many bytes: enough to be worth its
# wake-up, and not so much that the other threads wait for it.
_LEAST_WORK, _MOST_WORK = 1 << 20, 4 << 20


class Workers:
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
        batches = list(enumerate(_batches(jobs, self._threads)))
        queue, turns = iter(batches), Turns()

        def work() -> None:
            with self._compressor() as compressor:
                for ticket, batch in queue:
                    compress(batch, compressor)
                    with turns.turn(ticket):
                        for job in batch:
                            job.store()

        await self._share(work, len(batches))

    async def compress(self, files: Sequence[Compressible]) -> None:
        """Compress *files* on as many threads as are worth it, in no order.

        Once one is begun all are compressed, even if the caller is cancelled.
        """
        batches = _batches(files, self._threads)
        queue = iter(batches)

        def work() -> None:
            with self._compressor() as compressor:
                for batch in queue:
                    compress(batch, compressor)

        await self._share(work, len(batches))

    async def finish(self, function: Callable[[], None]) -> None:
        """Run *function*, even if the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            await run_sync(function, limiter=self._limiter)

    async def _share(self, work: Callable[[], None], batches: int) -> None:
        """Let as many threads as there can be do *work* at once, which is *batches* to be taken."""
        async with anyio.create_task_group() as group:
            for _ in range(min(self._threads, batches)):
                group.start_soon(self._run_in_thread, work)

    async def _run_in_thread(self, work: Callable[[], None]) -> None:
        await run_sync(work, limiter=self._limiter)

    @contextmanager
    def _compressor(self) -> Iterator[ZstdCompressor]:
        try:
            compressor = self._compressors.pop()
        except IndexError:
            compressor = ZstdCompressor(level=self._level, write_checksum=True, write_content_size=True)
        yield compressor
        self._compressors.append(compressor)


def _batches(jobs: Sequence[_Work], threads: int) -> list[list[_Work]]:
    """Divide *jobs* into batches worth a thread's while."""
    share = sum(job.work for job in jobs) // (2 * threads)
    batches: list[list[_Work]] = []
    room = 0  # in the last batch, for more small jobs
    for job in jobs:
        if room <= 0 or job.work >= SMALL_BYTES:
            batches.append([])
            room = max(_LEAST_WORK, min(share, _MOST_WORK))
        batches[-1].append(job)
        room = 0 if job.work >= SMALL_BYTES else room - job.work
    return batches
