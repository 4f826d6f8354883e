"""Processes captured from outside, into a real S3 server."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.to_thread import run_sync
from xxhash import xxh3_64_hexdigest

from s3server import running_server

from .bucket import bucket_of
from .captures import finished_files, found, run_dumpstream, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from anyio.abc import Process

    from s3server import S3Server

    from .bucket import Bucket

pytestmark = [pytest.mark.anyio, pytest.mark.stores]

_DUMPSTREAM = [sys.executable, "-m", "dumpstream"]
_JOB = [*_DUMPSTREAM, "simulate", "--ranks", "2", "--workload", "tensor_bytes=256-2048"]
_RANKS = ("rank-0", "rank-1")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that the test may kill."""
    with running_server(tmp_path / "weed") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield server


@asynccontextmanager
async def capturing(
    url: str, spill: Path, *flags: str, steps: int, stderr: int = DEVNULL
) -> AsyncIterator[Process]:
    """Run a job of two ranks, captured from outside."""
    job = [*_JOB, "--steps", str(steps), "--rate", "400K"]
    command = [*_DUMPSTREAM, "capture", "--out", url, "--buffer-bytes", "32M", "--spill", str(spill), *flags]
    words = [*command, "--", *job]
    async with await anyio.open_process(
        words, stdout=DEVNULL, stderr=stderr, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the job, too


def outboxes(spill: Path, url: str) -> dict[str, Path]:
    """Return the local part of each process's capture, by its directory."""
    found = {}
    for path in spill.glob("*/outbox.json"):
        destination = json.loads(path.read_text())["destination"]
        if destination.startswith(f"{url}/"):
            found[destination.removeprefix(f"{url}/")] = path.parent
    return found


def finished(spill: Path, url: str) -> dict[str, dict[str, str]]:
    """Return the checksum of every file that a write-ahead journal has, by process."""
    return {name: finished_files(path / "journal.jsonl") for name, path in outboxes(spill, url).items()}


def stored(server: S3Server) -> dict[str, dict[str, str]]:
    """Return the checksum of every file in the store, by process; each must be there once."""
    return {
        name: {
            file: xxh3_64_hexdigest(data) for file, data in bucket_of(server, f"run/{name}").files().items()
        }
        for name in _RANKS
    }


def processes(bucket: Bucket) -> list[dict[str, Any]]:
    manifest = json.loads(bucket.get("manifest.json"))
    return sorted(manifest["processes"], key=lambda process: process["directory"])


async def test_store_that_comes_back_gets_all_files_of_all_processes(
    server: S3Server, tmp_path: Path
) -> None:
    bucket, spill = bucket_of(server, "run"), tmp_path / "spill"

    async with capturing(bucket.url, spill, steps=40) as process:
        await until(lambda: sum(map(len, finished(spill, bucket.url).values())) > 100)
        await run_sync(server.kill)
        await until(lambda: len(found(spill, "*/objects/*")) > 20)
        await run_sync(server.start)
        await process.wait()

    names = await run_sync(stored, server)
    verified = await run_dumpstream("verify", bucket.url)
    assert (process.returncode, verified.returncode) == (0, 0)
    assert [entry["ending"] for entry in processes(bucket)] == ["exit code 0"] * 2
    assert len(names["rank-0"]) == len(names["rank-1"]) == 640
    assert not found(spill, "*")


async def test_store_that_dies_is_told_while_the_job_runs_and_so_is_its_return(
    server: S3Server, tmp_path: Path
) -> None:
    bucket, spill = bucket_of(server, "run"), tmp_path / "spill"

    async with capturing(bucket.url, spill, steps=100000, stderr=PIPE) as process:
        assert process.stderr is not None
        lines = BufferedByteReceiveStream(process.stderr)
        await until(lambda: sum(map(len, finished(spill, bucket.url).values())) > 20)
        await run_sync(server.kill)
        silent = await lines.receive_until(b"waits; check the network and the endpoint\n", 1 << 16)
        await run_sync(server.start)
        again = await lines.receive_until(b"answers again\n", 1 << 16)
        running = process.returncode is None

    assert running
    assert silent.startswith(b"dumpstream: s3://")
    assert again.startswith(b"dumpstream: s3://")


async def test_every_file_that_a_killed_collector_had_finished_is_there_once(
    server: S3Server, tmp_path: Path
) -> None:
    bucket, spill = bucket_of(server, "run"), tmp_path / "spill"

    async with capturing(bucket.url, spill, "--pack", steps=100_000) as process:
        await until(lambda: sum(map(len, finished(spill, bucket.url).values())) > 100)
        await run_sync(server.kill)
        await until(lambda: len(found(spill, "*/objects/*")) >= 2)
        process.kill()
        await process.wait()
    had_finished = await run_sync(finished, spill, bucket.url)
    await run_sync(server.start)
    uploaded = await run_dumpstream("upload", spill)

    assert uploaded.returncode == 0
    assert await run_sync(stored, server) == had_finished
    assert [entry["directory"] for entry in processes(bucket)] == list(_RANKS)
    assert not found(spill, "*")


async def test_process_that_joins_while_the_store_is_away_is_captured(
    server: S3Server, tmp_path: Path
) -> None:
    bucket, spill, socket = bucket_of(server, "run"), tmp_path / "spill", tmp_path / "socket"
    words = ["collect", "--out", bucket.url, "--socket", str(socket), "--spill", str(spill)]
    environment_code = (
        "import os, sys; from dumpstream.outside.agent import target_environment;"
        "os.execvpe(sys.argv[2], sys.argv[2:], target_environment(sys.argv[1], os.environ))"
    )
    async with await anyio.open_process([*_DUMPSTREAM, *words], stdout=DEVNULL, stderr=DEVNULL) as collector:
        await until(socket.exists)
        await until(lambda: "manifest.json" in bucket.keys())  # noqa: SIM118 - no dict
        await run_sync(server.kill)
        joined = await anyio.run_process([sys.executable, "-c", environment_code, str(socket), *_JOB])
        await until(lambda: all(finished(spill, bucket.url).get(name) for name in _RANKS))
        await run_sync(server.start)
        collector.terminate()
        await collector.wait()
    uploaded = await run_dumpstream("upload", spill)

    names = await run_sync(stored, server)
    assert joined.returncode == 0
    assert uploaded.returncode == 0
    assert collector.returncode in {0, 3}
    assert [entry["directory"] for entry in processes(bucket)] == list(_RANKS)
    assert len(names["rank-0"]) == len(names["rank-1"]) == 16
    assert not found(spill, "*")
