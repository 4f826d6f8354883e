"""StoreTables: the tables of the statistics sink, for a capture that is in an object store."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from tempfile import TemporaryFile
from threading import Lock
from typing import IO

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import FileRefusedError, SinkError, StoreError
from dumpstream.archive.manifest import STATS
from dumpstream.custody import Custody, Stage
from dumpstream.objectstore.backoff import Backoff
from dumpstream.objectstore.keys import Keys
from dumpstream.objectstore.patience import GRACE_S, ask
from dumpstream.objectstore.store import PART_BYTES, Store
from dumpstream.remote.destination import RemoteDestination
from dumpstream.remote.largeupload import Uploaded
from dumpstream.remote.uploader import Uploader, open_uploader
from dumpstream.sinks import SinkSettings, Stored
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks.resources import Resources
from dumpstream.system.durable import Fsync

#: Tables on their way to the store; while there are more, the sink waits.
_IN_FLIGHT = 32


class StoreTables:
    """Tables below ``stats`` of the capture at *destination*, which has an outbox in *resources*.

    A table is uploaded when it is whole; until then its rows are in a nameless file on the disk, and a kill
    loses them, as in a directory. Lines go to the write-ahead journal meanwhile, and to the store when the
    store has the table that they name.
    """

    seconds = 10.0  # lines wait for so long

    def __init__(
        self, destination: RemoteDestination, settings: SinkSettings, resources: Resources, suffix: str
    ) -> None:
        self._destination, self._resources = destination, resources
        self._durable = settings.fsync is Fsync.FILE
        prefix_bytes = len(destination.path.key.encode()) + 1
        self._keys = Keys(STATS, suffix=suffix, prefix_bytes=prefix_bytes, among=resources.captures)
        self._taking = Lock()
        self._uploads: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._error: SinkError | None = None

    async def prepare(self) -> None:
        self._loop = asyncio.get_running_loop()
        resources, destination = self._resources, self._destination
        try:
            self._uploader = await open_uploader(
                destination.path,
                destination.lock,
                resources.outbox,
                patience=resources.patience,
                durable=self._durable,
                captures=resources.captures,
            )
            if not destination.empty:
                await ask(partial(self._learn_keys, self._uploader.store))
        except StoreError as exc:
            raise SinkError(str(exc)) from None

    async def ready(self) -> None:
        while len(self._uploads) >= _IN_FLIGHT:
            await asyncio.wait(self._uploads, return_when=asyncio.FIRST_COMPLETED)
        self._check()

    def begin(self, name: str) -> _StoreTable:
        return _StoreTable(self, self._take_key(name))

    def store(self, name: str, data: bytes) -> Stored:
        key, custody = self._take_key(name), Custody()  # in memory, so that its line waits
        self.upload(key, data, custody)
        return Stored(key, len(data), custody=custody)

    def finish(self) -> None:
        """Do nothing; every table releases its own file."""

    async def aclose(self) -> None:
        self._closing.set()
        uploader: Uploader | None = getattr(self, "_uploader", None)
        if uploader is None:  # it was never prepared
            return
        try:
            await self._wait()
        except asyncio.CancelledError:
            uploader.store.patience.limit(GRACE_S)
            with anyio.CancelScope(shield=True):
                await self._wait()
            raise
        finally:
            await uploader.aclose()
        self._check()

    def open_file(self) -> IO[bytes]:
        """Open a nameless file for a table."""
        outbox = self._resources.outbox
        return TemporaryFile(dir=None if outbox is None else outbox.path)

    def upload(self, key: str, table: bytes | IO[bytes], custody: Custody) -> None:
        """Let the object *key*, which is in *custody*, be uploaded; a file is closed afterwards."""
        self._loop.call_soon_threadsafe(self._begin, key, table, custody)

    def _begin(self, key: str, table: bytes | IO[bytes], custody: Custody) -> None:
        task = self._loop.create_task(self._upload(key, table, custody))
        self._uploads.add(task)
        task.add_done_callback(self._uploads.discard)

    async def _upload(self, key: str, table: bytes | IO[bytes], custody: Custody) -> None:
        try:
            uploaded = await self._upload_or_wait(key, table)
        except SinkError as exc:
            self._error = self._error or exc
            custody.advance(Stage.LOST)
        else:
            if uploaded.custody is None:
                custody.advance(Stage.STORED)
            else:
                custody.advance(Stage.KEPT)
                uploaded.custody.when(Stage.STORED, lambda: custody.advance(Stage.STORED))
        finally:
            if not isinstance(table, bytes):
                await run_sync(table.close)

    async def _upload_or_wait(self, key: str, table: bytes | IO[bytes]) -> Uploaded:
        """Upload the object *key* as soon as the store takes it or the spill has room for it."""
        backoff = Backoff()
        while True:
            try:
                if isinstance(table, bytes):
                    return await self._uploader.upload(key, table)
                return await self._upload_file(key, table)
            except FileRefusedError:  # files may be dropped then, but the rows of many must not be
                if self._closing.is_set():
                    raise
            except OSError as exc:
                raise sink_error("read a table of statistics again", exc) from None
            with anyio.move_on_after(backoff.next_pause()):
                await self._closing.wait()

    async def _upload_file(self, key: str, file: IO[bytes]) -> Uploaded:
        fd = file.fileno()
        first = await run_sync(os.pread, fd, PART_BYTES + 1, 0)
        if len(first) <= PART_BYTES:
            return await self._uploader.upload(key, first)
        upload = self._uploader.begin_large(key)
        try:
            piece, position = first, 0
            while piece:
                await upload.send([piece])
                position += len(piece)
                piece = await run_sync(os.pread, fd, PART_BYTES, position)
            return await upload.finish()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await upload.abort()
            raise

    async def _wait(self) -> None:
        while self._uploads:
            await asyncio.wait(self._uploads)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _take_key(self, name: str) -> str:
        with self._taking:
            return self._keys.take(name)

    def _learn_keys(self, store: Store) -> None:
        for entry in store.entries(STATS):
            self._keys.add(entry.key)


class _StoreTable:
    """A table that becomes the object *key*."""

    def __init__(self, tables: StoreTables, key: str) -> None:
        self._tables, self._key = tables, key
        self._custody = Custody(Stage.KEPT)
        self.file = tables.open_file()
        self.stored = Stored(key, custody=self._custody)

    def publish(self) -> None:
        self.file.flush()
        self._tables.upload(self._key, self.file, self._custody)

    def discard(self) -> None:
        with suppress(OSError):
            self.file.close()
