"""QueuedCallback: the baseline that Python programs write, a ctypes callback that queues onto the loop."""

from __future__ import annotations

import asyncio
import ctypes
from collections import defaultdict
from typing import NamedTuple

from producer import CALLBACK, PAYLOAD_AT, ChunkHead


class QueuedChunk(NamedTuple):
    """What the callback queues."""

    name: bytes
    is_last: bool
    data: bytes


class QueuedCallback:
    """Copies every chunk to bytes, with the GIL held, and queues it onto the running loop without bound."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[QueuedChunk] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self.function = CALLBACK(self._on_chunk)

    async def receive_files(self, count: int) -> int:
        """Join chunks by name until *count* files have ended; return their bytes."""
        pieces: defaultdict[bytes, list[bytes]] = defaultdict(list)
        size = 0
        while count:
            chunk = await self.queue.get()
            pieces[chunk.name].append(chunk.data)
            if chunk.is_last:
                size += sum(map(len, pieces.pop(chunk.name)))
                count -= 1
        return size

    def _on_chunk(self, address: int, _length: int) -> int:
        head = ChunkHead.from_address(address)
        data = ctypes.string_at(address + PAYLOAD_AT, head.length)
        chunk = QueuedChunk(head.file_name, bool(head.is_last), data)
        self._loop.call_soon_threadsafe(self.queue.put_nowait, chunk)
        return 0
