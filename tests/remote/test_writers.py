"""Two captures that want one prefix in a real S3 server."""

from __future__ import annotations

import json
import os
import sys
from contextlib import AsyncExitStack
from subprocess import DEVNULL
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import DumpstreamError
from dumpstream.remote.storelock import STORE_LOCK, StoreLock
from dumpstream.system.location import Prefix

from .captures import capturing, found, push_all, run_dumpstream, small_files, until
from .servers.proxy import FaultProxy

if TYPE_CHECKING:
    from pathlib import Path

    from s3server import S3Server

    from .bucket import Bucket

pytestmark = [pytest.mark.anyio, pytest.mark.stores]

_DUMPSTREAM = [sys.executable, "-m", "dumpstream"]


async def test_second_capture_with_the_same_sink_is_refused_and_the_first_is_named(
    bucket: Bucket, tmp_path: Path
) -> None:
    files = small_files(20)
    command = ["capture", "--sink", bucket.url, "--buffer-bytes", "8M", "--simulate", "steps=1", "--out"]
    async with capturing(tmp_path / "first", sinks=[bucket.url]):
        await run_sync(push_all, files)
        second = await run_dumpstream(*command, tmp_path / "second")
    third = await run_dumpstream(*command, tmp_path / "third")
    verified = [await run_dumpstream("verify", tmp_path / name, "--deep") for name in ("first", "third")]

    assert (second.returncode, third.returncode) == (1, 0)
    assert f"{bucket.url} is being written by process {os.getpid()} on ".encode() in second.stderr
    assert not (tmp_path / "second").exists()
    assert [process.returncode for process in verified] == [0, 0]
    assert STORE_LOCK not in bucket.keys()  # noqa: SIM118 - a method of the test's own


async def test_processes_of_one_capture_share_the_place_of_a_sink_and_those_of_another_do_not(
    bucket: Bucket, tmp_path: Path
) -> None:
    job = [*_DUMPSTREAM, "simulate", "--ranks", "2", "--workload", "tensor_bytes=256-2048", "--steps", "20"]
    flags = ["--sink", bucket.url, "--buffer-bytes", "32M", "--"]
    words = [*_DUMPSTREAM, "capture", "--out", str(tmp_path / "first"), *flags, *job, "--rate", "100K"]
    async with await anyio.open_process(words, stdout=DEVNULL, stderr=DEVNULL) as first:
        await until(lambda: len({key.partition("/")[0] for key in bucket.keys()} - {STORE_LOCK}) == 2)  # noqa: SIM118 - as above
        second = await run_dumpstream("capture", "--out", tmp_path / "second", *flags, *job)
    verified = await run_dumpstream("verify", tmp_path / "first", "--deep")

    assert second.returncode == 1
    assert f"is being written by process {first.pid} on ".encode() in second.stderr
    assert (first.returncode, verified.returncode) == (0, 0)
    assert {key.partition("/")[0] for key in bucket.keys()} == {"rank-0", "rank-1"}  # noqa: SIM118 - as above


async def take_over(bucket: Bucket, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> StoreLock:
    """Do what another capture does that takes the lock for one that was left."""
    other = await run_sync(StoreLock, Prefix.parse(bucket.url))
    with monkeypatch.context() as patch:
        patch.setattr("dumpstream.remote.storelock.STALE_S", 0)
        await run_sync(other.take)
    await stack.enter_async_context(other.held())
    return other


@pytest.mark.parametrize("beside", [False, True], ids=["capture", "sink"])
async def test_capture_whose_place_was_taken_over_while_the_store_was_away_fails_and_loses_nothing(
    bucket: Bucket, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, beside: bool
) -> None:
    monkeypatch.setattr("dumpstream.remote.uploader.SHORT_RETRY_S", 1.0)
    before, during = small_files(20), {f"during/{name}": data for name, data in small_files(30).items()}
    spill, run = tmp_path / "spill", tmp_path / "run"
    async with FaultProxy(s3.port).running() as proxy, AsyncExitStack() as stack:
        url = f"{bucket.url}?endpoint=http://127.0.0.1:{proxy.port}"
        place, sinks = (run, [url]) if beside else (url, None)
        with pytest.raises(DumpstreamError, match=r"process \d+ on .* took it over"):  # noqa: PT012 - raised on leaving
            async with capturing(place, spill=spill, sinks=sinks) as capture:
                await run_sync(push_all, before)
                await until(lambda: capture.report.files >= len(before))
                proxy.cuts_left = 1 << 30
                await run_sync(push_all, during)
                await until(lambda: capture.report.files >= len(before | during))
                monkeypatch.setattr("dumpstream.remote.storelock._now", lambda: monotonic() + 3600)
                other = await take_over(bucket, stack, monkeypatch)
                there = await run_sync(bucket.keys)
                proxy.cuts_left = 0
        left = await run_sync(bucket.keys)
        held = json.loads(await run_sync(bucket.get, STORE_LOCK)) == json.loads(other.text)
        refused = await run_dumpstream("upload", spill)
        await stack.aclose()
        uploaded = await run_dumpstream("upload", spill)

    assert (held, left) == (True, there)
    assert capture.report.waiting
    assert (refused.returncode, uploaded.returncode) == (1, 0)
    assert b"upload again when that has ended" in refused.stderr
    assert not found(spill, "*")
    if not beside:
        assert bucket.files() == before | during
    else:
        rows = [json.loads(line) for line in (run / "journal.jsonl").read_bytes().splitlines()]
        assert {row["name"] for row in rows if row["type"] == "file"} == set(before | during)
