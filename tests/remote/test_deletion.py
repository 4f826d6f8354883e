"""What `force` deletes in a store: what the capture made, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from anyio.to_thread import run_sync
from obstore.store import MemoryStore

from dumpstream import DestinationError, DestinationInUseError
from dumpstream.remote.storelock import lock_text
from dumpstream.system.location import Prefix

from .bucket import Bucket
from .captures import capturing, push

if TYPE_CHECKING:
    from typing import Any

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def capture(store: MemoryStore, name: str = "a", **options: Any) -> Any:
    async with capturing(Prefix.of(store, "run"), **options) as capture:
        await run_sync(push, name, b"data")
    return capture


async def test_objects_that_the_journal_does_not_name_stay_and_are_told(store: MemoryStore) -> None:
    others = {"files/other.zst", "packs/0123abcd-000001.zip", "stats/x.parquet", "journal/notes"}
    await capture(store, "first")
    for other in others:
        await store.put_async(f"run/{other}", b"not of the capture")

    forced = await capture(store, "second", force=True)

    assert set(Bucket(store, "run").keys()) == {"files/second.dsz", "manifest.json", "journal.jsonl"} | others
    assert forced.remains.count == 4
    assert "files/other.zst" in str(forced.remains)


async def test_packs_that_a_killed_run_had_not_recorded_are_deleted(store: MemoryStore) -> None:
    await capture(store, pack=True)
    (pack,) = [key for key in Bucket(store, "run").keys() if key.startswith("packs/")]  # noqa: SIM118 - a method
    await store.put_async(f"run/{pack.replace('000001', '000002')}", b"")

    forced = await capture(store, "b", force=True)

    assert set(Bucket(store, "run").keys()) == {"files/b.dsz", "manifest.json", "journal.jsonl"}
    assert forced.remains.count == 0


async def test_a_prefix_with_another_capture_inside_is_refused(store: MemoryStore) -> None:
    await capture(store)
    await store.put_async("run/files/inner/manifest.json", b"")
    before = set(Bucket(store, "run").keys())

    with pytest.raises(DestinationError, match="another capture inside, in files/inner/; move it"):
        await capture(store, force=True)

    assert set(Bucket(store, "run").keys()) == before


async def test_a_prefix_that_a_sink_of_another_capture_writes_to_is_refused(store: MemoryStore) -> None:
    await capture(store)
    await store.put_async("run/files/sub/lock.json", lock_text().encode())

    with pytest.raises(DestinationInUseError, match="run/files/sub is being written by process"):
        await capture(store, force=True)
