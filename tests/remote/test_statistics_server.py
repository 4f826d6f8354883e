"""Tables of statistics in a real store, which dies, and captures that are killed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream.cli import main
from s3server import running_server

from .bucket import bucket_of
from .captures import found, run_dumpstream, running_dumpstream, until

if TYPE_CHECKING:
    from pathlib import Path

    from .bucket import Bucket

pytestmark = [pytest.mark.stores, pytest.mark.anyio]

_STATS = ["stats", "--sort", "file,io,index", "--format", "json"]


def rows(capsys: pytest.CaptureFixture[str], location: object, *arguments: str) -> list[dict[str, object]]:
    """Return the rows that the command prints, without the directories that differ between captures."""
    capsys.readouterr()
    assert main([*_STATS, str(location), *arguments]) == 0
    printed: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return [{**row, "file": str(row["file"]).rpartition("/")[2]} for row in printed]


@pytest.mark.parametrize("format_", ["parquet", "csv"])
async def test_command_line_stores_tables_and_reads_them(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str], format_: str
) -> None:
    sink = ["--sink", f"stats:?format={format_}", "--simulate", "small"]
    done = [
        await run_dumpstream("capture", "--out", bucket.url, *sink),
        await run_dumpstream("capture", "--out", tmp_path / "run", *sink),
    ]

    assert [it.returncode for it in done] == [0, 0]
    assert await run_sync(rows, capsys, bucket.url) == await run_sync(rows, capsys, tmp_path / "run")
    assert not any(key.startswith("files/") for key in await run_sync(bucket.keys))
    assert await run_sync(main, ["ls", bucket.url]) == 0


async def test_every_process_of_a_command_has_tables_of_its_own(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate = [sys.executable, "-m", "dumpstream", "simulate", "--ranks", "2"]
    command = ["--sink", "stats:", "--", *simulate]

    done = await run_dumpstream("capture", "--out", bucket.url, "--spill", tmp_path / "spill", *command)

    assert done.returncode == 0
    assert {row["rank"] for row in await run_sync(rows, capsys, bucket.url)} == {0, 1}
    assert not await run_sync(found, tmp_path, "spill/*")


async def test_table_that_a_killed_server_did_not_get_is_uploaded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spill = tmp_path / "spill"
    with running_server(tmp_path / "weed") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket = bucket_of(server, "run")
        flags = ["--spill", spill, "--sink", "stats:", "--simulate", "steps=200,ops=3"]
        async with running_dumpstream("capture", "--out", bucket.url, *flags) as process:
            await until(lambda: bool(found(spill, "*/journal.jsonl")))
            await run_sync(server.kill)
            assert process.stderr is not None
            with anyio.fail_after(240):
                said = b"".join([data async for data in process.stderr])
                code = await process.wait()
        await run_sync(server.start)
        uploaded = await run_dumpstream("upload", spill)

        assert code == 3, said
        assert uploaded.returncode == 0, uploaded.stderr
        assert not await run_sync(found, spill, "*")
        files = [row for row in await run_sync(bucket.rows) if row["type"] == "file"]
        assert {str(row["file"]) for row in await run_sync(rows, capsys, bucket.url)} == {
            row["name"].rpartition("/")[2] for row in files
        }


def finished(spill: Path) -> list[dict[str, Any]]:
    """Return the rows of the files that the write-ahead journal has."""
    texts = [path.read_text() for path in found(spill, "*/journal.jsonl")]
    rows = [
        json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line[-1:] == "\n"
    ]
    return [row for row in rows if row["type"] == "file"]


async def test_tables_of_a_killed_capture_are_uploaded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spill = tmp_path / "spill"
    with running_server(tmp_path / "weed") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket = bucket_of(server, "run")
        flags = ["--spill", spill, "--sink", "stats:?format=csv", "--buffer-bytes", "8M"]
        simulate = ["--simulate", "steps=5000"]
        async with running_dumpstream("capture", "--out", bucket.url, *flags, *simulate) as process:
            await until(lambda: bool(found(spill, "*/journal.jsonl")))
            await run_sync(server.kill)
            await until(lambda: len(found(spill, "*/objects/*")) >= 20 and len(finished(spill)) >= 20)
            process.kill()
            await process.wait()
        waiting = await run_sync(finished, spill)
        await run_sync(server.start)
        uploaded = await run_dumpstream("upload", spill)

        assert waiting
        assert uploaded.returncode == 0, uploaded.stderr
        assert not await run_sync(found, spill, "*")
        assert {part["path"] for row in waiting for part in row["stored"]} <= {*await run_sync(bucket.keys)}
        assert [row for row in await run_sync(bucket.rows) if row["type"] == "file"] == waiting
