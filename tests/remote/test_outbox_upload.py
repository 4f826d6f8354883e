"""Uploads from an outbox whose caller is gone, and several at once."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import anyio
import obstore
import pytest
from anyio.to_thread import run_sync
from obstore.store import MemoryStore

from dumpstream._errors import StoreError
from dumpstream.objectstore.patience import Patience
from dumpstream.objectstore.store import PART_BYTES, Store
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.outboxuploader import OutboxUploader
from dumpstream.remote.quota import Quota
from dumpstream.remote.spilled import upload_from
from dumpstream.remote.uploader import Uploader
from dumpstream.source import OnFull
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

pytestmark = pytest.mark.anyio

_SIZE = 3 * PART_BYTES


class HaltingStore(Store):
    """A store that takes the first piece of an object, and the others when it is told to."""

    def __init__(self) -> None:
        super().__init__(Prefix.of(MemoryStore(), "place"))
        self.halted, self.going_on = anyio.Event(), anyio.Event()

    async def upload(self, key: str, pieces: AsyncIterator[Buffer]) -> str | None:
        async def halting() -> AsyncIterator[Buffer]:
            async for piece in pieces:
                yield piece
                self.halted.set()
                await self.going_on.wait()

        return await super().upload(key, halting())


class AbsentStore(Store):
    """A store that is away, and may come back."""

    away = True

    async def put(self, key: str, data: Buffer) -> str | None:
        self._check()
        return await super().put(key, data)

    async def fetch(self, key: str) -> bytes:
        self._check()
        return await super().fetch(key)

    def _check(self) -> None:
        if self.away:
            raise StoreError("does not answer", away=True)


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    outbox = Outbox.make(tmp_path / "spill", "somewhere", quota=Quota(1 << 30), on_full=OnFull.BLOCK)
    yield outbox
    outbox.close()


async def test_object_whose_caller_is_cancelled_has_no_bytes_of_other_files(
    outbox: Outbox, tmp_path: Path
) -> None:
    store = HaltingStore()
    url = str(store.prefix / "large")
    await run_sync(lambda: outbox.append(url, [b"a" * _SIZE], new=True))
    await run_sync(outbox.complete, url)
    await run_sync((tmp_path / "other").write_bytes, b"b" * _SIZE)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upload_from, outbox, store, "large", _SIZE)
        await store.halted.wait()
        tasks.cancel_scope.cancel()
    others = [await run_sync(os.open, tmp_path / "other", os.O_RDONLY) for _ in range(8)]
    store.going_on.set()
    await store.aclose()

    for fd in others:
        os.close(fd)
    stored = await obstore.get_async(store.prefix.store, "place/large")
    assert bytes(await stored.bytes_async()) == b"a" * _SIZE


async def test_large_object_that_cannot_be_read_is_no_fault_of_the_store(outbox: Outbox) -> None:
    store = Store(Prefix.of(MemoryStore(), "place"))

    with pytest.raises(FileNotFoundError):
        await upload_from(outbox, store, "large", _SIZE)


async def test_uploader_whose_end_is_cancelled_uploads_nothing_more(outbox: Outbox) -> None:
    store = AbsentStore(Prefix.of(MemoryStore(), "place"))
    uploader, before = Uploader(store, outbox), asyncio.all_tasks()
    for key in ("first", "second", "third"):
        await uploader.upload(key, b"data")
    store.away = False

    with anyio.CancelScope() as scope:
        scope.cancel()
        await uploader.aclose()

    assert scope.cancelled_caught
    assert asyncio.all_tasks() == before
    assert uploader.backlog.waiting >= 2  # the first may have been on its way


async def test_objects_of_one_place_that_are_uploaded_at_once_have_one_store(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[MemoryStore] = []

    def make_client(*_: object) -> MemoryStore:
        made.append(MemoryStore())
        time.sleep(0.05)  # as reading profiles takes a while
        return made[-1]

    monkeypatch.setattr("dumpstream.objectstore.store.make_client", make_client)
    prefix = Prefix.parse("s3://bucket/place")
    urls = [f"{prefix}/files/{number}.zst" for number in range(8)]

    def fill() -> None:
        outbox.add_store(prefix)
        for url in urls:
            outbox.append(url, [b"data"], new=True)
            outbox.complete(url)

    await run_sync(fill)
    uploader = await run_sync(OutboxUploader, outbox, (), Patience())

    await asyncio.gather(*map(uploader.upload, urls))
    await uploader.aclose()

    assert len(made) == 1
