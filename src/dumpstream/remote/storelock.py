"""StoreLock: an object that says which capture writes to a prefix, written again while it does."""

import asyncio
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from math import inf
from threading import Lock as Mutex

import anyio

from dumpstream._errors import DestinationInUseError, ObjectMissingError, StoreError
from dumpstream.archive.place import WritingProcess
from dumpstream.archive.rows import timestamp
from dumpstream.objectstore.failure import CHECK_NETWORK
from dumpstream.objectstore.patience import GRACE_S, Patience, ask
from dumpstream.objectstore.store import PROBE, Entry, Store
from dumpstream.system.location import Prefix

_log = logging.getLogger(__name__)

#: The key of the lock.
STORE_LOCK = "lock.json"
#: A lock that was not written for so many seconds was left by a capture that was killed.
STALE_S = 120.0

#: Every so many seconds the lock is written again.
_REFRESH_S = 30.0
#: For so many seconds after that, requests may begin. With a spill, the last of them have ended, in vain or
#: not, before the lock is stale.
_SURE_S = 40.0
_PROBE_S = 10.0
_LONGEST_BYTES = 4096


class StoreLock:
    """The lock of *prefix*, and of everything below, for this process.

    While a store is away, another capture may take the lock. So a `Store` with a lock writes only when the
    lock is surely held. Making one blocks.

    Args:
        prefix: what is locked.
        retry_s: how long to try again to write the lock to a store that is away.
        text: what the lock says; by default unlike every other lock.
        patience: how long to wait for a store that does not answer.

    Attributes:
        left_behind: whether `held` leaves the lock in the store, where it becomes stale.
    """

    def __init__(
        self,
        prefix: Prefix,
        *,
        retry_s: float = _PROBE_S,
        text: str | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.prefix = prefix
        self.text = lock_text() if text is None else text
        self.left_behind = False
        self._store = Store(prefix, retry_s=retry_s, patience=patience)
        self._written = False
        self._sure_until = -inf
        self._lost: StoreError | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._writers = 0
        self._mutex = Mutex()  # for threads that were left behind

    def take(self, *, left: str | None = None) -> None:
        """Take the lock, also if it says *left*, the text of a capture that is gone; blocks.

        If `held` has ended meanwhile, the lock is released at once.

        Raises:
            DestinationInUseError: another process has it.
            StoreError: the store refuses or is away.
        """
        began = _now()
        self._store.reach(_PROBE_S)
        holder = take_store_lock(Store(self.prefix, retry_s=_PROBE_S), self.text.encode(), left=left)
        if holder is not None:
            raise DestinationInUseError(self.prefix, holder.pid, holder.host)
        with self._mutex:
            self._note(began)
            late = self._lost is not None
        if late:
            self._release()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Write the lock again and again while the block runs, and release it at the end.

        If the block fails or is cancelled, a store that does not answer is waited for only a few seconds.
        Threads that are left behind then cannot begin to write; if one is writing, the lock is left to become
        stale.
        """
        renewing = asyncio.get_running_loop().create_task(self._keep())
        try:
            yield
        except (Exception, asyncio.CancelledError):
            self._store.patience.limit(GRACE_S)
            raise
        finally:
            renewing.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([renewing])
                await self._store.aclose()
            if self._end() and not (self.left_behind or self._store.requests.given_up):
                with suppress(StoreError):  # it becomes stale
                    await ask(self._release, self._store.patience)

    def covers(self, prefix: Prefix) -> bool:
        """Whether it locks *prefix*."""
        return self.prefix.covers(prefix)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let a thread write in the block.

        Raises:
            StoreError: another process has the lock, or (*away*) the store does not say which.
        """
        with self._mutex:
            self.check_lost()
            if _now() >= self._sure_until:
                raise StoreError(
                    f"cannot write {self.prefix}: the store does not answer; {CHECK_NETWORK}", away=True
                )
            self._writers += 1
        try:
            yield
        finally:
            with self._mutex:
                self._writers -= 1

    def check_lost(self) -> None:
        """Raise `StoreError` if another capture has taken the lock, or `held` has ended."""
        if self._lost is not None:
            raise self._lost

    async def confirm(self) -> None:
        """Return when the lock is surely held, asking the store if need be; raises what `writing` does."""
        self.check_lost()
        if _now() >= self._sure_until:
            await self._renew()

    async def _keep(self) -> None:
        while self._lost is None:
            await asyncio.sleep(_REFRESH_S)
            with suppress(StoreError):  # the next write raises it
                await self._renew()

    async def _renew(self) -> None:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._write_again())
            self._renewal.add_done_callback(lambda task: task.cancelled() or task.exception())
        renewal = self._renewal
        await asyncio.wait([renewal])
        renewal.result()

    async def _write_again(self) -> None:
        began, written = _now(), self._written  # another thread may take the lock meanwhile
        found = None
        with suppress(ObjectMissingError):
            found = await self._store.fetch(STORE_LOCK)
        if found != self.text.encode() and (found is not None or written):
            self._lost = _taken_over(self.prefix, found)
            _log.error("%s; nothing more is stored there", self._lost)
            raise self._lost
        await self._store.put(STORE_LOCK, self.text.encode())
        self._note(began)

    def _note(self, began: float) -> None:
        self._written, self._sure_until = True, began + _SURE_S

    def _end(self) -> bool:
        """Let no thread write any more; return whether the lock was taken, and no thread is writing."""
        with self._mutex:
            ended = StoreError(f"{self.prefix} is no longer this capture's, which has ended; capture again")
            self._lost = self._lost or ended
            return self._written and not self._writers

    def _release(self) -> None:
        store = Store(self.prefix, retry_s=_PROBE_S)
        with suppress(StoreError):  # it becomes stale
            if (found := _read(store)) is not None and found[1] == self.text.encode():
                store.delete(STORE_LOCK)


