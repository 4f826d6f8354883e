from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from anyio.to_thread import run_sync
from obstore.store import MemoryStore

from dumpstream._errors import (
    FileRefusedError,
    SinkError,
    StoreError,
)
from dumpstream.custody import Stage
from dumpstream.objectstore.store import Store
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.quota import Quota
from dumpstream.remote.uploader import Uploader
from dumpstream.source import OnFull
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from typing_extensions import Buffer


pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class MoodyStore(Store):
    """A store that can be told to go away, or to refuse."""

    def __init__(self) -> None:
        super().__init__(Prefix.of(MemoryStore(), "place"))
        self.error: StoreError | None = None
        self.looks = 0

    async def fetch(self, key: str) -> bytes:
        self.looks += 1
        self._check()
        return await super().fetch(key)

    async def put(self, key: str, data: Buffer) -> str | None:
        self._check()
        return await super().put(key, data)

    async def upload(self, key: str, pieces: AsyncIterator[Buffer]) -> str | None:
        async def until_away() -> AsyncIterator[Buffer]:
            async for piece in pieces:
                self._check()
                yield piece

        self._check()
        return await super().upload(key, until_away())

    def go_away(self) -> None:
        self.error = StoreError("does not answer", away=True)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MoodyStore:
    monkeypatch.setattr("dumpstream.objectstore.backoff._FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("dumpstream.remote.backlog._LAST_WAIT_S", 0.05)
    return MoodyStore()


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    outbox = Outbox.make(tmp_path, "s3://bucket/run", quota=Quota(100), on_full=OnFull.BLOCK)
    yield outbox
    outbox.close()


def objects(outbox: Outbox) -> list[Path]:
    return list(outbox.path.glob("objects/*"))


async def until(condition: Callable[[], Any]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - has no event of its own
            await anyio.sleep(0.002)


async def test_object_waits_on_the_disk_until_the_store_is_back(store: MoodyStore, outbox: Outbox) -> None:
    uploader = Uploader(store, outbox)
    store.go_away()

    uploaded = [await uploader.upload(f"key{number}", b"data%d" % number) for number in range(5)]
    custodies = [one.custody for one in uploaded]
    assert [custody and custody.stage for custody in custodies] == [Stage.KEPT] * 5
    assert len(objects(outbox)) == 5
    store.error = None
    await until(lambda: not uploader.backlog.waiting)

    assert [custody and custody.stage for custody in custodies] == [Stage.STORED] * 5
    assert [await run_sync(store.get, f"key{number}") for number in range(5)] == [
        b"data%d" % number for number in range(5)
    ]
    assert objects(outbox) == []
    assert outbox.quota.free == 100
    await uploader.aclose()


async def test_without_an_outbox_a_store_that_is_away_is_an_error(store: MoodyStore) -> None:
    uploader = Uploader(store)
    store.go_away()

    with pytest.raises(SinkError, match="does not answer, or give a --spill"):
        await uploader.upload("key", b"data")
    await uploader.aclose()


async def test_refusal_is_an_error_also_with_an_outbox(store: MoodyStore, outbox: Outbox) -> None:
    uploader = Uploader(store, outbox)
    store.error = StoreError("refuses (403)")

    with pytest.raises(SinkError, match="403"):
        await uploader.upload("key", b"data")

    assert objects(outbox) == []
    await uploader.aclose()


async def test_store_that_comes_back_refusing_ends_the_capture_and_keeps_the_object(
    store: MoodyStore, outbox: Outbox
) -> None:
    uploader = Uploader(store, outbox)
    store.go_away()
    await uploader.upload("key", b"data")
    store.error = StoreError("refuses (403)")

    async def refused() -> bool:
        try:
            uploader.backlog.away  # noqa: B018 - raises
        except SinkError:
            return True
        await anyio.sleep(0.002)
        return False

    with anyio.fail_after(20):
        while not await refused():
            await checkpoint()

    assert len(objects(outbox)) == 1
    with pytest.raises(SinkError, match="refuses"):
        await uploader.aclose()


async def test_full_spill_makes_a_blocking_capture_wait_for_room(
    store: MoodyStore, outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    uploader = Uploader(store, outbox)
    store.go_away()
    await uploader.upload("first", bytes(90))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(uploader.upload, "second", bytes(20))
        await anyio.wait_all_tasks_blocked()
        assert len(objects(outbox)) == 1
        assert [text.partition("is full, and ")[2] for text in caplog.messages] == [
            "the capture waits until the store is back; raise --spill-bytes"
        ]
        store.error = None

    await until(lambda: not uploader.backlog.waiting)
    assert len(await run_sync(store.get, "second")) == 20
    await uploader.aclose()


async def test_full_spill_refuses_the_file_of_a_dropping_capture(
    store: MoodyStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = await run_sync(
        lambda: Outbox.make(tmp_path, "s3://bucket/run", quota=Quota(100), on_full=OnFull.DROP)
    )
    uploader = Uploader(store, outbox)
    store.go_away()
    await uploader.upload("first", bytes(90))

    with pytest.raises(FileRefusedError, match="raise --spill-bytes") as caught:
        await uploader.upload("second", bytes(20))
    with pytest.raises(FileRefusedError):
        await uploader.upload("third", bytes(20))

    assert caught.value.cause == "spill_full"
    assert ["files are lost until the store is back" in text for text in caplog.messages] == [True]
    await uploader.aclose()
    await run_sync(outbox.close)


async def test_object_larger_than_the_spill_waits_for_the_store_itself(
    store: MoodyStore, outbox: Outbox
) -> None:
    uploader = Uploader(store, outbox)
    store.go_away()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(uploader.upload, "key", bytes(101))
            await until(lambda: store.looks > 2)
            store.error = None

    assert len(await run_sync(store.get, "key")) == 101
    await uploader.aclose()


async def test_deliveries_that_fill_the_spill_together_go_on_when_the_store_is_back(
    store: MoodyStore, outbox: Outbox
) -> None:
    uploader = Uploader(store, outbox)
    store.go_away()
    uploader.backlog.note(StoreError("does not answer", away=True))

    async def upload(key: str) -> None:
        upload = uploader.begin_large(key)
        for number in range(4):
            await upload.send([bytes([number]) * 25])
        await upload.finish()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(upload, "one")
            tasks.start_soon(upload, "other")
            await until(lambda: not outbox.quota.free)
            store.error = None
    await until(lambda: not uploader.backlog.waiting)

    whole = b"".join(bytes([number]) * 25 for number in range(4))
    assert [await run_sync(store.get, key) for key in ("one", "other")] == [whole, whole]
    assert objects(outbox) == []
    assert outbox.quota.free == 100
    await uploader.aclose()


async def test_store_that_is_back_is_used_although_nothing_had_fitted_into_the_spill(
    store: MoodyStore, tmp_path: Path
) -> None:
    outbox = await run_sync(
        lambda: Outbox.make(tmp_path, "s3://bucket/run", quota=Quota(9), on_full=OnFull.DROP)
    )
    uploader = Uploader(store, outbox)
    store.go_away()
    with pytest.raises(FileRefusedError):
        await uploader.upload("lost", bytes(10))
    store.error = None
    await until(lambda: not uploader.backlog.away)

    uploaded = await uploader.upload("key", bytes(10))

    assert uploaded.custody is None
    assert len(await run_sync(store.get, "key")) == 10
    await uploader.aclose()
    await run_sync(outbox.close)


@pytest.mark.parametrize(("on_full", "error"), [(OnFull.BLOCK, SinkError), (OnFull.DROP, FileRefusedError)])
async def test_delivery_that_has_outgrown_the_spill_when_the_store_goes_is_lost_as_the_policy_says(
    store: MoodyStore, tmp_path: Path, on_full: OnFull, error: type[SinkError]
) -> None:
    outbox = await run_sync(lambda: Outbox.make(tmp_path, "s3://bucket/run", quota=Quota(9), on_full=on_full))
    uploader = Uploader(store, outbox)

    upload = uploader.begin_large("large")
    store.go_away()
    await upload.send([bytes(10)])
    with pytest.raises(SinkError, match="the spill was too full") as caught:
        await upload.finish()

    assert type(caught.value) is error
    await upload.abort()
    await uploader.aclose()
    await run_sync(outbox.close)


async def test_what_a_full_disk_has_of_an_object_is_removed(store: MoodyStore, outbox: Outbox) -> None:
    uploader = Uploader(store, outbox)
    store.go_away()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, limits[1]))
    try:
        with pytest.raises(SinkError, match="the spill cannot be used"):
            await uploader.upload("key", bytes(90))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)

    assert objects(outbox) == []
    assert outbox.quota.free == 100
    await uploader.aclose()


async def test_store_that_goes_away_in_the_middle_of_a_delivery_gets_all_of_it_later(
    store: MoodyStore, tmp_path: Path
) -> None:
    outbox = await run_sync(
        lambda: Outbox.make(tmp_path, "s3://bucket/run", quota=Quota(64 << 20), on_full=OnFull.BLOCK)
    )
    uploader = Uploader(store, outbox)
    pieces = [bytes([number]) * (3 << 20) for number in range(6)]

    upload = uploader.begin_large("large")
    for number, piece in enumerate(pieces):
        if number == 3:
            store.go_away()
        await upload.send([piece])
    uploaded = await upload.finish()
    kept = uploaded.custody is not None and uploaded.custody.stage
    store.error = None
    await until(lambda: not uploader.backlog.waiting)

    assert kept is Stage.KEPT
    assert await run_sync(store.get, "large") == b"".join(pieces)
    await uploader.aclose()
    await run_sync(outbox.close)


async def test_finished_object_leaves_nothing_on_the_disk(store: MoodyStore, tmp_path: Path) -> None:
    outbox = await run_sync(
        lambda: Outbox.make(tmp_path, "s3://bucket/run", quota=Quota(64 << 20), on_full=OnFull.BLOCK)
    )
    uploader = Uploader(store, outbox)

    finished, aborted = uploader.begin_large("finished"), uploader.begin_large("aborted")
    for upload in (finished, aborted):
        await upload.send([bytes(9 << 20)])
    uploaded = await finished.finish()
    await aborted.abort()

    assert uploaded.custody is None
    assert [entry.key for entry in await run_sync(lambda: list(store.entries()))] == ["finished"]
    assert objects(outbox) == []
    assert outbox.quota.free == outbox.quota.capacity
    await uploader.aclose()
    await run_sync(outbox.close)


async def test_delivery_that_outgrows_the_spill_goes_on_without_it(store: MoodyStore, outbox: Outbox) -> None:
    uploader = Uploader(store, outbox)

    upload = uploader.begin_large("large")
    await upload.send([bytes(60)])
    await upload.send([bytes(60)])
    await upload.finish()

    assert len(await run_sync(store.get, "large")) == 120
    assert outbox.quota.free == 100
    await uploader.aclose()
