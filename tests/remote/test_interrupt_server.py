"""Ctrl-C while a real S3 server is slow, or does not answer any more."""

from __future__ import annotations

import os
import shlex
import signal
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from .captures import (
    capturing,
    found,
    leave_behind,
    push_all,
    run_dumpstream,
    running_dumpstream,
    said_by,
    small_files,
    until,
)
from .servers.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from s3server import S3Server

    from .bucket import Bucket

pytestmark = [pytest.mark.anyio, pytest.mark.stores]

_MIB = 1 << 20
#: Well above what it may take, and below how long a store is asked.
_LIMIT_S = 100


@pytest.fixture
async def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FaultProxy]:
    """What stands before the server for all clients but the test."""
    async with FaultProxy(s3.port).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        yield proxy


@pytest.fixture
async def spill(bucket: Bucket, tmp_path: Path) -> Path:
    """Where what a capture has left behind is to wait."""
    async with capturing(bucket.url):
        pass
    return tmp_path / "spill"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signal_before_the_store_has_said_anything_leaves_everything_as_it_was(
    bucket: Bucket, proxy: FaultProxy, spill: Path, number: signal.Signals
) -> None:
    files = small_files(20)
    await run_sync(leave_behind, spill, bucket, files)
    proxy.silent, before = True, proxy.asked
    async with running_dumpstream("upload", spill) as process:
        await until(lambda: proxy.asked > before)
        process.send_signal(number)
        said = await said_by(process, _LIMIT_S)
    proxy.silent = False
    again = await run_dumpstream("upload", spill)

    command = f"dumpstream upload {shlex.quote(str(spill))}"
    assert said == f"dumpstream: interrupted; left: 1 capture, 20 objects; go on with: {command}\n"
    assert process.returncode == 128 + number
    assert again.returncode == 0
    assert bucket.files() == files
    assert not found(spill, "*")


async def test_upload_that_is_interrupted_in_its_middle_is_finished_by_the_next(
    bucket: Bucket, proxy: FaultProxy, spill: Path
) -> None:
    files = small_files(200)
    await run_sync(leave_behind, spill, bucket, files)
    proxy.bytes_per_s = 20_000
    async with running_dumpstream("upload", spill) as process:
        await until(lambda: len(found(spill, "*/objects/*")) < len(files))
        proxy.silent = True
        process.send_signal(signal.SIGINT)
        said = await said_by(process, _LIMIT_S)
    proxy.silent, proxy.bytes_per_s = False, None
    left = len(found(spill, "*/objects/*"))
    again = await run_dumpstream("upload", spill)

    assert 0 < left < len(files)
    assert said.startswith(f"dumpstream: interrupted; left: 1 capture, {left} objects; go on with: ")
    assert process.returncode == 130
    assert again.returncode == 0
    assert bucket.files() == files
    assert not found(spill, "*")


async def test_object_in_parts_that_is_on_its_way_is_taken_back(
    bucket: Bucket, proxy: FaultProxy, s3: S3Server, spill: Path
) -> None:
    files = {"large": os.urandom(192 * _MIB)}
    await run_sync(leave_behind, spill, bucket, files)
    proxy.bytes_per_s = 8.0 * _MIB
    async with running_dumpstream("upload", spill) as process:
        await until(lambda: bool(s3.uploads()))
        process.send_signal(signal.SIGINT)
        said = await said_by(process, _LIMIT_S)
    proxy.bytes_per_s = None
    uploads, keys = await run_sync(s3.uploads), await run_sync(bucket.keys)
    again = await run_dumpstream("upload", spill)

    assert "left: 1 capture, 1 object; " in said
    assert process.returncode == 130
    assert uploads == []
    assert "files/large.dsz" not in keys
    assert again.returncode == 0
    assert bucket.files() == files


async def test_second_signal_ends_it_at_once_and_the_next_upload_need_not_wait(
    bucket: Bucket, proxy: FaultProxy, spill: Path
) -> None:
    files = small_files(200)
    await run_sync(leave_behind, spill, bucket, files)
    proxy.bytes_per_s = 20_000
    async with running_dumpstream("upload", spill) as process, anyio.create_task_group() as tasks:
        await until(lambda: len(found(spill, "*/objects/*")) < len(files))
        proxy.silent = True

        async def insist() -> None:
            while True:
                process.send_signal(signal.SIGINT)
                await anyio.sleep(0.05)

        tasks.start_soon(insist)
        said = await said_by(process, _LIMIT_S)
        tasks.cancel_scope.cancel()
    proxy.silent, proxy.bytes_per_s = False, None
    again = await run_dumpstream("upload", spill)

    assert (process.returncode, said) == (-signal.SIGINT, "")
    assert again.returncode == 0
    assert bucket.files() == files


async def test_extraction_ends_whose_store_has_stopped_to_answer(
    bucket: Bucket, proxy: FaultProxy, tmp_path: Path
) -> None:
    files, out = small_files(200), tmp_path / "out"
    async with capturing(bucket.url):
        await run_sync(push_all, files)
    proxy.bytes_per_s = 5_000
    async with running_dumpstream("extract", bucket.url, "--out", out) as process:
        await until(lambda: len(found(out, "*/*")) > 0)
        proxy.silent = True
        process.send_signal(signal.SIGINT)
        said = await said_by(process, _LIMIT_S)

    assert (process.returncode, said) == (130, "")
    assert len(found(out, "*/*")) < len(files)
