"""Where chunks come from: the ring that the ACL callback fills, read as batches."""

import asyncio
import atexit
import errno
import os
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from dumpstream import _native
from dumpstream._errors import CaptureInUseError, DumpstreamError, RingError, SourceError
from dumpstream.chunk import Batch, Loss, checked_step
from dumpstream.system.location import as_path
from dumpstream.system.memory import available_memory

_MIN_BUFFER_BYTES = 64 << 10
_MAX_BLOCK_TIMEOUT_S = 1_000_000_000
_BATCH_CHUNKS = 4096
#: Just after work, the reader waits for a short time and asks to be woken only for much data: a wake-up costs
#: the runtime's thread more than copying a small chunk does.
_SHORT_WAIT_S = 0.001
_SHORT_WAITS = 4
#: Wake-ups are not lost; this bounds the damage if one ever is, and finds losses that came without chunks.
_LONG_WAIT_S = 1.0
#: How long a callback that is inside the ring is waited for.
DETACH_LIMIT_NS = 10_000_000_000


class OnFull(StrEnum):
    """What the callback does when the ring is full."""

    BLOCK = "block"  #: waits for space, up to the time limit: loses nothing, may stall the accelerator
    DROP = "drop"  #: drops what does not fit now: never stalls, and each loss has the name of its file


@dataclass(frozen=True, kw_only=True, slots=True)
class RingOptions:
    """Shape and overflow behaviour of the ring."""

    buffer_bytes: int = 256 << 20  #: twice CANN's largest chunk
    buffer_file: Path | None = None  #: keep the ring in this new file instead of in memory
    on_full: OnFull = OnFull.BLOCK
    #: Seconds a chunk may wait for space before it is lost; CANN itself gives up after five minutes.
    block_timeout: float = 240.0
    max_file_bytes: int = 1 << 40  #: no chunk may end beyond this

    def __post_init__(self) -> None:
        object.__setattr__(self, "on_full", OnFull(self.on_full))
        if self.buffer_file is not None:
            object.__setattr__(self, "buffer_file", as_path(self.buffer_file, "buffer_file"))
        if self.buffer_bytes < _MIN_BUFFER_BYTES:
            raise ValueError(
                f"buffer_bytes must be at least {_MIN_BUFFER_BYTES} (64 KiB), not {self.buffer_bytes}"
            )
        if not 0 <= self.block_timeout <= _MAX_BLOCK_TIMEOUT_S:
            raise ValueError(
                f"block_timeout must be 0 to {_MAX_BLOCK_TIMEOUT_S} seconds, not {self.block_timeout}"
            )
        if not 0 < self.max_file_bytes < 1 << 63:
            raise ValueError(f"max_file_bytes must be from 1 to 2**63 - 1, not {self.max_file_bytes}")
        if self.buffer_file is None and self.buffer_bytes > (available := available_memory()):
            raise ValueError(
                f"buffer_bytes is {self.buffer_bytes >> 20} MiB, but only {available >> 20} MiB of memory "
                "are available; take less, or keep the ring in a file with buffer_file (--buffer-file)"
            )


class RingStatistics(NamedTuple):
    """What the ring has seen so far."""

    size: int
    fill: int
    callbacks: int
    wakeups: int
    unnamed: int  #: losses whose file is not known
    losses: dict[str, tuple[int, int]]  #: (chunks, bytes) by cause


#: Of a source that does not count.
NO_STATISTICS = RingStatistics(0, 0, 0, 0, 0, {})


class Source(AbstractAsyncContextManager["Source"], Protocol):
    """What a capture reads batches from, between entering and leaving it.

    A class that inherits from it needs only `receive` and `stop`.
    """

    #: Why the producer may not have sent all that it began; None if it ended in order. Final at the end.
    cut_off: str | None = None

    @abstractmethod
    async def receive(self) -> Batch:
        """Return the next batch; raise `anyio.EndOfStream` once the source is stopped and drained.

        The capture cancels a call now and then; the next call returns what that one would have returned.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Accept nothing more; what was accepted can still be received. May be called twice."""

    def discard(self) -> None:
        """Refuse everything from now on, at once, and count it. `stop` follows."""
        return

    def statistics(self) -> RingStatistics:
        """Return what was seen and refused so far; called at any time, also after leaving."""
        return NO_STATISTICS

    async def __aexit__(self, *_: object) -> None:
        """Release everything."""
        return


