"""A small ring, and what fills and empties it."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import TYPE_CHECKING

import pytest

from dumpstream import _native, source
from dumpstream.source import OnFull, RingOptions, RingSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RING_BYTES = 64 << 10
DROP = RingOptions(buffer_bytes=RING_BYTES, on_full=OnFull.DROP)
BLOCK = RingOptions(buffer_bytes=RING_BYTES)

callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(_native.callback_address())


def send(name: str, data: bytes = b"", *, offset: int = -1, last: bool = False, flag: int = 0) -> int:
    """Call the callback as CANN does; nonzero if the chunk was refused."""
    chunk = struct.pack("<4096sIIqi", os.fsencode(name), len(data), last, offset, flag) + data + bytes(4)
    result: int = callback(chunk, len(chunk))
    return result


def fill_ring() -> int:
    """Send chunks of files of their own until one is refused; return how many fitted."""
    count = 0
    while send("filler", bytes(1000), last=True) == 0:
        count += 1
    return count


async def receive_chunks(source: RingSource) -> list[tuple[str, bytes]]:
    """Receive everything to the end."""
    chunks = []
    async for batch in source:
        with batch:
            chunks += [(chunk.name, bytes(chunk)) for chunk in batch.chunks]
    return chunks


@pytest.fixture
async def dropping() -> AsyncIterator[RingSource]:
    async with RingSource(DROP) as source:
        yield source


@pytest.fixture
def only_wakeups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only a wake-up end a wait."""
    monkeypatch.setattr(source, "_SHORT_WAITS", 0)
    monkeypatch.setattr(source, "_LONG_WAIT_S", 1000)
