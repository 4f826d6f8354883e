"""The files of an object store sink, until they are objects."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import Buffer

from dumpstream.objectstore.store import PART_BYTES
from dumpstream.remote.largeupload import LargeUpload
from dumpstream.remote.uploader import Uploader
from dumpstream.sinks import Stored
from dumpstream.sinks._compressed import Frames
from dumpstream.sinks._failure import sink_error
from dumpstream.system.heldbytes import HeldBytes

if TYPE_CHECKING:
    from dumpstream.sinks.objectstore import ObjectStoreSink


class Beginnings:
    """The beginnings of files that are not large enough for a part yet; on the disk if they are many."""

    def __init__(self, directory: Path, *, memory_bytes: int) -> None:
        self._held = HeldBytes(directory, memory_bytes=memory_bytes)
        self._turn = asyncio.Lock()

    async def keep(self, key: Hashable, data: bytes) -> None:
        """Keep *data* under *key*."""
        async with self._turn:
            try:
                await self._held.keep(key, data)
            except OSError as exc:
                raise sink_error("keep the beginning of a file", exc) from None

    async def take(self, key: Hashable) -> memoryview:
        """Return the data under *key*, and forget it."""
        async with self._turn:
            try:
                return memoryview(await self._held.take(key))
            except OSError as exc:
                raise sink_error("read the beginning of a file", exc) from None

    async def aclose(self) -> None:
        """Forget everything."""
        await self._held.aclose()


class ObjectFile:
    """A file of an `ObjectStoreSink`; its upload begins when there is enough for a part."""

    def __init__(self, sink: ObjectStoreSink, uploader: Uploader, name: str, *, offset: int = 0) -> None:
        self._sink, self._uploader, self._first = sink, uploader, 2 if offset else 1
        self._frames = Frames(name, sink.codec, offset=offset)
        self._kept = 0  # how many pieces of its beginning are kept
        self._kept_bytes = 0
        self._key: str | None = None
        self._upload: LargeUpload | None = None

    async def write(self, pieces: Sequence[Buffer]) -> None:
        await self._sink.compress(self._frames, pieces)
        frames = self._frames.take()
        size = sum(map(len, frames))
        if self._upload is not None or self._kept_bytes + size >= PART_BYTES:
            await self._send(frames)
        elif size:
            await self._sink.beginnings.keep((self, self._kept), b"".join(frames))
            self._kept += 1
            self._kept_bytes += size

    async def commit(self) -> Stored:
        await self._sink.compress(self._frames, [], finish=True)
        frames = self._frames.take()
        outcome = self._frames.outcome
        assert isinstance(outcome, Stored)
        if self._upload is not None:
            await self._send(frames)
            uploaded = await self._upload.finish()
        else:
            self._key = self._sink.keys.take(self._frames.name, first=self._first)
            uploaded = await self._uploader.upload(self._key, b"".join([*await self._recall(), *frames]))
        assert self._key is not None
        self._upload = None
        return self._sink.stored(self._key, outcome.bytes, outcome.xxh3, uploaded)

    async def abort(self) -> None:
        self._frames.cancel()
        await self._recall()
        upload, self._upload = self._upload, None
        if upload is not None:
            await upload.abort()

    async def _send(self, frames: list[memoryview]) -> None:
        if self._upload is None:
            self._key = self._sink.keys.take(self._frames.name, first=self._first)
            self._upload = self._uploader.begin_large(self._key)
            frames = await self._recall() + frames
        if frames:
            await self._upload.send(frames)

    async def _recall(self) -> list[memoryview]:
        """Return the kept beginning."""
        kept, self._kept, self._kept_bytes = self._kept, 0, 0
        return [await self._sink.beginnings.take((self, number)) for number in range(kept)]
