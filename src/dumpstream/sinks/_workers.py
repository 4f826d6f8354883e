"""Workers: the threads that compress for a sink and store the result."""

from collections.abc import Callable, Sequence
from threading import Condition
from time import monotonic
from typing import TypeVar

import anyio
from anyio.to_thread import run_sync
from typing_extensions import Buffer

from dumpstream._errors import SinkError
from dumpstream.codec import Codec
from dumpstream.sinks import Stored
from dumpstream.sinks._compressed import CompressedFile, store_jobs
from dumpstream.sinks._compressors import Compressible, CompressorPool
from dumpstream.sinks._frames import SMALL_BYTES, cut, view_bytes

_Work = TypeVar("_Work", bound=Compressible)

# The work of the small jobs that a thread takes at once: enough to be worth waking it, and not so much that
# the other threads wait for it.
_BATCH_WORK = 1 << 20
#: Seconds after which a thread takes its turn behind the work of other captures.
_TURN_S = 0.01


class Workers:
    """The threads of a sink, with compressors of *pool*: for files or, if *packed*, for those in packs."""

    def __init__(
        self,
        threads: int,
        codec: Codec,
        level: int,
        limiter: anyio.CapacityLimiter | None,
        pool: CompressorPool | None = None,
        *,
        packed: bool = False,
    ) -> None:
        self.codec = codec
        self._threads, self._level, self._packed = threads, level, packed
        self._limiter = limiter or anyio.CapacityLimiter(threads)
        self._pool = CompressorPool() if pool is None else pool

    def for_packs(self) -> "Workers":
        """Return workers on the same threads that compress files for packs."""
        return Workers(self._threads, self.codec, self._level, self._limiter, self._pool, packed=True)

    async def run(self, jobs: Sequence[_Work], store: Callable[[Sequence[_Work]], None]) -> None:
        """Compress *jobs* on several threads, and *store* them in order, some at a time.

        Only one thread stores at a time: making files takes many short calls, and several threads would
        spend more on taking the interpreter's lock from each other than on the files. Once a job has begun,
        all are run, even if the caller is cancelled.
        """
        condition, done = Condition(), 0

        def store_in_turn(number: int, batch: Sequence[_Work]) -> None:
            nonlocal done
            with condition:
                condition.wait_for(lambda: done == number)
            try:
                store(batch)
            finally:
                with condition:
                    done += 1
                    condition.notify_all()

        await self._compress(jobs, store_in_turn)

    async def append(self, file: CompressedFile, pieces: Sequence[Buffer], *, finish: bool = False) -> None:
        """Add *pieces* to *file* and, with *finish*, publish it. A cancellation makes the file fail.

        Raises:
            SinkError: the file failed, now or before.
            ClosedResourceError: the file is published.
        """
        if file.outcome is None:
            views = [view_bytes(piece) for piece in pieces]
            try:
                await self.run(file.jobs(cut(views), finish=finish), store_jobs)
            except anyio.get_cancelled_exc_class():
                file.cancel()
                raise
            finally:
                views.clear()  # the traceback of an error must not hold the caller's buffers
        elif isinstance(file.outcome, Stored):
            raise anyio.ClosedResourceError
        if isinstance(file.outcome, SinkError):
            raise file.outcome

    async def compress(self, files: Sequence[Compressible]) -> None:
        """Compress *files* on several threads, in any order.

        Once one has begun, all are compressed, even if the caller is cancelled.
        """
        await self._compress(files, lambda _ticket, _batch: None)

    async def finish(self, function: Callable[[], None]) -> None:
        """Run *function*, even if the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            await run_sync(function, limiter=self._limiter)

    async def _compress(self, jobs: Sequence[_Work], then: Callable[[int, Sequence[_Work]], None]) -> None:
        """Compress *jobs* in batches, and call *then* with the number of each batch and its jobs."""
        batches = list(enumerate(_batches(jobs)))
        queue = iter(batches)  # which several threads may share

        def work() -> bool:
            """Work for one turn; return whether there may be more."""
            end = monotonic() + _TURN_S
            with self._pool.lent(self.codec, self._level, packed=self._packed) as compressor:
                for number, batch in queue:
                    compressor.compress(batch)
                    then(number, batch)
                    if monotonic() > end:
                        return True
            return False

        async def work_in_turns() -> None:
            if await run_sync(work, limiter=self._limiter):
                with anyio.CancelScope(shield=True):
                    while await run_sync(work, limiter=self._limiter):
                        pass

        async with anyio.create_task_group() as group:
            for _ in range(min(self._threads, len(batches))):
                group.start_soon(work_in_turns)


def _batches(jobs: Sequence[_Work]) -> list[list[_Work]]:
    """Divide *jobs* into batches that are worth a thread."""
    batches: list[list[_Work]] = []
    room = 0  # in the last batch, for more small jobs
    for job in jobs:
        if room <= 0 or job.work >= SMALL_BYTES:
            batches.append([])
            room = _BATCH_WORK
        batches[-1].append(job)
        room = 0 if job.work >= SMALL_BYTES else room - job.work
    return batches
