"""The zstd sink: every dump file becomes a ``.zst`` file, compressed on worker threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import anyio
from anyio.to_thread import run_sync
from typing_extensions import Buffer

from dumpstream._errors import SinkError
from dumpstream.archive.manifest import FILES, PACKS
from dumpstream.sinks import SinkSettings, Stored, WholeFile, sink_directory
from dumpstream.sinks._compressed import CompressedFile, Job
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks._frames import cut, view_bytes
from dumpstream.sinks._packer import Packer, PackTarget
from dumpstream.sinks._workers import Workers
from dumpstream.sinks.resources import Resources
from dumpstream.system.durable import Fsync
from dumpstream.system.publishing import write_all
from dumpstream.system.tree import TRANSIENT_DESCRIPTORS, Draft, Tree


class ZstdSink:
    """Mirrors the tree of the runtime's names as ``<name>.zst`` files, which ``zstd -d`` decompresses.

    They go below *location* or, if it is empty, below ``files`` in the capture's directory. A name that
    comes again, and a piece behind a gap, gets the next free name of ``<name>.2.zst``, ``<name>.3.zst``, ...
    """

    def __init__(self, location: str, settings: SinkSettings, resources: Resources | None = None) -> None:
        # One descriptor is for the root, and each thread needs one for the directory it writes to.
        descriptors = settings.max_descriptors - 1
        threads = min(settings.workers, descriptors // (1 + TRANSIENT_DESCRIPTORS))
        self._workers = Workers(threads, settings.level, resources.threads if resources else None)
        root = sink_directory("zstd", location)
        self._root = settings.directory if root is None else root
        make_tree = partial(Tree, self._root, base=settings.base, durable=settings.fsync is Fsync.FILE)
        directories = descriptors - threads * TRANSIENT_DESCRIPTORS
        self._packs: Tree | None = None
        self._packer: Packer | None = None
        if settings.pack:
            directories = max(directories - 2, threads)  # one for the root of the packs, one for theirs
            self._packs = make_tree(below=(PACKS,), suffix=".zip", directories=1)
            self._packer = Packer(self._workers, self._open_pack)
        self._tree = make_tree(below=(FILES,) if root is None else (), suffix=".zst", directories=directories)
        self._sync_at_close = settings.fsync is Fsync.CAPTURE
        self._pack_turn = anyio.Lock()
        self._closed = False

    async def open(self, name: str, *, offset: int = 0) -> _ZstdFile:
        self._check_open()
        return _ZstdFile(name, self._tree, self._workers, number=2 if offset else 1)

    async def put(self, files: Sequence[WholeFile]) -> list[Stored | SinkError]:
        self._check_open()
        with anyio.CancelScope(shield=True):  # what is stored must be reported
            if self._packer is None:
                outcomes = await self._put_each(files)
            else:
                outcomes = await self._packer.put(files, self._put_each)
        return outcomes

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                if self._packer is not None:
                    with anyio.CancelScope(shield=True):
                        await self._packer.aclose()
            finally:
                await self._workers.finish(self._close)

    async def _put_each(self, files: Sequence[WholeFile]) -> list[Stored | SinkError]:
        begun = [_ZstdFile(file.name, self._tree, self._workers) for file in files]
        jobs: list[Job] = []
        for file, (_, data) in zip(begun, files, strict=True):
            jobs += file.jobs(cut([view_bytes(data)]), finish=True)
        await self._workers.run(jobs)
        return [file.outcome for file in begun if file.outcome is not None]

    def _check_open(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError

    def _close(self) -> None:
        trees = [tree for tree in (self._tree, self._packs) if tree is not None]
        try:
            if self._sync_at_close:
                for tree in trees:
                    tree.sync()
        except OSError as exc:
            raise sink_error(f"force {self._root} to the disk", exc) from exc
        finally:
            for tree in trees:
                tree.close()

    async def _open_pack(self, name: str) -> PackTarget:
        assert self._packs is not None
        file = await run_sync(_PackFile, self._packs, name, self._pack_turn)
        return PackTarget(file.path, file.store)


class _ZstdFile(CompressedFile):
    """A file of a `ZstdSink`; holds no descriptor between calls.

    Each write ends with a whole frame, so that nothing is held between writes.
    """

    __slots__ = ("_bytes", "_draft", "_number", "_tree", "_workers")

    def __init__(self, name: str, tree: Tree, workers: Workers, *, number: int = 1) -> None:
        super().__init__(name)
        self._tree, self._workers, self._number = tree, workers, number
        self._draft: Draft | None = None
        self._bytes = 0

    async def write(self, pieces: Sequence[Buffer]) -> None:
        await self._workers.append(self, pieces)

    async def commit(self) -> Stored:
        with anyio.CancelScope(shield=True):  # what is visible must be reported
            await self._workers.append(self, [], finish=True)
        assert isinstance(self.outcome, Stored)
        return self.outcome

    async def abort(self) -> None:
        if self._draft is not None:
            try:
                await self._workers.finish(self.discard)
            except OSError as exc:
                raise sink_error(f"remove what there is of {self.name!r}", exc) from exc

    def add(self, frame: memoryview) -> None:
        if self._draft is None:
            self._draft, fd = self._tree.create(self.name)
            try:
                write_all(fd, frame)
            finally:
                os.close(fd)
        else:
            self._tree.append(self._draft, frame)
        self._bytes += len(frame)

    def publish(self) -> Stored:
        assert self._draft is not None
        path = self._tree.publish(self._draft, number=self._number)
        self._draft = None
        return Stored(path, self._bytes)

    def discard(self) -> None:
        if self._draft is not None:
            self._tree.discard(self._draft)
            self._draft = None


class _PackFile:
    """A pack that is stored in the tree. Making one blocks."""

    def __init__(self, tree: Tree, name: str, turn: anyio.Lock) -> None:
        self._tree, self._turn = tree, turn
        try:
            self._draft, fd = tree.create(name)
        except OSError as exc:
            raise sink_error("begin a pack", exc) from None
        os.close(fd)
        self.path = tree.path(self._draft)

    async def store(self, data: Buffer) -> None:
        async with self._turn:  # the tree keeps a descriptor for one
            await run_sync(self._store, memoryview(data))

    def _store(self, data: memoryview) -> None:
        try:
            self._tree.append(self._draft, data)
            self._tree.publish(self._draft)
        except OSError as exc:
            with suppress(OSError):
                self._tree.discard(self._draft)
            raise sink_error(f"store {self.path}", exc) from None
