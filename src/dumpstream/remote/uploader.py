"""Uploader: brings objects to a store; what the store does not take now waits in the outbox."""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import ObjectMissingError, SinkError, StoreError
from dumpstream.custody import Custody, Stage
from dumpstream.objectstore.client import RETRY_S
from dumpstream.objectstore.patience import GRACE_S
from dumpstream.objectstore.store import PART_BYTES, PROBE, Store
from dumpstream.remote.largeupload import LargeUpload, Uploaded, read_pieces, spill_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from typing_extensions import Buffer

    from dumpstream.remote.outbox import Outbox

#: Requests on their way at once.
IN_FLIGHT = 32
#: With an outbox a store counts as away after so many seconds of trying.
SHORT_RETRY_S = 8.0

_DRAINED_AT_ONCE = 16
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
#: How long the end of a capture waits for a store that is away.
_LAST_WAIT_S = 30.0


def retry_time(outbox: Outbox | None) -> float:
    """Return how long a store is asked again if what it does not take may wait in *outbox*."""
    return SHORT_RETRY_S if outbox is not None and outbox.capacity else RETRY_S


class _Kept(NamedTuple):
    key: str
    size: int
    custody: Custody


class Uploader:
    """Brings objects to *store*, many at once, and those in *outbox* as soon as the store takes them.

    Without room in an outbox, a store that is away is an error.
    """

    def __init__(
        self,
        store: Store,
        outbox: Outbox | None = None,
        *,
        durable: bool = False,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self.store = store
        self._outbox = outbox if outbox is not None and outbox.capacity else None
        self._durable = durable
        self._slots = asyncio.Semaphore(in_flight)
        self._away = False
        self._kept: deque[_Kept] = deque()
        self._drain: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._abandoned = False
        self._error: StoreError | None = None
        store.silence.when_reached(self._give_up)

    @property
    def waiting(self) -> int:
        """How many objects are in the outbox."""
        return len(self._kept)

    async def upload(self, key: str, data: Buffer) -> Uploaded:
        """Bring a small object.

        Raises:
            SinkError: the store refuses, or is away with no outbox to wait in.
        """
        size, url = memoryview(data).nbytes, self.url(key)
        while True:
            async with self._slots:
                if not self.away:  # it may have gone while this one waited for its turn
                    try:
                        return Uploaded(await self.store.put(key, data), None)
                    except StoreError as exc:
                        self.note(exc)
            if await self.reserve(size, key):
                break
        try:
            await run_sync(lambda: self.outbox.append(url, [data], new=True))
        except OSError as exc:
            await self.discard(key, size)
            raise spill_error(exc) from None
        return await self.keep(key, size)

    def begin_large(self, key: str) -> LargeUpload:
        """Begin to bring an object of any size."""
        return LargeUpload(self, key)

    async def aclose(self) -> None:
        """Bring what waits, if the store takes it within a short time, and stop.

        If that is cancelled, what is on its way has a few seconds more, and the rest stays in the outbox.

        Raises:
            SinkError: the store refuses what waits.
        """
        try:
            if self._drain is not None:
                if self._kept:
                    with anyio.move_on_after(_LAST_WAIT_S):
                        await asyncio.wait([self._drain])
                self._closing.set()
                await asyncio.wait([self._drain])
            await self.store.aclose()
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await self._abandon()
            raise
        if self._error is not None:
            raise SinkError(str(self._error))

    # For deliveries

    @property
    def away(self) -> bool:
        """Whether the store did not answer when it was asked last.

        Raises:
            SinkError: it refuses for good.
        """
        if self._error is not None:
            raise SinkError(str(self._error))
        return self._away

    @property
    def outbox(self) -> Outbox:
        """Where objects wait; only if `note` did not raise, or `has_outbox`."""
        assert self._outbox is not None
        return self._outbox

    @property
    def has_outbox(self) -> bool:
        """Whether objects may wait."""
        return self._outbox is not None

    def url(self, key: str) -> str:
        """Return what the outbox calls the object *key*."""
        return str(self.store.prefix / key)

    def note(self, exc: StoreError) -> None:
        """Take the store for away from now on.

        Raises:
            SinkError: it refuses, or there is no outbox.
        """
        if not exc.away:
            raise SinkError(str(exc)) from None
        if self._outbox is None:
            raise SinkError(f"{exc}, or give a --spill") from None
        self._away = True
        self._watch()

    async def reserve(self, size: int, key: str) -> bool:
        """Wait for room in the outbox for *size* bytes of the object *key*, and take it.

        Returns:
            False if the store is back before there is room; there may never be so much.

        Raises:
            FileRefusedError: there is none, and who comes then is to be refused.
            SinkError: the store refuses for good, or nobody waits for it any longer.
        """
        while not self.outbox.take_room(size, key):
            if not self.away:
                return False
            if self._closing.is_set():
                raise SinkError("the spill is full and the store does not answer; raise --spill-bytes")
            await self.outbox.wait()
        return True

    async def discard(self, key: str, size: int) -> None:
        """Remove from the outbox what there is of the object *key*, for which *size* bytes were reserved."""
        await run_sync(self.outbox.discard, self.url(key))
        self.outbox.release(size)

    async def keep(self, key: str, size: int) -> Uploaded:
        """Let the object *key*, which has room in the outbox and is all there, wait for the store."""
        try:
            await run_sync(lambda: self.outbox.complete(self.url(key), durable=self._durable))
        except OSError as exc:
            raise spill_error(exc) from None
        kept = _Kept(key, size, Custody(Stage.KEPT))
        self._kept.append(kept)
        self._watch()
        return Uploaded(None, kept.custody)

    async def _abandon(self) -> None:
        """Bring nothing more, and wait for what is on its way."""
        self._abandoned = True
        self._closing.set()
        self.store.patience.limit(GRACE_S)
        if self._drain is not None:
            await asyncio.wait([self._drain])
        await self.store.aclose()

    # Bringing later what is kept

    def _give_up(self) -> None:
        self._closing.set()
        if self._outbox is not None:
            self._outbox.notify()

    def _watch(self) -> None:
        if self._drain is None or self._drain.done():
            self._drain = asyncio.get_running_loop().create_task(self._drain_outbox())

    async def _drain_outbox(self) -> None:
        """Bring what is kept, and find out whether a store that is away is back."""
        pause = _FIRST_PAUSE_S
        at_once = 1
        while (self._kept or self._away) and not self._at_end:
            batch = [self._kept[index] for index in range(min(at_once, len(self._kept)))]
            results = await asyncio.gather(*map(self._bring_kept, batch)) if batch else [await self._look()]
            if all(results):
                self._away, pause, at_once = False, _FIRST_PAUSE_S, _DRAINED_AT_ONCE
                self.outbox.notify()
            elif self._error is not None:
                self.outbox.notify()
                return
            else:
                self._away, at_once = True, 1
                with anyio.move_on_after(pause * random.uniform(0.5, 1.0)):  # noqa: S311 - spreads clients
                    await self._closing.wait()
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    @property
    def _at_end(self) -> bool:
        return self._abandoned or (self._away and self._closing.is_set())

    async def _look(self) -> bool:
        """Return whether the store answers."""
        try:
            await self.store.look_for(PROBE)
        except ObjectMissingError:
            return True
        except StoreError as exc:
            if not exc.away:
                self._error = exc
            return False
        return True

    async def _bring_kept(self, kept: _Kept) -> bool:
        """Return whether the store has it now."""
        try:
            await upload_from(self.outbox, self.store, kept.key, kept.size)
        except StoreError as exc:
            if not exc.away:
                self._error = exc
            return False
        except OSError as exc:
            self._error = StoreError(str(spill_error(exc)))
            return False
        self._kept.remove(kept)
        self.outbox.release(kept.size)
        kept.custody.advance(Stage.STORED)
        return True


async def upload_from(outbox: Outbox, store: Store, key: str, size: int) -> None:
    """Bring the object *key* from *outbox* to *store*, and remove it there.

    Raises:
        StoreError: the store does not take it.
        OSError: it cannot be read.
    """
    url = str(store.prefix / key)
    if size <= PART_BYTES:
        await store.put(key, await run_sync(outbox.read_object, url))
    else:
        await _upload_parts(outbox, store, key, size)
    await run_sync(outbox.discard, url)


async def _upload_parts(outbox: Outbox, store: Store, key: str, size: int) -> None:
    failure: OSError | None = None

    async def pieces() -> AsyncIterator[bytes]:
        # The store goes on with them even if nobody waits for it any longer, so the descriptor is theirs.
        nonlocal failure
        try:
            fd = await run_sync(outbox.open_object, str(store.prefix / key))
            try:
                async for piece in read_pieces(fd, size):
                    yield piece
            finally:
                os.close(fd)
        except OSError as exc:
            failure = exc
            raise

    try:
        await store.upload(key, pieces())
    except StoreError:
        if failure is not None:
            raise failure from None
        raise
