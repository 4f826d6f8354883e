"""The files and packs of an object store sink while they become objects."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio

from dumpstream._errors import SinkError
from dumpstream.objectstore.store import PART_BYTES
from dumpstream.sinks import Stored
from dumpstream.sinks._frames import CompressedFile, Frames, sink_error, view_bytes
from dumpstream.system.heldbytes import HeldBytes

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from dumpstream.custody import Custody
    from dumpstream.remote.courier import Courier
    from dumpstream.remote.delivery import Delivery
    from dumpstream.sinks.objectstore import ObjectStoreSink


class Beginnings:
    """What has come of files of which no part is there yet, on the disk if it is much."""

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
        """Return what is kept under *key*, and keep it no longer."""
        async with self._turn:
            try:
                return memoryview(await self._held.take(key))
            except OSError as exc:
                raise sink_error("read the beginning of a file", exc) from None

    async def aclose(self) -> None:
        """Forget everything."""
        await self._held.aclose()


class ObjectFile:
    """A file of an `ObjectStoreSink`; it begins to be sent when a part of it is there."""

    __slots__ = (
        "_compressed",
        "_courier",
        "_delivery",
        "_first",
        "_frames",
        "_kept",
        "_kept_bytes",
        "_key",
        "_name",
        "_sink",
    )

    def __init__(self, sink: ObjectStoreSink, courier: Courier, name: str, *, first: int) -> None:
        self._sink, self._courier, self._name, self._first = sink, courier, name, first
        self._frames = Frames()
        self._compressed = CompressedFile(name, self._frames)
        self._kept = 0  # how many beginnings are kept for it
        self._kept_bytes = 0
        self._key: str | None = None
        self._delivery: Delivery | None = None

    async def write(self, pieces: Sequence[Buffer]) -> None:
        self._check_open()
        await self._sink.compress(self._compressed, [view_bytes(piece) for piece in pieces], finish=False)
        frames = self._frames.take()
        size = sum(map(len, frames))
        if self._delivery is not None or self._kept_bytes + size >= PART_BYTES:
            await self._send(frames)
        elif size:
            await self._sink.beginnings.keep((self, self._kept), b"".join(frames))
            self._kept += 1
            self._kept_bytes += size

    async def commit(self) -> Stored:
        self._check_open()
        await self._sink.compress(self._compressed, [], finish=True)
        frames = self._frames.take()
        outcome = self._compressed.outcome
        assert isinstance(outcome, Stored)
        if self._delivery is not None:
            await self._send(frames)
            brought = await self._delivery.finish()
        else:
            self._key = self._sink.take_key(self._name, self._first)
            brought = await self._courier.bring(self._key, b"".join([*await self._recall(), *frames]))
        assert self._key is not None
        self._delivery = None
        return self._sink.stored(self._key, outcome.bytes, outcome.xxh3, brought)

    async def abort(self) -> None:
        self._compressed.cancel()
        await self._recall()
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            await delivery.abort()

    async def _send(self, frames: list[memoryview]) -> None:
        if self._delivery is None:
            self._key = self._sink.take_key(self._name, self._first)
            self._delivery = self._courier.deliver(self._key)
            frames = await self._recall() + frames
        if frames:
            await self._delivery.send(frames)

    async def _recall(self) -> list[memoryview]:
        """Return everything that is kept for it."""
        kept, self._kept, self._kept_bytes = self._kept, 0, 0
        return [await self._sink.beginnings.take((self, number)) for number in range(kept)]

    def _check_open(self) -> None:
        if isinstance(self._compressed.outcome, SinkError):
            raise self._compressed.outcome
        if self._compressed.outcome is not None:
            raise anyio.ClosedResourceError


class PackObject:
    """A pack on its way to the store."""

    def __init__(self, courier: Courier, key: str, base: str) -> None:
        self._courier, self._key = courier, key
        self.path = f"{base}{key}"

    async def store(self, data: Buffer) -> Custody | None:
        return (await self._courier.bring(self._key, data)).custody
