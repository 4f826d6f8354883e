from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread
import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from dumpstream.codec.decoding import original_of_view
from dumpstream.names import clean_name, hashed_name
from dumpstream.objectstore.patience import Patience
from dumpstream.remote.description import Description
from dumpstream.remote.destination import RemoteDestination
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.storelock import StoreLock
from dumpstream.sinks import SinkSettings, Stored, WholeFile
from dumpstream.sinks.objectstore import ObjectStoreSink
from dumpstream.system.location import Prefix
from dumpstream.testing import check_sink

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


def decompress(data: bytes) -> bytes:
    return b"".join(map(bytes, original_of_view(memoryview(data))))


def read_parts(store: MemoryStore | LocalStore, prefix: str, name: str) -> list[bytes]:
    """Return the parts of *name*, in the order of their numbers."""
    keys = {meta["path"] for page in obstore.list(store, prefix) for meta in page}
    parts = []
    for stem in dict.fromkeys(("/".join(clean_name(name)), hashed_name(name))):
        for number in range(1, 10):
            key = f"{prefix}/files/{stem}.dsz" if number == 1 else f"{prefix}/files/{stem}.{number}.dsz"
            if key in keys:
                parts.append(decompress(bytes(obstore.get(store, key).bytes())))
    return parts


async def test_memory_store_keeps_every_promise_of_a_sink(tmp_path: Path) -> None:
    store = MemoryStore()
    settings = SinkSettings(directory=tmp_path)

    async def read(name: str) -> list[bytes]:
        return await anyio.to_thread.run_sync(read_parts, store, "run", name)

    await check_sink(lambda: ObjectStoreSink(Prefix.of(store, "run"), settings), read)


async def test_large_file_is_sent_in_parts(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    prefix = Prefix.of(store, "run")
    lock, outbox = StoreLock(prefix), Outbox(tmp_path, Description(prefix.url))
    await anyio.to_thread.run_sync(lock.take)
    destination = await anyio.to_thread.run_sync(
        lambda: RemoteDestination(prefix, outbox, lock, patience=Patience())
    )
    sink = ObjectStoreSink(prefix, SinkSettings(directory=tmp_path), inside=destination)
    data = memoryview(__import__("os").urandom(40 << 20))

    (stored,) = await sink.put([WholeFile("large", data)])
    await sink.aclose()

    assert isinstance(stored, Stored)
    assert stored.path == "files/large.dsz"
    assert read_parts(store, "run", "large") == [data]
