"""Statistics of a capture in a store: tables that are objects of the capture."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import anyio
import obstore
import pyarrow.parquet as pq
import pytest
from anyio.to_thread import run_sync
from obstore.store import MemoryStore

from dumpstream import SinkError, StoredCapture
from dumpstream.measurement import measure
from dumpstream.reading.verification import verify
from dumpstream.simulation import Workload
from dumpstream.sinks.tables.storetables import StoreTables
from dumpstream.system.location import Prefix

from .captures import capturing, push_all

if TYPE_CHECKING:
    from pathlib import Path

    from dumpstream.analysis.sources import Measured

pytestmark = pytest.mark.anyio

_FILES = {file.name: file.data for file in Workload(models=1, ops=4).expected_files("/dump")}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep outboxes apart from those of other tests, whose stores have the same name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def rows_of(measured: list[Measured]) -> list[tuple[Any, ...]]:
    """Return what is known of the tensors, in an order of their own."""
    rows = [row for file in measured for row in file.rows]
    return sorted((row.file, str(row.io), row.index, str(row.max), row.nan, str(row.hash)) for row in rows)


def keys(store: MemoryStore) -> list[str]:
    return sorted(meta["path"] for page in obstore.list(store) for meta in page)


@pytest.mark.parametrize("format_", ["parquet", "csv"])
@pytest.mark.parametrize("others", [[], ["zstd:"]], ids=["without bytes", "with bytes"])
async def test_tables_are_stored_in_the_capture_and_read_there(
    tmp_path: Path, format_: str, others: list[str]
) -> None:
    store = MemoryStore()
    sinks = [f"stats:?format={format_}", *others]

    async with capturing(store, sinks=sinks) as capture:
        await run_sync(push_all, _FILES)
    async with capturing(tmp_path / "run", sinks=sinks):
        await run_sync(push_all, _FILES)

    stored = await run_sync(StoredCapture.open, store)
    found = await run_sync(lambda: list(measure([Prefix.of(store)])))
    expected = await run_sync(lambda: list(measure([tmp_path / "run"])))
    parts = await run_sync(lambda: [part for row in stored.files.rows() for part in row.stored])
    tables = [key for key in keys(store) if key.startswith("stats/")]
    assert capture.report.whole
    assert not capture.report.waiting
    assert rows_of(found) == rows_of(expected)
    assert rows_of(found)
    assert not [problem for file in found for problem in file.problems]
    assert len(tables) == (1 if format_ == "parquet" else len(_FILES))
    assert {part.path for part in parts if part.sink == "stats"} == {*tables}
    assert any(key.startswith("files/") for key in keys(store)) == bool(others)
    assert (await run_sync(verify, stored)).whole


async def test_further_run_takes_no_name_that_is_taken() -> None:
    store = MemoryStore()

    for append in (False, True):
        async with capturing(store, sinks=["stats:?format=csv"], append=append):
            await run_sync(push_all, _FILES)

    assert len(keys(store)) == 2 * len(_FILES) + 2  # and manifest and journal
    found = await run_sync(lambda: list(measure([Prefix.of(store)])))
    assert len(rows_of(found)) == 2 * len({*rows_of(found)})


async def test_force_deletes_the_tables() -> None:
    store = MemoryStore()

    async with capturing(store, sinks=["stats:"]):
        await run_sync(push_all, _FILES)
    async with capturing(store, sinks=["zstd:"], force=True):
        pass

    assert keys(store) == ["journal.jsonl", "manifest.json"]


async def test_line_goes_to_the_store_when_its_table_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreTables, "seconds", 0.2)
    store = MemoryStore()

    async with capturing(store, sinks=["stats:"]) as capture:
        await run_sync(push_all, _FILES)
        with anyio.fail_after(60):
            while not capture.report.files or capture.report.waiting:
                await anyio.sleep(0.01)
                journalled = any(key.startswith("journal/") for key in keys(store))
                if journalled and (await run_sync(StoredCapture.open, store)).files:
                    assert any(key.startswith("stats/") for key in keys(store))

    assert capture.report.whole


async def test_table_that_the_store_refuses_fails_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise SinkError("the store refuses")

    monkeypatch.setattr("dumpstream.remote.uploader.Uploader.upload", refuse)

    with pytest.raises(SinkError, match="the store refuses"):
        async with capturing(MemoryStore(), sinks=["stats:"]):
            await run_sync(push_all, _FILES)


async def test_large_table_goes_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumpstream.sinks.tables.storetables.PART_BYTES", 1000)
    store = MemoryStore()

    async with capturing(store, sinks=["stats:"]):
        await run_sync(push_all, _FILES)

    (key,) = [key for key in keys(store) if key.startswith("stats/")]
    assert pq.read_table(io.BytesIO(obstore.get(store, key).bytes())).num_rows
    assert obstore.head(store, key)["size"] > 2000


async def test_cancelled_capture_ends_soon_and_keeps_what_is_whole() -> None:
    store = MemoryStore()

    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with capturing(store, sinks=["stats:"]) as capture:
            await run_sync(push_all, _FILES)
            while not capture.report.files:  # noqa: ASYNC110 - no event
                await anyio.sleep(0.01)
            scope.cancel()

    found = await run_sync(lambda: list(measure([Prefix.of(store)])))
    assert rows_of(found)
    assert not [problem for file in found for problem in file.problems]


async def test_files_of_a_directory_are_found_from_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what is below the current directory is not inside a capture in a store
    store = MemoryStore()

    async with capturing(store, sinks=["stats:tables", f"zstd:{tmp_path / 'data'}"]):
        await run_sync(push_all, _FILES)

    monkeypatch.chdir("/")
    stored = await run_sync(StoredCapture.open, store)
    found = await run_sync(verify, stored)
    parts = await run_sync(lambda: [part for row in stored.files.rows() for part in row.stored])
    assert found.whole, found.problems
    assert found.parts == len(_FILES)
    assert all(part.path and part.path.startswith("/") for part in parts)
    assert rows_of(await run_sync(lambda: list(measure([Prefix.of(store)]))))
