"""A collector whose captures go to a store that is given as an object."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.to_thread import run_sync
from obstore.store import LocalStore, MemoryStore
from tests.conftest import LIMIT_S
from tests.remote.bucket import Bucket

from dumpstream import (
    Collector,
    DestinationError,
    DumpstreamError,
    RingOptions,
    RingSource,
    open_capture,
    open_collector,
    recover,
)
from dumpstream.outside.agent import target_environment
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.outside.conftest import Outside

pytestmark = pytest.mark.anyio

_TOTAL = 16 << 20


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where captures keep their local part."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dumpstream"


@asynccontextmanager
async def collecting(destination: Any, **options: Any) -> AsyncIterator[Collector]:
    async with open_collector(destination, **{"buffer_bytes": _TOTAL, **options}) as collector:
        yield collector


async def run_job(collector: Collector, outside: Outside, rank: int | None = None) -> None:
    """Run a job that joins *collector*, until all of it is captured."""
    environment = {**os.environ} if rank is None else {**os.environ, "RANK": str(rank)}
    joined = await run_sync(target_environment, collector.socket_path, environment)
    await anyio.run_process(outside.job, env=joined, stdout=subprocess.DEVNULL)
    with anyio.fail_after(LIMIT_S):
        await collector.idle()


def manifest_at(store: Any, key: str) -> Any:
    return json.loads(Bucket(store, key).get("manifest.json"))


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*"))


async def test_every_process_has_a_capture_below_the_prefix_and_nothing_stays_here(
    outside: Outside, state: Path
) -> None:
    store = MemoryStore()

    async with collecting(Prefix.of(store, "run")) as collector:
        during = await run_sync(names_in, state)
        async with anyio.create_task_group() as tasks:
            for rank in range(2):
                tasks.start_soon(run_job, collector, outside, rank)

    manifest = manifest_at(store, "run")
    processes = {process["directory"]: process["ending"] for process in manifest["processes"]}
    assert processes == {"rank-0": "exit code 0", "rank-1": "exit code 0"}
    for directory in processes:
        assert len(Bucket(store, f"run/{directory}").files()) == 16
        assert manifest_at(store, f"run/{directory}")["runs"][0]["outcome"] == "finished"
    assert collector.whole
    assert not collector.report.waiting
    assert len(during) == 1
    assert names_in(state) == []
    assert not [key for key in Bucket(store, "run").keys() if key.endswith("lock.json")]  # noqa: SIM118 - no dict


async def test_packs_of_each_process_are_its_own(outside: Outside) -> None:
    store = MemoryStore()

    async with collecting(Prefix.of(store, "run"), pack=True) as collector:
        await run_job(collector, outside, 0)
        await run_job(collector, outside, 1)

    for directory in ("rank-0", "rank-1"):
        (run,) = manifest_at(store, f"run/{directory}")["runs"]
        assert run["config"] == json.loads(await run_sync(outside.config.read_text))
        bucket = Bucket(store, f"run/{directory}")
        assert len(bucket.files()) == 16
        assert [key.partition("/")[0] for key in bucket.keys()].count("packs") == 1  # noqa: SIM118 - no dict


async def test_appended_processes_get_directories_of_their_own(outside: Outside) -> None:
    store = MemoryStore()
    async with collecting(Prefix.of(store, "run")) as collector:
        await run_job(collector, outside, 3)

    with pytest.raises(DestinationError, match=r"already holds a capture.*--append"):
        async with collecting(Prefix.of(store, "run")):
            pytest.fail("was entered")
    async with collecting(Prefix.of(store, "run"), append=True) as collector:
        await run_job(collector, outside, 3)

    directories = [process["directory"] for process in manifest_at(store, "run")["processes"]]
    assert directories == ["rank-3", "rank-3.2"]
    assert len(Bucket(store, "run/rank-3").files()) == len(Bucket(store, "run/rank-3.2").files()) == 16


async def test_force_deletes_the_captures_of_all_processes_and_nothing_else(outside: Outside) -> None:
    store = MemoryStore()
    async with collecting(Prefix.of(store, "run")) as collector:
        await run_job(collector, outside, 3)
    await store.put_async("run/notes/mine", b"")

    async with collecting(Prefix.of(store, "run"), force=True):
        pass

    assert sorted(Bucket(store, "run").keys()) == ["manifest.json", "notes/mine"]
    assert manifest_at(store, "run")["processes"] == []


async def test_runs_and_processes_do_not_mix(outside: Outside) -> None:
    store = MemoryStore()
    async with collecting(Prefix.of(store, "run")) as collector:
        await run_job(collector, outside)

    source = RingSource(RingOptions(buffer_bytes=1 << 20))
    with pytest.raises(DestinationError, match="holds the captures of several processes"):
        async with open_capture(Prefix.of(store, "run"), source=source, append=True):
            pytest.fail("was entered")


async def test_sinks_with_a_place_of_their_own_get_one_per_process(outside: Outside, tmp_path: Path) -> None:
    store = MemoryStore()

    async with collecting(
        Prefix.of(store, "run"), sinks=["zstd:", f"stats:{tmp_path / 'stats'}?format=csv"]
    ) as collector:
        await run_job(collector, outside, 0)
        await run_job(collector, outside, 1)

    assert collector.whole
    assert names_in(tmp_path / "stats") == ["rank-0", "rank-1"]
    keys = Bucket(store, "run/rank-1").keys()
    assert sum(key.startswith("files/") for key in keys) == 16


@pytest.mark.parametrize("sink", ["nosuch:", "s3:///"])
async def test_a_sink_that_no_process_could_have_is_refused_before_a_process_joins(
    sink: str, state: Path
) -> None:
    store = MemoryStore()

    with pytest.raises(DumpstreamError):
        async with collecting(Prefix.of(store, "run"), sinks=[sink]):
            pytest.fail("was entered")

    assert not [meta for page in store.list() for meta in page]
    assert names_in(state) == []


async def test_rings_in_files_are_for_directories(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="buffer_file is for captures in directories"):
        async with collecting(MemoryStore(), buffer_file=tmp_path / "rings"):
            pytest.fail("was entered")
    with pytest.raises(DestinationError, match="dumpstream upload"):
        await recover("s3://bucket/run")


async def test_a_directory_that_another_capture_has_in_the_store_is_not_taken(
    outside: Outside, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "store", mkdir=True)
    async with collecting(Prefix.of(store, "run")) as collector:
        await run_job(collector, outside, 0)
    await store.put_async("run/rank-1/files/foreign", b"")

    async with collecting(Prefix.of(store, "run"), append=True) as collector:
        await run_job(collector, outside, 1)

    assert [process.record.directory for process in collector.processes] == ["rank-1.2"]