def lock_text() -> str:
    """Return a text for a lock of this process, unlike that of every other lock."""
    fields = {"host": socket.gethostname(), "pid": os.getpid(), "time": timestamp()}
    return json.dumps({**fields, "id": secrets.token_hex(8)})


def find_lock(store: Store) -> WritingProcess | None:
    """Return the process that has the lock in *store*, as far as the lock says; None if it is free."""
    found = _read(store)
    return None if found is None or _is_stale(found[0], datetime.now(UTC)) else _writer(found[1])


def take_store_lock(store: Store, text: bytes, *, left: str | None = None) -> WritingProcess | None:
    """Write the lock *text* in *store*, and return None, or the process that has the lock already.

    A stale lock is replaced, and so is one that says *left*.
    """
    found = _read(store)
    if found is None:
        taken = store.create(STORE_LOCK, text)
    else:
        entry, data = found
        if data == text:  # by a renewal that was faster, or a request whose answer was lost
            return None
        if (left is None or data != left.encode()) and not _is_stale_there(store, entry):
            return _writer(data)
        taken = store.replace(entry, text)
    # Without conditional writes, another process may have written at the same time, and the last one has it.
    if taken and store.has_conditions:
        return None
    found = _read(store)
    data = found[1] if found else b""
    return None if data == text else _writer(data)  # or written by a request whose answer was lost


def _read(store: Store) -> tuple[Entry, bytes] | None:
    try:
        return store.get_range(STORE_LOCK, 0, _LONGEST_BYTES)
    except ObjectMissingError:
        return None


def _is_stale(entry: Entry, now: datetime) -> bool:
    return (now - entry.modified).total_seconds() >= STALE_S


def _is_stale_there(store: Store, entry: Entry) -> bool:
    """Whether *entry* is stale by the clock of the store; this machine's may be wrong."""
    store.write(PROBE, b"")
    try:
        return _is_stale(entry, store.head(PROBE).modified)
    except ObjectMissingError:  # another process has just done the same, and is first
        return False
    finally:
        with suppress(StoreError):  # as when a store is probed
            store.delete(PROBE)


def _writer(data: bytes) -> WritingProcess:
    try:
        fields = json.loads(data)
        host = fields.get("host")
        return WritingProcess(int(fields["pid"]), None if host is None else str(host))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return WritingProcess(0)


def _taken_over(prefix: Prefix, found: bytes | None) -> StoreError:
    who = "another capture" if found is None else str(_writer(found))
    return StoreError(
        f"{prefix} is no longer this capture's: {who} took it over while the store did not answer; "
        "give every capture a prefix of its own"
    )


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # goes on while the machine is asleep