async def receive_from(source: Source) -> Batch:
    """Return the next batch of *source*, which others may have written.

    Raises:
        anyio.EndOfStream: there is none.
        SourceError: the source has failed, or has returned something else.
    """
    try:
        batch = await source.receive()
    except (anyio.EndOfStream, DumpstreamError, MemoryError):
        raise
    except Exception as exc:
        raise SourceError(
            f"the source {type(source).__name__} failed: {exc!r}; see its documentation"
        ) from exc
    if not isinstance(batch, Batch):
        raise SourceError(f"the source {type(source).__name__} returned {batch!r:.80}; it must be a Batch")
    return batch


_Ring = TypeVar("_Ring", _native.Ring, _native.SharedRing)


def make_ring(kind: type[_Ring], options: RingOptions) -> _Ring:
    """Make a ring of *kind*; blocks.

    Raises:
        RingError: its memory or its file cannot be made.
    """
    path = options.buffer_file
    try:
        return kind(options.buffer_bytes, path=None if path is None else str(path))
    except FileExistsError as exc:
        raise RingError(f"{path} exists; remove it or give buffer_file (--buffer-file) another name") from exc
    except OSError as exc:
        where = "in memory" if path is None else f"in {path}"
        raise RingError(
            f"a ring of {options.buffer_bytes} bytes cannot be made {where}: {exc.strerror}; "
            "take a smaller buffer_bytes (--buffer-bytes) or another place"
        ) from exc


def attach(ring: _native.Ring, options: RingOptions) -> None:
    """Let the callback of this process fill *ring*.

    Raises:
        CaptureInUseError: it fills another one.
        RingError: it cannot.
    """
    try:
        ring.attach(options.on_full is OnFull.BLOCK, int(options.block_timeout * 1e9), options.max_file_bytes)
    except OSError as exc:
        if exc.errno == errno.EBUSY:
            raise CaptureInUseError from None
        raise RingError(f"the ring could not be attached: {exc.strerror}") from exc


