"""The zstd sink: every dump file becomes a compressed file, as the codec says, on worker threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import cast

import anyio
from typing_extensions import Buffer
from xxhash import xxh3_64_hexdigest
from zstandard import ZstdError

from dumpstream._errors import SinkError
from dumpstream._native import layout_of
from dumpstream.archive.manifest import FILES, PACKS
from dumpstream.codec import Codec
from dumpstream.sinks import SinkSettings, Stored, WholeFile, sink_directory
from dumpstream.sinks._compressed import CompressedFile, Job, store_jobs
from dumpstream.sinks._compressors import empty_file
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks._frames import NO_BYTES, SMALL_BYTES, cut, view_bytes
from dumpstream.sinks._workers import Workers
from dumpstream.sinks.packs.container import MOST_PACKED
from dumpstream.sinks.packs.growing import GrowingPacks
from dumpstream.sinks.packs.packedfile import PackedFile
from dumpstream.sinks.resources import Resources
from dumpstream.system.durable import Fsync
from dumpstream.system.publishing import write_all
from dumpstream.system.tree import TRANSIENT_DESCRIPTORS, Draft, Tree

#: Making a file takes a network file system, or a busy one, as long as compressing this, or longer.
_PACKED_BY_DEFAULT = 64 << 10
# What it costs to make a small file, as the number of bytes that are compressed in the same time.
_MAKING_WORK = 16 << 10


class ZstdSink:
    """Mirrors the tree of the runtime's names as files whose suffix tells the codec, such as ``<name>.dsz``.

    They go below *location* or, if it is empty, below ``files`` in the capture's directory. A name that
    comes again, and a piece behind a gap, gets the next free name of ``<name>.2.dsz``, ``<name>.3.dsz``, ...
    Small files go into packs beside them.
    """

    takes_repeated_names = True

    def __init__(self, location: str, settings: SinkSettings, resources: Resources | None = None) -> None:
        # One descriptor is for the root, and each thread needs one for the directory it writes to.
        descriptors = settings.max_descriptors - 1
        threads = min(settings.workers, descriptors // (1 + TRANSIENT_DESCRIPTORS))
        limiter, pool = (resources.threads, resources.compressors) if resources else (None, None)
        self._workers = Workers(threads, settings.codec, settings.level, limiter, pool)
        root = sink_directory("zstd", location)
        self._root = settings.directory if root is None else root
        make_tree = partial(Tree, self._root, base=settings.base, durable=settings.fsync is Fsync.FILE)
        directories = descriptors - threads * TRANSIENT_DESCRIPTORS
        self._pack_workers = self._workers.for_packs()
        self._trees: list[Tree] = []
        self._packs: GrowingPacks | None = None
        self._most_packed = MOST_PACKED if settings.pack else _PACKED_BY_DEFAULT
        # Of the descriptors, one is for the root of the packs and one for their directory.
        if settings.pack or (settings.pack is None and directories - 2 >= threads):
            directories = max(directories - 2, threads)
            self._trees.append(make_tree(below=(PACKS,), suffix=".zip", directories=1))
            self._packs = GrowingPacks(self._trees[0])
        self._tree = make_tree(
            below=(FILES,) if root is None else (), suffix=settings.codec.suffix, directories=directories
        )
        self._trees.append(self._tree)
        self._sync_at_close = settings.fsync is Fsync.CAPTURE
        self._closed = False

    async def open(self, name: str, *, offset: int = 0) -> _ZstdFile:
        self._check_open()
        return _ZstdFile(name, self._tree, self._workers, offset=offset)

    async def put(self, files: Sequence[WholeFile]) -> list[Stored | SinkError]:
        self._check_open()
        with anyio.CancelScope(shield=True):  # what is stored must be reported
            if self._packs is None:
                outcomes = await self._put_each(files)
            else:
                outcomes = await self._put_in_packs(files, self._packs)
        return outcomes

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._workers.finish(self._close)

    async def _put_in_packs(
        self, files: Sequence[WholeFile], packs: GrowingPacks
    ) -> list[Stored | SinkError]:
        small: dict[int, PackedFile] = {}
        large: list[int] = []
        for index, (name, data) in enumerate(files):
            view = view_bytes(data)
            if len(view) <= self._most_packed:
                small[index] = PackedFile(name, view, self._workers.codec)
            else:
                large.append(index)
        await self._pack_workers.run([*small.values()], packs.add)
        outcomes = {index: file.outcome for index, file in small.items()}
        if large:
            outcomes |= zip(large, await self._put_each([files[index] for index in large]), strict=True)
        return [outcome for index in range(len(files)) if (outcome := outcomes[index]) is not None]

    async def _put_each(self, files: Sequence[WholeFile]) -> list[Stored | SinkError]:
        begun: list[_SmallFile | _ZstdFile] = []
        jobs: list[_SmallFile | Job] = []
        for name, data in files:
            view = view_bytes(data)
            if len(view) < SMALL_BYTES:
                small = _SmallFile(name, view, self._workers.codec)
                begun.append(small)
                jobs.append(small)
            else:
                file = _ZstdFile(name, self._tree, self._workers)
                begun.append(file)
                jobs += file.jobs(cut([view]), finish=True)
        await self._workers.run(jobs, self._store)
        return [file.outcome for file in begun if file.outcome is not None]

    def _store(self, jobs: Sequence[_SmallFile | Job]) -> None:
        for small, some in groupby(jobs, lambda job: isinstance(job, _SmallFile)):
            if small:
                _store_small(self._tree, cast("list[_SmallFile]", [*some]))
            else:
                store_jobs(cast("list[Job]", [*some]))

    def _check_open(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError

    def _close(self) -> None:
        try:
            if self._packs is not None:
                self._packs.close()
            if self._sync_at_close:
                for tree in self._trees:
                    tree.sync()
        except OSError as exc:
            raise sink_error(f"force {self._root} to the disk", exc) from exc
        finally:
            for tree in self._trees:
                tree.close()


class _ZstdFile(CompressedFile):
    """A file of a `ZstdSink`; holds no descriptor between calls.

    Each write ends with a whole frame or block, so that nothing is held between writes.
    """

    __slots__ = ("_bytes", "_draft", "_number", "_tree", "_workers")

    def __init__(self, name: str, tree: Tree, workers: Workers, *, offset: int = 0) -> None:
        super().__init__(name, workers.codec, offset=offset)
        self._tree, self._workers, self._number = tree, workers, 2 if offset else 1
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


class _SmallFile:
    """A file that is compressed at once."""

    __slots__ = ("data", "frame", "name", "outcome", "position", "work")

    def __init__(self, name: str, data: memoryview, codec: Codec) -> None:
        self.name, self.data = name, data
        self.position = 0
        self.work = len(data) + _MAKING_WORK
        self.frame = empty_file(codec)
        self.outcome: Stored | SinkError | None = None

    def layout(self) -> bytes:
        return layout_of(self.data)

    def take(self, frame: memoryview) -> None:
        self.frame = frame

    def fail(self, exc: MemoryError | ZstdError | OSError) -> None:
        self.outcome = self.outcome or sink_error(f"store {self.name!r}", exc)


def _store_small(tree: Tree, files: Sequence[_SmallFile]) -> None:
    """Make *files*, and leave where each is, or why it is not there, in its outcome."""
    ready = [file for file in files if file.outcome is None]
    try:
        paths = tree.write([(file.name, file.frame) for file in ready])
        for file, path in zip(ready, paths, strict=True):
            if isinstance(path, OSError):
                file.fail(path)
            else:
                file.outcome = Stored(path, len(file.frame), xxh3_64_hexdigest(file.data))
            file.frame = NO_BYTES
    except MemoryError as exc:
        for file in ready:
            file.fail(exc)
