"""Courier: brings objects to a store; what the store does not take now waits in the outbox."""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import FileRefusedError, ObjectMissingError, SinkError, StoreError
from dumpstream.custody import Custody, Stage
from dumpstream.objectstore.outbox import SPILL_FULL
from dumpstream.objectstore.store import PART_BYTES, PROBE, Store
from dumpstream.objectstore.upload import Upload
from dumpstream.source import OnFull

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from typing_extensions import Buffer

    from dumpstream.objectstore.outbox import Outbox

#: Requests on their way at once.
IN_FLIGHT = 32
#: With an outbox a store counts as away after so many seconds of trying.
SHORT_PATIENCE_S = 8.0

_DRAINED_AT_ONCE = 16
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
#: How long the end of a capture waits for a store that is away.
_LAST_WAIT_S = 30.0


class Brought(NamedTuple):
    """What became of an object."""

    etag: str | None
    custody: Custody | None  #: if it waits in the outbox


class _Kept(NamedTuple):
    key: str
    size: int
    custody: Custody


class Courier:
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
        self._error: StoreError | None = None

    @property
    def waiting(self) -> int:
        """How many objects are in the outbox."""
        return len(self._kept)

    async def bring(self, key: str, data: Buffer) -> Brought:
        """Bring a small object.

        Raises:
            SinkError: the store refuses, or is away with no outbox to wait in.
        """
        size, url = memoryview(data).nbytes, self.url(key)
        while True:
            async with self._slots:
                if not self.away:  # it may have gone while this one waited for its turn
                    try:
                        return Brought(await self.store.put(key, data), None)
                    except StoreError as exc:
                        self.note(exc)
            if await self.reserve(size, key):
                break
        try:
            await run_sync(lambda: self.outbox.append(url, [data], new=True))
        except OSError as exc:
            await self.discard(key, size)
            raise _spill_error(exc) from None
        return await self.keep(key, size)

    def deliver(self, key: str) -> Delivery:
        """Begin to bring an object of any size."""
        return Delivery(self, key)

    async def aclose(self) -> None:
        """Bring what waits, if the store takes it within a short time, and stop."""
        if self._drain is not None:
            if self._kept:
                with anyio.move_on_after(_LAST_WAIT_S):
                    await asyncio.wait([self._drain])
            self._closing.set()
            await asyncio.wait([self._drain])
        await self.store.aclose()

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
        if not exc.away or self._outbox is None:
            raise SinkError(str(exc)) from None
        self._away = True
        self._watch()

    async def reserve(self, size: int, key: str) -> bool:
        """Wait for room in the outbox for *size* bytes of the object *key*, and take it.

        Returns:
            False if the store is back before there is room; there may never be so much.

        Raises:
            FileRefusedError: there is none, and who comes then is to be refused.
            SinkError: the store refuses for good.
        """
        while not self.outbox.take_room(size, key):
            if not self.away:
                return False
            await self.outbox.wait()
        return True

    async def discard(self, key: str, size: int) -> None:
        """Remove from the outbox what there is of the object *key*, for which *size* bytes were reserved."""
        await run_sync(self.outbox.discard, self.url(key))
        self.outbox.release(size)

    async def keep(self, key: str, size: int) -> Brought:
        """Let the object *key*, which has room in the outbox and is all there, wait for the store."""
        try:
            await run_sync(lambda: self.outbox.complete(self.url(key), durable=self._durable))
        except OSError as exc:
            raise _spill_error(exc) from None
        kept = _Kept(key, size, Custody(Stage.KEPT))
        self._kept.append(kept)
        self._watch()
        return Brought(None, kept.custody)

    # Bringing later what is kept

    def _watch(self) -> None:
        if self._drain is None or self._drain.done():
            self._drain = asyncio.get_running_loop().create_task(self._drain_outbox())

    async def _drain_outbox(self) -> None:
        """Bring what is kept, and find out whether a store that is away is back."""
        pause = _FIRST_PAUSE_S
        at_once = 1
        while (self._kept or self._away) and not (self._closing.is_set() and self._away):
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

    async def _look(self) -> bool:
        """Return whether the store answers."""
        try:
            await run_sync(self.store.head, PROBE)
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
            await bring_from(self.outbox, self.store, kept.key, kept.size)
        except StoreError as exc:
            if not exc.away:
                self._error = exc
            return False
        except OSError as exc:
            self._error = StoreError(str(_spill_error(exc)))
            return False
        self._kept.remove(kept)
        self.outbox.release(kept.size)
        kept.custody.advance(Stage.STORED)
        return True


