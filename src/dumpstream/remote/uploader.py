"""Uploader: stores objects while a capture runs; what the store does not take waits in the outbox."""

from __future__ import annotations

import asyncio

from anyio.to_thread import run_sync
from typing_extensions import Buffer

from dumpstream._errors import SinkError, StoreError
from dumpstream.objectstore.client import RETRY_S
from dumpstream.objectstore.patience import Patience
from dumpstream.objectstore.store import Store
from dumpstream.remote.backlog import Backlog
from dumpstream.remote.largeupload import LargeUpload, Uploaded
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.storelock import StoreLock
from dumpstream.system.location import Prefix

#: The most requests at the same time, and those that a capture may have, however many share them.
IN_FLIGHT = 32
_LEAST_IN_FLIGHT = 4
#: With an outbox a store counts as away after so many seconds of trying.
SHORT_RETRY_S = 8.0


def retry_time(outbox: Outbox | None) -> float:
    """Return how long a request is tried again if its object may wait in *outbox*."""
    return SHORT_RETRY_S if outbox is not None and outbox.quota.capacity else RETRY_S


async def open_uploader(
    prefix: Prefix,
    lock: StoreLock,
    outbox: Outbox | None,
    *,
    patience: Patience,
    durable: bool,
    captures: int = 1,
) -> Uploader:
    """Return the uploader for *prefix*, whose *lock* is held; *captures* share the connections.

    Raises:
        StoreError: the store cannot be used.
    """
    store = await run_sync(lambda: Store(prefix, retry_s=retry_time(outbox), lock=lock, patience=patience))
    if outbox is not None:
        await run_sync(outbox.add_store, prefix)
    in_flight = max(IN_FLIGHT // captures, _LEAST_IN_FLIGHT)
    return Uploader(store, outbox, durable=durable, in_flight=in_flight)


class Uploader:
    """Uploads objects to *store*, many at once; *backlog* has those that wait in *outbox*.

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
        self.backlog = Backlog(store, outbox, durable=durable)
        self._slots = asyncio.Semaphore(in_flight)

    async def upload(self, key: str, data: Buffer) -> Uploaded:
        """Upload a small object.

        Raises:
            SinkError: the store refuses, or is away with no outbox to wait in.
        """
        backlog, size = self.backlog, memoryview(data).nbytes
        while True:
            async with self._slots:
                if not backlog.away:  # it may have gone while this object waited for its turn
                    try:
                        return Uploaded(await self.store.put(key, data), None)
                    except StoreError as exc:
                        backlog.note(exc)
            if await backlog.reserve(size, key):
                break
        try:
            await backlog.append(key, [data], new=True)
        except SinkError:
            await backlog.discard(key, size)
            raise
        return Uploaded(None, await backlog.keep(key, size))

    def begin_large(self, key: str) -> LargeUpload:
        """Begin to upload an object of any size."""
        return LargeUpload(self.store, self.backlog, key)

    async def aclose(self) -> None:
        """Upload what waits, as `Backlog.aclose` does, and stop."""
        await self.backlog.aclose()
