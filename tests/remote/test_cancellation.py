"""An upload that is cancelled wherever it waits, and repeated."""

from __future__ import annotations

import os
import shutil
from types import coroutine
from typing import TYPE_CHECKING, Any

import anyio
import obstore
import pytest
from anyio.to_thread import run_sync
from obstore.store import MemoryStore

from dumpstream.remote.outbox import Outbox
from dumpstream.remote.reconciliation import reconcile

from .bucket import Bucket
from .captures import capturing, contents, found, leave_behind, push

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from pathlib import Path

pytestmark = pytest.mark.anyio

#: What is larger goes out in parts.
_PART_BYTES = 500


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    """A place in memory that has a URL."""
    bucket = Bucket(MemoryStore(), "run")
    monkeypatch.setattr("dumpstream.objectstore.store.make_client", lambda *_: bucket.client)
    monkeypatch.setattr("dumpstream.remote.spilled.PART_BYTES", _PART_BYTES)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return bucket


def copy_of(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    for page in obstore.list(store):
        for meta in page:
            obstore.put(copy, meta["path"], obstore.get(store, meta["path"]).bytes())
    return copy


@coroutine
def counted(awaited: Coroutine[Any, Any, object], call: Callable[[int], None]) -> Generator[Any, Any, None]:
    """Await it, and call *call* with how often it has waited, each time."""
    step, value, waits = awaited.send, None, 0
    while True:
        try:
            future = step(value)
        except StopIteration:
            return
        waits += 1
        call(waits)
        try:
            step, value = awaited.send, (yield future)
        except BaseException as exc:  # noqa: BLE001 - it is for the caller
            step, value = awaited.throw, exc


async def upload(path: Path, *, cancel_at: int = 0) -> bool:
    """Upload what waits at *path*, until it has waited so often; return whether it came to its end."""
    outbox = await run_sync(Outbox.open, path)
    with anyio.CancelScope() as scope:
        await counted(reconcile(outbox), lambda waits: scope.cancel() if waits == cancel_at else None)
    await run_sync(outbox.close)
    return not scope.cancelled_caught


async def test_upload_may_be_cancelled_wherever_it_waits_and_loses_and_doubles_nothing(
    bucket: Bucket, tmp_path: Path
) -> None:
    files = {"taken": b"first", "small": os.urandom(99), "large": os.urandom(3 * _PART_BYTES)}
    async with capturing(bucket.url):
        pass
    await run_sync(leave_behind, tmp_path / "left", bucket, files)
    async with capturing(bucket.url, append=True):
        await run_sync(push, "taken", b"second")
    (left,) = found(tmp_path, "left/*")
    before = bucket.client
    expected = {f"files/{name}.dsz" for name in (*files, "taken.2")} | {"journal.jsonl", "manifest.json"}
    whole, cancel_at = False, 0

    while not whole:
        cancel_at += 1
        bucket.client = await run_sync(copy_of, before)
        path = await run_sync(shutil.copytree, left, tmp_path / str(cancel_at) / left.name)
        whole = await upload(path, cancel_at=cancel_at)
        locked = "lock.json" in bucket.keys()  # noqa: SIM118 - a method of the test's own
        again = whole or await upload(path)

        assert (again, locked, path.exists()) == (True, False, False)
        assert contents(bucket) == sorted([*files.items(), ("taken", b"second")])
        assert set(bucket.keys()) == expected
