"""SharedSource: the ring that the agent of a process fills."""

from math import inf
from time import monotonic
from typing import Self

import anyio

from dumpstream._native import SharedRing
from dumpstream.chunk import Batch
from dumpstream.processes import PROCESS_GONE
from dumpstream.source import RingReader, RingStatistics

#: When a living producer loses its ring, it has this long to finish the records that it has begun.
_FINISH_S = 0.5
_FINISH_POLL_S = 0.005
#: What is done for a batch must not keep the event loop from the batches of other processes.
_BATCH_CHUNKS = 1024
#: A batch is copied out of the ring, which may be much larger than memory.
_MAX_BATCH_BYTES = 32 << 20
_MAX_COUNTER = 1 << 60
#: Some programs close every descriptor that they do not know: without its socket, an agent cannot wake.
_UNHEARD_WAIT_S = 0.02
#: Why text that is open at the end may lack its end: the process ended, or runs on, without a farewell.
_RUNNING = "process_running"


class SharedSource(RingReader[SharedRing]):
    """Reads *ring*, which the caller closes after the source is left.

    Nothing in the ring is trusted: a damaged ring ends this source, and no other.
    """

    def __init__(self, ring: SharedRing) -> None:
        super().__init__(ring.statistics()[0])
        self.cut_off = _RUNNING
        self._ring = ring
        self._batch_chunks, self._batch_bytes = _BATCH_CHUNKS, min(self._batch_bytes, _MAX_BATCH_BYTES)
        self._quiet = False
        self._finish_by = inf
        self._passing_holes = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._statistics = self.statistics()
        self._ring = None

    def statistics(self) -> RingStatistics:
        """Return the ring's counters, which the process can set to anything, cut to what a journal holds."""
        said = super().statistics()
        return said._replace(
            callbacks=min(said.callbacks, _MAX_COUNTER),
            wakeups=min(said.wakeups, _MAX_COUNTER),
            unnamed=min(said.unnamed, _MAX_COUNTER),
            losses={
                cause: (min(chunks, _MAX_COUNTER), min(lost, _MAX_COUNTER))
                for cause, (chunks, lost) in said.losses.items()
            },
        )

    def wake(self) -> None:
        """Look at the ring: the process says that something is in it."""
        self._on_wakeup()

    async def filling(self, limit_s: float) -> None:
        """Wait for *limit_s* at most, until the ring begins to fill or its process has left it."""
        self._wake = anyio.Event()
        if not self._quiet and not self._open_ring().arm(self._size // 8):
            with anyio.move_on_after(limit_s):
                await self._wake.wait()

    def hear_nothing(self) -> None:
        """Expect no more wake-ups, and look at the ring often instead."""
        self._long_wait_s = _UNHEARD_WAIT_S
        self._wake.set()

    def producer_ended(self, *, in_order: bool, why: str = PROCESS_GONE) -> None:
        """Expect no more records: the process has left *in_order*, or is cut off; the first call counts."""
        if not self._quiet:
            self.cut_off = None if in_order else why
        self._quiet = True
        self._wake.set()

    async def stop(self) -> None:
        """Let a living process write nothing more; `receive` goes on until everything is read."""
        if not self._stopped and self._ring is not None:
            if not self._quiet:
                self._ring.discard()
            self._finish_by = monotonic() + _FINISH_S
            self._stopped = True
            self._wake.set()

    def _lease(self) -> Batch | None:
        if monotonic() > self._finish_by:  # do not wait for a process that goes on writing
            self._pass_holes()
        batch = super()._lease()
        if batch is not None:  # a loss without a name is only counted
            batch.losses = [loss for loss in batch.losses if loss.name]
        return batch

    async def _last_batch(self) -> Batch:
        """Wait for records that are being written; then skip unfinished ones, which become losses."""
        while not (self._quiet or self._passing_holes) and self._open_ring().statistics()[1]:
            await anyio.sleep(_FINISH_POLL_S)
            if (batch := self._lease()) is not None:
                return batch
        self._pass_holes()
        return self._lease() or await super()._last_batch()

    def _pass_holes(self) -> None:
        if not self._passing_holes:
            self._passing_holes = True
            self._open_ring().producer_died()
