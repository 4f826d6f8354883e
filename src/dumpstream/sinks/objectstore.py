"""The object store sinks: every dump file becomes one compressed object, or one of many in a pack."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial

import anyio
from anyio.to_thread import run_sync
from typing_extensions import Buffer

from dumpstream._errors import SinkError, StoreError
from dumpstream.archive.manifest import FILES, PACKS
from dumpstream.custody import Custody
from dumpstream.objectstore.keys import Keys
from dumpstream.objectstore.patience import GRACE_S, ask
from dumpstream.objectstore.store import PART_BYTES, Store
from dumpstream.remote.destination import RemoteDestination
from dumpstream.remote.largeupload import Uploaded
from dumpstream.remote.storelock import StoreLock
from dumpstream.remote.uploader import Uploader, open_uploader, retry_time
from dumpstream.sinks import SinkSettings, Stored, WholeFile
from dumpstream.sinks._compressed import CompressedFile, Frames, Job, store_jobs
from dumpstream.sinks._frames import cut, view_bytes
from dumpstream.sinks._object import Beginnings, ObjectFile
from dumpstream.sinks._workers import Workers
from dumpstream.sinks.packs.packer import Packer, PackTarget
from dumpstream.sinks.resources import Resources
from dumpstream.system.durable import Fsync
from dumpstream.system.location import Prefix

#: The store must answer within so many seconds before a capture begins.
_PROBE_S = 10.0
#: Memory for the beginnings of files that are not large enough for a part yet.
_BEGINNINGS_BYTES = 32 << 20
#: Large files that one call uploads at the same time.
_LARGE_AT_ONCE = 4


def probe_store(prefix: Prefix) -> None:
    """Find out whether the store of *prefix* can be read and written; blocks.

    Raises:
        SinkError: it cannot.
    """
    try:
        store = Store(prefix, retry_s=_PROBE_S)
        store.reach(_PROBE_S)
        store.probe()
    except StoreError as exc:
        raise SinkError(str(exc)) from None


class ObjectStoreSink:
    """Stores files below ``files`` at *prefix*, compressed, as the zstd sink does in a directory.

    A repeated name becomes ``<name>.2.dsz``, ``<name>.3.dsz``, ... Small files take a request each, or are
    packed; large ones are uploaded in parts while they come. The prefix is locked meanwhile. Paths are URLs;
    if the sink is *inside* its capture's destination, they are relative to it.
    """

    takes_repeated_names = True

    def __init__(
        self,
        prefix: Prefix,
        settings: SinkSettings,
        resources: Resources | None = None,
        *,
        inside: RemoteDestination | None = None,
    ) -> None:
        resources = resources or Resources()
        self._prefix, self._settings, self._resources = prefix, settings, resources
        self._inside = inside
        self._base = f"{prefix}/" if inside is None else ""
        self.codec = settings.codec
        self._workers = Workers(
            settings.workers, settings.codec, settings.level, resources.threads, resources.compressors
        )
        self.keys = Keys(
            FILES,
            suffix=settings.codec.suffix,
            prefix_bytes=len(prefix.key.encode()) + 1,
            among=resources.captures,
        )
        self._packer = Packer(self._workers.for_packs(), self._open_pack) if settings.pack else None
        self.beginnings = Beginnings(
            resources.outbox.path if resources.outbox else settings.directory,
            memory_bytes=_BEGINNINGS_BYTES // resources.captures,
        )
        self._uploader: Uploader | None = None
        self._own_lock: StoreLock | None = None
        self._held = AsyncExitStack()
        self._preparing = asyncio.Lock()
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._closed = False

    async def prepare(self) -> None:
        """Find out whether the store can be used, and which keys are taken there.

        Raises:
            SinkError: the store cannot be used.
            DestinationInUseError: another capture is writing there.
        """
        await self._ready()

    async def open(self, name: str, *, offset: int = 0) -> ObjectFile:
        self._check_open()
        return ObjectFile(self, await self._ready(), name, offset=offset)

    async def put(self, files: Sequence[WholeFile]) -> list[Stored | SinkError]:
        self._check_open()
        await self._ready()
        if self._packer is not None:
            return await self._packer.put(files, self._put_each)
        return await self._put_each(files)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._packer is not None:
                await self._packer.aclose()
        finally:
            try:
                await self.beginnings.aclose()
                if self._uploader is not None:
                    await self._uploader.aclose()
            finally:
                if self._own_lock is not None and self._uploader is not None:
                    given_up = self._uploader.store.requests.given_up
                    self._own_lock.left_behind = given_up or self._uploader.backlog.waiting > 0
                await self._held.aclose()

    def stored(self, key: str, size: int, xxh3: str | None, uploaded: Uploaded) -> Stored:
        """Return where an object is."""
        return Stored(f"{self._base}{key}", size, xxh3, None, *uploaded)

    async def compress(
        self, compressed: CompressedFile, pieces: Sequence[Buffer], *, finish: bool = False
    ) -> None:
        """Add *pieces* to *compressed*, as `Workers.append` does."""
        self._check_open()
        await self._workers.append(compressed, pieces, finish=finish)

    async def _ready(self) -> Uploader:
        """Return the uploader; the first call finds out what is in the store."""
        async with self._preparing:
            if self._uploader is None:
                try:
                    if self._inside is None:
                        await ask(partial(probe_store, self._prefix))
                    self._uploader = await self._connect(await self._take_lock())
                except StoreError as exc:
                    raise SinkError(str(exc)) from None
            return self._uploader

    async def _take_lock(self) -> StoreLock:
        """Return the lock of the prefix, which this process holds then."""
        if self._inside is not None:
            return self._inside.lock
        outbox = self._resources.outbox
        lock = next((lock for lock in self._resources.locks if lock.covers(self._prefix)), None)
        shared = lock is not None
        if lock is None:
            lock = await run_sync(
                lambda: StoreLock(self._prefix, retry_s=retry_time(outbox), patience=self._resources.patience)
            )
            await self._held.enter_async_context(lock.held())
            await ask(lock.take)
            self._own_lock = lock
        if outbox is not None:
            await run_sync(lambda: outbox.add_lock(lock, shared=shared))
        return lock

    async def _connect(self, lock: StoreLock) -> Uploader:
        outbox = self._resources.outbox
        uploader = await open_uploader(
            self._prefix,
            lock,
            outbox,
            patience=self._resources.patience,
            durable=self._settings.fsync is Fsync.FILE,
            captures=self._resources.captures,
        )
        if self._inside is None or not self._inside.empty:
            await ask(lambda: self._learn_keys(uploader.store))
        if outbox is not None and self._packer is not None:
            await run_sync(outbox.add_packs, str(self._prefix / PACKS / self._packer.token))
        return uploader

    def _learn_keys(self, store: Store) -> None:
        for entry in store.entries(FILES):
            self.keys.add(entry.key)

    async def _open_pack(self, name: str) -> PackTarget:
        uploader, key = await self._ready(), f"{PACKS}/{name}.zip"

        async def store(data: Buffer) -> Custody | None:
            return (await uploader.upload(key, data)).custody

        return PackTarget(f"{self._base}{key}", store)

    async def _put_each(self, files: Sequence[WholeFile]) -> list[Stored | SinkError]:
        jobs: list[Job] = []
        begun: list[tuple[memoryview, Frames]] = []
        for name, data in files:
            view, output = view_bytes(data), Frames(name, self.codec)
            begun.append((view, output))
            if len(view) <= PART_BYTES:
                jobs += output.jobs(cut([view]), finish=True)
        with anyio.CancelScope(shield=True):
            await self._workers.run(jobs, store_jobs)
        return await _finish([self._put_one(view, output) for view, output in begun])

    async def _put_one(self, view: memoryview, output: Frames) -> Stored | SinkError:
        outcome = output.outcome
        if isinstance(outcome, SinkError):
            return outcome
        uploader = await self._ready()
        try:
            if outcome is None:  # a large file is compressed while it is uploaded
                return await self._put_large(uploader, output.name, view)
            key = self.keys.take(output.name)
            return self.stored(key, outcome.bytes, outcome.xxh3, await uploader.upload(key, _joined(output)))
        except SinkError as exc:
            return exc

    async def _put_large(self, uploader: Uploader, name: str, view: memoryview) -> Stored:
        async with self._large:
            file = ObjectFile(self, uploader, name)
            try:
                for start in range(0, len(view), PART_BYTES):
                    await file.write([view[start : start + PART_BYTES]])
                return await file.commit()
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await file.abort()
                raise

    def _check_open(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError


def _joined(output: Frames) -> Buffer:
    frames = output.take()
    return frames[0] if len(frames) == 1 else b"".join(frames)


async def _finish(calls: Sequence[Coroutine[None, None, Stored | SinkError]]) -> list[Stored | SinkError]:
    """Run *calls* at once and return their results; if the caller is cancelled, they have seconds more."""
    if not calls:
        return []
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(call) for call in calls]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        with anyio.move_on_after(GRACE_S, shield=True):
            await asyncio.wait(tasks)
        if not all(task.done() for task in tasks):
            for task in tasks:
                task.cancel()  # requests go on all the same
            raise
    return [task.result() for task in tasks]


def _make_sink(
    scheme: str, location: str, settings: SinkSettings, resources: Resources | None = None
) -> ObjectStoreSink:
    """Return the sink for ``scheme:location``."""
    return ObjectStoreSink(Prefix.parse(f"{scheme}:{location}"), settings, resources)


make_s3_sink = partial(_make_sink, "s3")
make_gs_sink = partial(_make_sink, "gs")
make_az_sink = partial(_make_sink, "az")
make_obs_sink = partial(_make_sink, "obs")
