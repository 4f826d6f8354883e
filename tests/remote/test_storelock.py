from __future__ import annotations

import os
import socket
import threading
from contextlib import AsyncExitStack, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import anyio
import obstore
import pytest
from anyio.to_thread import run_sync
from obstore.store import LocalStore, MemoryStore
from tests.conftest import LIMIT_S

from dumpstream import DestinationError, DestinationInUseError, SinkError, StoreError
from dumpstream.objectstore.patience import Patience
from dumpstream.objectstore.store import Store
from dumpstream.remote.storelock import STORE_LOCK, StoreLock, find_lock, lock_text, take_store_lock
from dumpstream.sinks import SinkSettings, WholeFile
from dumpstream.sinks.objectstore import ObjectStoreSink
from dumpstream.sinks.resources import Resources
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from datetime import tzinfo
    from pathlib import Path
    from typing import Self

    from dumpstream.objectstore.store import Entry

pytestmark = pytest.mark.anyio

_OTHER = b'{"pid": 7, "host": "elsewhere"}'


class RacedStore(Store):
    """A store where another process takes the lock just after the first look."""

    def __init__(self) -> None:
        super().__init__(Prefix.of(MemoryStore(), "place"))
        self._looked = False

    def get_range(self, key: str, start: int, length: int) -> tuple[Entry, bytes]:
        try:
            return super().get_range(key, start, length)
        finally:
            if not self._looked:
                self._looked = True
                self.write(STORE_LOCK, b'{"pid": 7}')


@pytest.fixture
def store() -> Store:
    return Store(Prefix.of(MemoryStore(), "place"))


def test_lock_that_comes_between_the_look_and_the_write_is_not_broken() -> None:
    store = RacedStore()

    holder = take_store_lock(store, b'{"pid": 8}')

    assert holder is not None
    assert holder.pid == 7
    assert store.get(STORE_LOCK) == b'{"pid": 7}'


@pytest.mark.parametrize("stale", [False, True])
def test_lock_that_another_process_takes_over_first_is_not_broken(
    monkeypatch: pytest.MonkeyPatch, *, stale: bool
) -> None:
    store = RacedStore()
    Store(store.prefix).write(STORE_LOCK, b'{"pid": 6}')
    monkeypatch.setattr("dumpstream.remote.storelock.STALE_S", 0 if stale else 120)

    holder = take_store_lock(store, b'{"pid": 8}', left=None if stale else '{"pid": 6}')

    assert holder is not None
    assert holder.pid == 7
    assert store.get(STORE_LOCK) == b'{"pid": 7}'


def test_lock_of_a_process_that_is_gone_is_taken_over(store: Store) -> None:
    store.write(STORE_LOCK, b'{"pid": 7}')

    assert take_store_lock(store, lock_text().encode(), left='{"pid": 6}') is not None
    assert take_store_lock(store, b'{"pid": 8}', left='{"pid": 7}') is None
    assert find_lock(store) is not None
    assert store.get(STORE_LOCK) == b'{"pid": 8}'


