"""Backlog: objects that wait in an outbox, uploaded as soon as their store takes them."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio
from anyio.to_thread import run_sync
from typing_extensions import Buffer

from dumpstream._errors import FileRefusedError, ObjectMissingError, SinkError, StoreError
from dumpstream.custody import Custody, Stage
from dumpstream.objectstore.backoff import Backoff
from dumpstream.objectstore.patience import GRACE_S
from dumpstream.objectstore.store import PROBE, Store
from dumpstream.remote.outbox import SPILL_FULL, Outbox
from dumpstream.remote.spilled import explained_spill, upload_from
from dumpstream.source import OnFull

_log = logging.getLogger(__name__)

_UPLOADED_AT_ONCE = 16
#: How long the end of a capture waits for a store that is away.
_LAST_WAIT_S = 30.0


class _Kept(NamedTuple):
    key: str
    size: int
    custody: Custody


class Backlog:
    """The objects for *store* that wait in *outbox*, and whether the store is away.

    Without room in an outbox nothing can wait, and a store that is away is an error.
    """

    def __init__(self, store: Store, outbox: Outbox | None, *, durable: bool = False) -> None:
        self._store = store
        self._outbox = outbox if outbox is not None and outbox.quota.capacity else None
        self._durable = durable
        self._away = False
        self._full = False  # the user knows that the outbox has no room
        self._kept: deque[_Kept] = deque()
        self._drain: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._abandoned = False
        self._error: StoreError | SinkError | None = None
        store.requests.when_given_up(self._give_up)

    @property
    def waiting(self) -> int:
        """How many objects wait."""
        return len(self._kept)

    @property
    def away(self) -> bool:
        """Whether the store did not answer the last request.

        Raises:
            SinkError: the store refuses for good.
        """
        self._check()
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
        """Return the name of the object *key* in the outbox."""
        return str(self._store.prefix / key)

    def note(self, exc: StoreError) -> None:
        """Take the store for away from now on.

        Raises:
            SinkError: the store refuses, or there is no outbox.
        """
        if not exc.away:
            raise SinkError(str(exc)) from None
        if self._outbox is None:
            raise SinkError(f"{exc}, or give a --spill") from None
        self._away = True
        self._watch()

    async def reserve(self, size: int, key: str) -> bool:
        """Take room in the outbox for *size* bytes of the object *key*, as soon as there is enough.

        Returns:
            False if the store is back before there is room; there may never be so much.

        Raises:
            FileRefusedError: there is no room, and files are to be dropped then.
            SinkError: the store refuses for good, or has been given up.
        """
        quota = self.outbox.quota
        while size > quota.free:
            self._log_full()
            if self.outbox.on_full is OnFull.DROP:
                problem = f"{key!r} does not fit into the spill of {quota.capacity} bytes"
                raise FileRefusedError(f"{problem}; raise --spill-bytes", cause=SPILL_FULL)
            if not self.away:
                return False
            if self._closing.is_set():
                raise SinkError("the spill is full and the store does not answer; raise --spill-bytes")
            await quota.freed()
        quota.take(size)
        return True

    def _log_full(self) -> None:
        """Log what happens while the outbox has no room, once until the store is back."""
        if not self._full:
            self._full = True
            dropped = self.outbox.on_full is OnFull.DROP
            what = "files are lost" if dropped else "the capture waits"
            text = "the spill for %s is full, and %s until the store is back; raise --spill-bytes"
            _log.warning(text, self._store.prefix, what)

    async def append(self, key: str, pieces: Sequence[Buffer], *, new: bool) -> None:
        """Add *pieces* to the object *key* in the outbox, which begins there if it is *new*.

        Raises:
            SinkError: the disk fails.
        """
        with explained_spill():
            await run_sync(lambda: self.outbox.append(self.url(key), pieces, new=new))

    async def discard(self, key: str, size: int) -> None:
        """Remove from the outbox what there is of the object *key*, for which *size* bytes were reserved."""
        await run_sync(self.outbox.discard, self.url(key))
        self.outbox.quota.give_back(size)

    async def keep(self, key: str, size: int) -> Custody:
        """Let the object *key*, all of which is in the outbox, wait for the store.

        Raises:
            SinkError: the disk fails.
        """
        with explained_spill():
            await run_sync(lambda: self.outbox.complete(self.url(key), durable=self._durable))
        kept = _Kept(key, size, Custody(Stage.KEPT))
        self._kept.append(kept)
        self._watch()
        return kept.custody

    async def aclose(self) -> None:
        """Upload what waits, if the store takes it within a short time, and stop.

        If that is cancelled, requests have a few seconds more, and the rest stays in the outbox.

        Raises:
            SinkError: the store refuses what waits.
        """
        try:
            if self._drain is not None and self._kept:
                with anyio.move_on_after(_LAST_WAIT_S):
                    await asyncio.wait([self._drain])
            await self._stop()
        except asyncio.CancelledError:
            self._abandoned = True
            self._store.patience.limit(GRACE_S)
            with anyio.CancelScope(shield=True):
                await self._stop()
            raise
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise SinkError(str(self._error))

    async def _stop(self) -> None:
        """Wait for the requests, and for the store only if it is not away."""
        if self._drain is not None:
            self._closing.set()
            await asyncio.wait([self._drain])
        await self._store.aclose()

    def _give_up(self) -> None:
        self._closing.set()
        if self._outbox is not None:
            self._outbox.quota.wake()

    def _watch(self) -> None:
        if self._drain is None or self._drain.done():
            self._drain = asyncio.get_running_loop().create_task(self._upload_kept())

    async def _upload_kept(self) -> None:
        """Upload what waits, and find out whether a store that is away is back."""
        backoff = Backoff()
        at_once = 1
        while (self._kept or self._away) and not self._at_end:
            batch = [self._kept[index] for index in range(min(at_once, len(self._kept)))]
            tries = [self._try(kept) for kept in batch] or [self._try(None)]
            if all(await asyncio.gather(*tries)):
                self._away, at_once, self._full = False, _UPLOADED_AT_ONCE, False
                backoff.reset()
                self.outbox.quota.wake()
            elif self._error is not None:
                self.outbox.quota.wake()
                return
            else:
                self._away, at_once = True, 1
                with anyio.move_on_after(backoff.next_pause()):
                    await self._closing.wait()

    @property
    def _at_end(self) -> bool:
        return self._abandoned or (self._away and self._closing.is_set())

    async def _try(self, kept: _Kept | None) -> bool:
        """Upload *kept*, or only ask the store for an object; return whether the store has answered."""
        try:
            if kept is not None:
                await self._upload(kept)
            else:
                with suppress(ObjectMissingError):
                    await self._store.fetch(PROBE)
        except (StoreError, SinkError) as exc:
            if isinstance(exc, SinkError) or not exc.away:
                self._error = exc
            return False
        return True

    async def _upload(self, kept: _Kept) -> None:
        with explained_spill():
            await upload_from(self.outbox, self._store, kept.key, kept.size)
        self._kept.remove(kept)
        self.outbox.quota.give_back(kept.size)
        kept.custody.advance(Stage.STORED)