async def bring_from(outbox: Outbox, store: Store, key: str, size: int) -> None:
    """Bring the object *key* from *outbox* to *store*, and remove it there.

    Raises:
        StoreError: the store does not take it.
        OSError: it cannot be read.
    """
    url = str(store.prefix / key)
    fd = await run_sync(outbox.open_object, url)
    try:
        if size <= PART_BYTES:
            await store.put(key, await run_sync(os.pread, fd, size, 0))
        else:
            await store.upload(key, _read(fd, size))
    finally:
        os.close(fd)
    await run_sync(outbox.discard, url)


async def _read(fd: int, size: int) -> AsyncIterator[bytes]:
    position = 0
    while position < size and (piece := await run_sync(os.pread, fd, PART_BYTES, position)):
        position += len(piece)
        yield piece


class Delivery:
    """A large object on its way: to the store and, if there is an outbox, to the disk as well.

    Only so is it safe when the store goes away in its middle.
    """

    def __init__(self, courier: Courier, key: str) -> None:
        self._courier, self._key = courier, key
        self._upload = None if courier.away else Upload(courier.store, key)
        self._on_disk = courier.has_outbox
        self._size = 0  # of what is on the disk

    async def send(self, pieces: Sequence[Buffer]) -> None:
        """Take *pieces*, which must stay as they are.

        Raises:
            SinkError: the object can be brought nowhere.
        """
        size = sum(memoryview(piece).nbytes for piece in pieces)
        if self._on_disk:
            await self._send_to_disk(pieces, size)
        if self._upload is not None:
            try:
                for piece in pieces:
                    await self._upload.send(piece)
            except StoreError as exc:
                await self._give_up_upload(exc)

    async def finish(self) -> Brought:
        """Make the object appear, now or when the store is back.

        Raises:
            SinkError: it never will.
        """
        if self._upload is not None:
            try:
                etag = await self._upload.finish()
            except StoreError as exc:
                await self._give_up_upload(exc)
            else:
                await self._discard()
                return Brought(etag, None)
        return await self._courier.keep(self._key, self._size)

    async def abort(self) -> None:
        """Leave nothing of it."""
        if self._upload is not None:
            await self._upload.abort()
        await self._discard()

    async def _send_to_disk(self, pieces: Sequence[Buffer], size: int) -> None:
        courier = self._courier
        if self._upload is not None and courier.outbox.free < size:
            await self._discard()  # the store is there, and will do alone
            return
        while not await courier.reserve(size, self._key):
            if await self._begin_again():
                return
        url, new = courier.url(self._key), not self._size
        self._size += size
        try:
            await run_sync(lambda: courier.outbox.append(url, pieces, new=new))
        except OSError as exc:
            raise _spill_error(exc) from None

    async def _begin_again(self) -> bool:
        """Send the store, which is back, what the full disk has; return whether it goes on without that."""
        upload = Upload(self._courier.store, self._key)
        try:
            if self._size:
                await self._resend(upload)
        except StoreError as exc:
            self._courier.note(exc)
            return False
        except BaseException:
            with anyio.CancelScope(shield=True):
                await upload.abort()
            raise
        self._upload = upload
        await self._discard()
        return True

    async def _resend(self, upload: Upload) -> None:
        url = self._courier.url(self._key)
        try:
            fd = await run_sync(lambda: self._courier.outbox.open_object(url, whole=False))
            try:
                async for piece in _read(fd, self._size):
                    await upload.send(piece)
            finally:
                os.close(fd)
        except OSError as exc:
            raise _spill_error(exc) from None

    async def _give_up_upload(self, exc: StoreError) -> None:
        """Go on with the disk alone.

        Raises:
            SinkError: the disk does not have all of it.
        """
        self._upload = None
        self._courier.note(exc)
        if not self._on_disk:
            problem = f"{exc}; the spill was too full to keep what had been sent"
            if self._courier.outbox.on_full is OnFull.DROP:
                raise FileRefusedError(problem, cause=SPILL_FULL) from None
            raise SinkError(problem) from None

    async def _discard(self) -> None:
        if self._on_disk:
            self._on_disk = False
            if self._size:
                await self._courier.discard(self._key, self._size)
                self._size = 0


def _spill_error(exc: OSError) -> SinkError:
    reason = exc.strerror or type(exc).__name__
    return SinkError(f"the spill cannot be used: {reason}; free some space or choose another --spill")