class WrongClock(datetime):
    """The clock of a machine that is an hour fast."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(hours=1)


def test_lock_is_as_old_as_the_store_says(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumpstream.remote.storelock.datetime", WrongClock)
    store.write(STORE_LOCK, _OTHER)

    holder = take_store_lock(store, lock_text().encode())

    assert holder is not None
    assert holder.pid == 7
    assert [entry.key for entry in store.entries()] == [STORE_LOCK]


class ForgetfulStore(Store):
    """A store whose answers to writes are lost, so that they are written again."""

    def create(self, key: str, data: bytes) -> bool:
        super().create(key, data)
        return super().create(key, data)


def test_lock_that_was_written_twice_is_ones_own() -> None:
    store = ForgetfulStore(Prefix.of(MemoryStore(), "place"))

    assert take_store_lock(store, lock_text().encode()) is None


async def test_one_place_is_for_the_sink_of_one_capture(tmp_path: Path) -> None:
    place = Prefix.of(LocalStore(tmp_path), "place")
    settings = SinkSettings(directory=tmp_path)
    first, second, third = (ObjectStoreSink(place, settings) for _ in range(3))
    await first.prepare()

    with pytest.raises(
        DestinationInUseError, match=f"is being written by process {os.getpid()} on {socket.gethostname()}"
    ):
        await second.prepare()
    await second.aclose()
    await first.aclose()
    await third.prepare()
    await third.aclose()

    assert not (tmp_path / "place" / STORE_LOCK).exists()


async def test_silent_store_is_not_asked_for_the_lock_of_a_sink_without_patience(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never_put(store: Store, key: str, data: bytes) -> None:
        await store.requests.run("write", key, anyio.sleep_forever)

    patience = Patience()
    sink = ObjectStoreSink(store.prefix, SinkSettings(directory=tmp_path), Resources(patience=patience))
    await sink.prepare()
    monkeypatch.setattr(Store, "put", never_put)

    patience.limit(0.01)
    (refusal,) = await sink.put([WholeFile("name", b"data")])
    await sink.aclose()

    assert isinstance(refusal, SinkError)
    assert await run_sync(find_lock, store) is not None


async def test_captures_that_share_a_place_need_no_locks_of_their_own(store: Store, tmp_path: Path) -> None:
    lock = StoreLock(store.prefix)
    settings, resources = SinkSettings(directory=tmp_path), Resources(locks=[lock])
    async with lock.held():
        await run_sync(lock.take)

        for directory in ("rank-0", "rank-1"):
            sink = ObjectStoreSink(store.prefix / directory, settings, resources)
            await sink.prepare()
            await sink.aclose()
        there = [entry.key for entry in await run_sync(lambda: list(store.entries()))]

    assert there == [STORE_LOCK]


@pytest.mark.parametrize(
    ("other", "covered"),
    [("place", True), ("place/below", True), ("places", False), ("", False)],
)
def test_lock_covers_what_is_below_its_place(store: Store, other: str, *, covered: bool) -> None:
    lock = StoreLock(store.prefix)

    assert lock.covers(Prefix.of(store.prefix.store, other)) is covered
    assert not lock.covers(Prefix.of(MemoryStore(), other))


async def test_lock_that_a_renewal_has_written_is_taken(store: Store) -> None:
    lock = StoreLock(store.prefix)
    async with lock.held():
        await lock.confirm()
        await run_sync(lock.take)

    assert await run_sync(find_lock, store) is None


async def test_lock_is_written_again_while_it_is_held(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumpstream.remote.storelock._REFRESH_S", 0.01)
    lock = StoreLock(store.prefix)
    async with lock.held():
        await run_sync(lock.take)
        taken = (await run_sync(store.head, STORE_LOCK)).modified

        with anyio.fail_after(20):
            while (await run_sync(store.head, STORE_LOCK)).modified == taken:  # noqa: ASYNC110 - no event
                await anyio.sleep(0.002)

    assert await run_sync(find_lock, store) is None


async def test_block_that_fails_does_not_wait_for_a_renewal_that_gets_no_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answering = anyio.Event(), anyio.Event()

    async def get(*_: object) -> None:
        asked.set()
        with anyio.move_on_after(20):
            await answering.wait()

    monkeypatch.setattr(obstore, "get_async", get)
    monkeypatch.setattr("dumpstream.remote.storelock._REFRESH_S", 0.01)
    monkeypatch.setattr("dumpstream.remote.storelock.GRACE_S", 0.1)
    lock = StoreLock(store.prefix)
    await run_sync(lock.take)
    began = anyio.current_time()

    with pytest.raises(DestinationError):  # noqa: PT012 - what it raises is the point
        async with lock.held():
            await asked.wait()
            raise DestinationError(store.prefix, "cannot be used")

    assert anyio.current_time() - began < 15
    answering.set()


async def test_lock_that_is_taken_while_it_is_looked_for_is_not_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, fetch = StoreLock(store.prefix), Store.fetch

    async def fetch_early(store: Store, key: str) -> bytes:
        try:
            return await fetch(store, key)
        finally:
            await run_sync(lock.take)

    monkeypatch.setattr(Store, "fetch", fetch_early)
    async with lock.held():
        await lock.confirm()

        with lock.writing():
            pass


class WaitingStore(Store):
    """A store that answers a request for *slow* when the test says so."""

    def __init__(self, prefix: Prefix, lock: StoreLock | None = None, *, slow: str) -> None:
        super().__init__(prefix, lock=lock)
        self._slow = slow
        self.asked, self.answering = threading.Event(), threading.Event()

    def _path(self, key: str) -> str:
        if key == self._slow:
            self.asked.set()
            assert self.answering.wait(40)
        return super()._path(key)


@contextmanager
def left_behind(store: WaitingStore, function: Callable[[], object]) -> Iterator[None]:
    """Have *function* wait for *store* in a thread while the block runs, and come to its end then."""
    thread = threading.Thread(target=function)
    thread.start()
    assert store.asked.wait(40)
    yield
    store.answering.set()
    thread.join()


async def test_lock_is_not_given_up_while_a_thread_that_was_left_behind_still_writes(store: Store) -> None:
    lock = StoreLock(store.prefix)
    slow = WaitingStore(store.prefix, lock, slow="slow")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(lock.held())
        await run_sync(lock.take)
        with left_behind(slow, lambda: slow.write("slow", b"")):
            await stack.aclose()

    assert {entry.key for entry in await run_sync(lambda: list(store.entries()))} == {"slow", STORE_LOCK}


async def test_thread_that_was_left_behind_writes_nothing_once_the_lock_is_given_up(store: Store) -> None:
    lock = StoreLock(store.prefix)
    locked = Store(store.prefix, lock=lock)
    async with lock.held():
        await run_sync(lock.take)

    for write in (lambda: locked.write("key", b""), lambda: locked.delete("key")):
        with pytest.raises(StoreError, match="has ended"):
            await run_sync(write)
    with pytest.raises(StoreError, match="has ended"):
        await locked.put("key", b"")
    assert await run_sync(lambda: list(store.entries())) == []


async def test_lock_that_is_taken_after_its_block_has_ended_is_released(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, slow = StoreLock(store.prefix), WaitingStore(store.prefix, slow=STORE_LOCK)
    monkeypatch.setattr("dumpstream.remote.storelock.Store", lambda *_, **__: slow)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(lock.held())
        with left_behind(slow, lock.take):
            await stack.aclose()

    assert await run_sync(lambda: list(store.entries())) == []


@pytest.mark.parametrize("other", [_OTHER, None])
async def test_process_that_has_lost_the_lock_writes_nothing_more(
    store: Store, monkeypatch: pytest.MonkeyPatch, other: bytes | None
) -> None:
    monkeypatch.setattr("dumpstream.remote.storelock._SURE_S", 0)
    lock = StoreLock(store.prefix)
    locked = Store(store.prefix, lock=lock)
    async with lock.held():
        await run_sync(lock.take)
        await locked.put("before", b"")
        if other is None:
            await run_sync(store.delete, STORE_LOCK)
        else:
            await run_sync(store.write, STORE_LOCK, other)

        with pytest.raises(StoreError, match="took it over") as failure:
            await locked.put("after", b"")
        with pytest.raises(StoreError, match="took it over"):
            await run_sync(locked.write, "after", b"")

    there = {entry.key for entry in await run_sync(lambda: list(store.entries()))}
    assert there == ({"before"} if other is None else {"before", STORE_LOCK})
    assert ("process 7 on elsewhere" in str(failure.value)) is (other is not None)
    assert not failure.value.away


async def test_lost_lock_is_logged_though_nothing_is_written(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dumpstream.remote.storelock._REFRESH_S", 0.01)
    lock = StoreLock(store.prefix)
    async with lock.held():
        await run_sync(lock.take)
        with anyio.fail_after(LIMIT_S):
            while not caplog.messages:
                # Again and again: the holder may be about to renew what it has just read.
                await run_sync(store.write, STORE_LOCK, _OTHER)
                await anyio.sleep(0.01)

    (message,) = caplog.messages
    assert "process 7 on elsewhere took it over" in message
    assert message.endswith("; nothing more is stored there")


async def test_object_does_not_appear_if_the_lock_is_lost_while_it_is_sent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpstream.remote.storelock._SURE_S", 0)
    lock = StoreLock(store.prefix)
    locked = Store(store.prefix, lock=lock)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        await run_sync(store.write, STORE_LOCK, _OTHER)

    async with lock.held():
        await run_sync(lock.take)
        with pytest.raises(StoreError, match="process 7 on elsewhere took it over"):
            await locked.upload("large", pieces())

    assert [entry.key for entry in await run_sync(lambda: list(store.entries()))] == [STORE_LOCK]