class RingReader(Generic[_Ring]):
    """Reads batches from a ring of *size* bytes, and waits so that producers seldom have to wake it."""

    def __init__(self, size: int) -> None:
        self.cut_off: str | None = None
        self._size = size
        self._batch_chunks, self._batch_bytes = _BATCH_CHUNKS, size // 8
        self._ring: _Ring | None = None
        self._wake = anyio.Event()
        self._stopped = False
        self._long_wait_s = _LONG_WAIT_S
        self._statistics = RingStatistics(size, 0, 0, 0, 0, {})

    async def __aiter__(self) -> AsyncIterator[Batch]:
        while True:
            try:
                yield await self.receive()
            except anyio.EndOfStream:
                return

    async def receive(self) -> Batch:
        """Wait for the next batch and return it.

        Raises:
            anyio.EndOfStream: the source was stopped and everything has been received.
            RingError: the records in the ring are damaged.
        """
        await anyio.lowlevel.checkpoint()
        short_waits = 0
        while True:
            # Read before the lease: nothing is accepted after a stop, so an empty ring is then the end.
            stopped = self._stopped
            if (batch := self._lease()) is not None:
                return batch
            if stopped:
                return await self._last_batch()
            self._wake = anyio.Event()
            short = short_waits < _SHORT_WAITS
            if self._open_ring().arm(self._size // 8 if short else 0):
                await anyio.lowlevel.checkpoint()  # the ring of another process may say so for ever
                continue
            with anyio.move_on_after(_SHORT_WAIT_S if short else self._long_wait_s):
                await self._wake.wait()
            short_waits += 1

    def discard(self) -> None:
        """Refuse everything from now on, at once, and count it as `discarded`."""
        if self._ring is not None:
            self._ring.discard()

    def statistics(self) -> RingStatistics:
        """Return the ring's counters; after the end, those at the end."""
        return self._statistics if self._ring is None else RingStatistics(*self._ring.statistics())

    def _open_ring(self) -> _Ring:
        if self._ring is None:
            raise anyio.ClosedResourceError
        return self._ring

    def _lease(self) -> Batch | None:
        try:
            leased = self._open_ring().lease(self._batch_chunks, self._batch_bytes)
        except OSError as exc:
            raise RingError(f"a record in the ring is damaged: {exc.strerror}") from exc
        if leased is None:
            return None
        chunks, losses, lease, step = leased
        return Batch(chunks, [Loss(*loss) for loss in losses], lease, step)

    async def _last_batch(self) -> Batch:
        """Return what the stopped and empty ring leaves to report; called until it raises `EndOfStream`."""
        raise anyio.EndOfStream

    def _on_wakeup(self) -> None:
        if self._ring is not None:
            self._ring.disarm()
        self._wake.set()


class RingSource(RingReader[_native.Ring]):
    """The ring that `ds_on_chunk` fills, one per process at a time.

    Entering makes the ring and attaches the callback to it; leaving detaches it. The caller registers the
    callback, which is at `callback_address`, with the runtime.
    """

    def __init__(self, options: RingOptions | None = None) -> None:
        self._options = options or RingOptions()
        super().__init__(self._options.buffer_bytes)
        self._pid = os.getpid()
        self._drained = False

    @property
    def on_full(self) -> OnFull:
        """What the callback does when the ring is full."""
        return self._options.on_full

    @property
    def callback_address(self) -> int:
        """The address of the function to give to ``acldumpRegCallback``."""
        return _native.callback_address()

    async def __aenter__(self) -> Self:
        ring = await anyio.to_thread.run_sync(make_ring, _native.Ring, self._options)
        try:
            attach(ring, self._options)
        except DumpstreamError:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._unmake_ring, ring)
            raise
        self._ring = ring
        # At exit the runtime still delivers what it has queued, when this process no longer reads.
        atexit.register(self._leave_process)
        asyncio.get_running_loop().add_reader(ring.fileno(), self._on_wakeup)
        return self

    async def __aexit__(self, *_: object) -> None:
        ring = self._ring
        if ring is None:
            return
        with anyio.CancelScope(shield=True):
            await self.stop()
            asyncio.get_running_loop().remove_reader(ring.fileno())
            self._statistics = self.statistics()
            self._ring = None
            atexit.unregister(self._leave_process)
            await anyio.to_thread.run_sync(self._unmake_ring, ring)

    async def stop(self) -> None:
        """Detach the callback, which then refuses every chunk; `receive` goes on until all is read."""
        if not self._stopped and self._ring is not None:
            await anyio.to_thread.run_sync(self._ring.detach, DETACH_LIMIT_NS)
            self._stopped = True
            self._wake.set()

    def mark(self, step: int) -> None:
        """Let chunks that come from now on have *step*; has no effect once the callback is detached."""
        _native.mark_step(checked_step(step))

    async def _last_batch(self) -> Batch:
        """Return, once, the losses of files that the callback still refused at the end."""
        if not self._drained:
            self._drained = True
            if refused := self._open_ring().refused():
                return Batch([], [Loss(name, "after_loss", size, ended=True) for name, size in refused])
        return await super()._last_batch()

    def _leave_process(self) -> None:
        if self._ring is not None and os.getpid() == self._pid:
            self._ring.detach(DETACH_LIMIT_NS)

    def _unmake_ring(self, ring: _native.Ring) -> None:
        ring.close()
        if self._options.buffer_file is not None:
            self._options.buffer_file.unlink(missing_ok=True)
