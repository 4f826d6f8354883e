"""Captures into stores that are given as objects."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
from contextlib import asynccontextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

import anyio
import obstore
import pytest
from anyio.to_thread import run_sync
from obstore.store import LocalStore, MemoryStore

from dumpstream import (
    DestinationError,
    OnFull,
    RingOptions,
    RingSource,
    StoredCapture,
    StoreError,
    _native,
    open_capture,
)
from dumpstream.archive.rows import Outcome
from dumpstream.remote.destination import RemoteDestination
from dumpstream.run.preparation import make_outbox
from dumpstream.run.request import Request
from dumpstream.sinks.resources import Resources
from dumpstream.stages.options import StageOptions
from dumpstream.system.location import Prefix

from .bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.conftest import CaptureBuilder

    from dumpstream import Capture
    from dumpstream.stages.options import CaptureOptions

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where captures keep their local part."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "dumpstream"


def push(name: str, data: bytes) -> None:
    buffer = ctypes.create_string_buffer(data, len(data) or 1)
    assert _native.push(os.fsencode(name), ctypes.addressof(buffer), len(data), True, -1, 0) == 0


@asynccontextmanager
async def capturing(destination: Any, **options: Any) -> AsyncIterator[Capture]:
    source = RingSource(RingOptions(buffer_bytes=16 << 20))
    async with open_capture(destination, source=source, **options) as capture:
        yield capture


def left_in(state: Path) -> list[str]:
    return sorted(path.name for path in state.glob("*"))


async def test_capture_in_a_store_leaves_nothing_on_this_machine(state: Path) -> None:
    store = MemoryStore()

    async with capturing(Prefix.of(store, "run")) as capture:
        during = await run_sync(left_in, state)
        await run_sync(push, "a", b"data")

    assert Bucket(store, "run").files() == {"a": b"data"}
    assert str(capture.path) == "object://MemoryStore/run"
    assert len(during) == 1
    assert left_in(state) == []


async def test_journal_in_the_store_is_a_prefix_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumpstream.remote.segments._SEGMENT_S", 0.01)
    store = MemoryStore()
    bucket = Bucket(store, "run")
    seen: list[list[dict[str, Any]]] = []

    async with capturing(Prefix.of(store, "run")) as capture:
        for number in range(5):
            await run_sync(push, f"file{number}", b"data")
            with anyio.fail_after(20):
                while capture.report.files <= number or capture.report.waiting:  # noqa: ASYNC110 - no event
                    await anyio.sleep(0.002)
            seen.append(await run_sync(bucket.rows))

    final = (await run_sync(bucket.rows))[1:]
    assert [sum(row["type"] == "file" for row in rows) for rows in seen] == [1, 2, 3, 4, 5]
    assert all(rows == final[: len(rows)] for rows in seen)
    assert final[-1]["type"] == "end"


async def test_place_with_something_else_in_it_is_refused() -> None:
    store = MemoryStore()
    await store.put_async("run/other", b"")

    with pytest.raises(DestinationError, match="is not empty and holds no capture"):
        async with capturing(Prefix.of(store, "run")):
            pass

    assert list(Bucket(store, "run").keys()) == ["other"]


async def test_capture_that_is_there_is_not_overwritten() -> None:
    store = MemoryStore()
    async with capturing(store):
        pass

    with pytest.raises(DestinationError, match=r"already holds a capture.*--append"):
        async with capturing(store):
            pass
    async with capturing(store, append=True):
        pass

    manifest = json.loads(bytes((await store.get_async("manifest.json")).bytes()))
    assert [run["outcome"] for run in manifest["runs"]] == ["finished", "finished"]


@pytest.mark.parametrize("cut_off", ["", '{"type": "fi'])
async def test_run_added_to_a_directory_that_was_copied_to_a_store_keeps_its_files(
    builder: CaptureBuilder, cut_off: str
) -> None:
    builder.add("a", b"first")
    builder.write(cut_off, end="")
    place = Prefix.of(LocalStore(builder.interrupt()))

    async with capturing(place, append=True):
        await run_sync(push, "b", b"second")

    stored = await run_sync(StoredCapture.open, place)
    assert [file.name for file in await run_sync(list, stored.files)] == ["a", "b"]
    assert (stored.torn, stored.unreadable_lines) == (bool(cut_off), [])


async def test_stale_lock_is_taken_over_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await store.put_async("lock.json", b'{"pid": 7}')

    with pytest.raises(DestinationError, match="is being written by process 7"):
        async with capturing(store):
            pass
    monkeypatch.setattr("dumpstream.remote.storelock.STALE_S", 0)
    async with capturing(store):
        pass

    assert "lock.json" not in [meta["path"] for page in store.list() for meta in page]


async def test_segments_that_a_merge_left_are_deleted_by_the_next() -> None:
    store = MemoryStore()
    async with capturing(store):
        await run_sync(push, "a", b"first")
    await store.put_async("journal/000001.jsonl", b"")

    async with capturing(store, append=True):
        await run_sync(push, "b", b"second")

    stored = await run_sync(StoredCapture.open, store)
    assert [file.name for file in await run_sync(list, stored.files)] == ["a", "b"]
    assert not [meta["path"] for page in store.list("journal") for meta in page]


async def test_store_beside_a_directory_gets_every_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store", mkdir=True)

    async with capturing(tmp_path / "run", sinks=["zstd:", store]):
        await run_sync(push, "a", b"data")

    assert len(list((tmp_path / "store" / "files").iterdir())) == 1


async def test_error_names_the_journal_if_the_store_falls_silent_before_it_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> int:
        raise StoreError("cannot list the journal", away=True)

    monkeypatch.setattr("dumpstream.remote.destination.last_segment", fail)
    write = RemoteDestination._write

    def write_or_fail(destination: RemoteDestination) -> None:
        if destination.manifest.runs[-1].outcome is not None:
            raise DestinationError(destination.path, "has not got its manifest")
        write(destination)

    monkeypatch.setattr(RemoteDestination, "_write", write_or_fail)

    with pytest.raises(DestinationError, match="cannot list the journal"):
        async with capturing(MemoryStore()):
            pass


async def test_end_of_a_run_that_a_silent_store_does_not_get_is_left_to_an_upload(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    answering = Event()
    end_run = RemoteDestination.end_run

    def wait(destination: RemoteDestination, outcome: Outcome) -> None:
        answering.wait(60)
        end_run(destination, outcome)

    monkeypatch.setattr(RemoteDestination, "end_run", wait)

    try:
        with pytest.raises(DestinationError, match="has not got its manifest: the store does not answer"):
            async with capturing(MemoryStore()) as capture:
                capture.hurry(0.01)
    finally:
        answering.set()

    assert list((tmp_path / "dumpstream").glob("*/manifest.json"))


async def test_cancelled_capture_says_what_was_lost() -> None:
    store = MemoryStore()

    with anyio.CancelScope() as scope:
        async with capturing(store) as capture:
            await run_sync(push, "a", b"data")
            with anyio.fail_after(20):
                while not capture.report.files:  # noqa: ASYNC110 - no event
                    await anyio.sleep(0.002)
            scope.cancel()

    rows = [json.loads(line) for line in bytes((await store.get_async("journal.jsonl")).bytes()).splitlines()]
    assert [row["type"] for row in rows] == ["merged", "begin", "file", "end"]
    assert rows[-1]["outcome"] == "cancelled"


async def test_capture_whose_journal_cannot_be_opened_leaves_nothing_at_work(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = MemoryStore()
    monkeypatch.setattr("aiofiles.open", fail)
    before = asyncio.all_tasks()

    with pytest.raises(DestinationError, match="No space left"):
        async with capturing(store):
            pytest.fail("entered")

    assert asyncio.all_tasks() == before
    assert await run_sync(left_in, state) == []
    (run,) = json.loads(bytes((await store.get_async("manifest.json")).bytes()))["runs"]
    assert run["outcome"] == "failed"


async def test_capture_that_is_cancelled_at_its_end_does_not_wait_for_a_store_that_does_not_answer(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answering, original = anyio.Event(), anyio.Event(), obstore.put_async

    async def put(store: Any, path: str, *args: Any, **options: Any) -> Any:
        if path.startswith("journal/"):
            asked.set()
            with anyio.move_on_after(20):
                await answering.wait()
        return await original(store, path, *args, **options)

    async def capture() -> None:
        async with capturing(MemoryStore()):
            await run_sync(push, "a", b"data")

    monkeypatch.setattr(obstore, "put_async", put)
    monkeypatch.setattr("dumpstream.run.session._CLOSE_S", 0.1)
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(capture)
        await asked.wait()
        await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()
    seconds = anyio.current_time() - began
    answering.set()
    await anyio.sleep(0.1)

    assert seconds < 15
    assert len(await run_sync(left_in, state)) == 1  # with the lines that the store does not have


@pytest.mark.parametrize(
    ("of_ring", "given", "of_spill"),
    [("drop", {}, "drop"), ("block", {}, "block"), ("drop", {"on_full": "block"}, "block")],
)
async def test_full_spill_does_what_the_full_ring_of_the_source_does_unless_told_otherwise(
    tmp_path: Path, of_ring: str, given: CaptureOptions, of_spill: str
) -> None:
    source = RingSource(RingOptions(buffer_bytes=1 << 20, on_full=OnFull(of_ring)))
    options: CaptureOptions = {"spill": tmp_path, **given}
    stages = StageOptions.divide(options, directory=tmp_path, with_ring=False)
    request = Request(destination=Prefix.of(MemoryStore()), stages=stages, source=source)

    outbox = await run_sync(make_outbox, request, Resources())

    assert outbox is not None
    await outbox.aclose()
    assert outbox.on_full == of_spill
