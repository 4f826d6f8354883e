"""What a capture says that leaves files behind for a real S3 server."""

from __future__ import annotations

import os
import resource
import shlex
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import SinkError

from .captures import (
    capturing,
    found,
    push_all,
    run_dumpstream,
    running_dumpstream,
    said_by,
    small_files,
    until,
)
from .servers.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from s3server import S3Server

    from .bucket import Bucket

pytestmark = [pytest.mark.anyio, pytest.mark.stores]

_MIB = 1 << 20
#: Well above what it may take, and below how long a store is asked.
_LIMIT_S = 100


async def test_capture_that_fails_on_a_full_disk_says_how_many_files_wait_and_what_uploads_them(
    bucket: Bucket, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpstream.remote.uploader.SHORT_RETRY_S", 1.0)
    before, during = small_files(20), {f"during/{name}": data for name, data in small_files(30).items()}
    spill = tmp_path / "spill of mine"
    async with FaultProxy(s3.port).running() as proxy:
        url = f"{bucket.url}?endpoint=http://127.0.0.1:{proxy.port}"
        with (  # noqa: PT012 - raised on leaving
            full_disk() as fill,
            pytest.raises(SinkError, match="the spill cannot be used: File too large") as failure,
        ):
            async with capturing(url, spill=spill) as capture:
                await run_sync(push_all, before)
                await until(lambda: capture.report.files == len(before))
                proxy.cuts_left = 1 << 30
                await run_sync(push_all, during)
                await until(lambda: capture.report.files == len(before | during))
                fill()
                await run_sync(push_all, {"large": os.urandom(3 * _MIB)})
                await capture.wait()
                capture.hurry(0.1)
        proxy.cuts_left = 0
        uploaded = await run_dumpstream("upload", spill)

    (note,) = failure.value.__notes__
    number = capture.report.waiting_files
    command = f"dumpstream upload {shlex.quote(str(spill))}"
    assert note == f"{number} files wait for the store; upload what is missing with: {command}"
    assert len(during) <= number <= len(before | during)
    assert uploaded.returncode == 0
    assert bucket.files() == before | during | {"large": b""}
    assert not found(spill, "*")


@contextmanager
def full_disk() -> Iterator[Callable[[], None]]:
    """Yield what makes every disk too full for a file of more than a MiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (_MIB, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("cancelled", [False, True])
async def test_capture_in_a_hurry_does_not_wait_for_a_store_that_does_not_answer(
    bucket: Bucket, s3: S3Server, tmp_path: Path, *, cancelled: bool
) -> None:
    before, during = small_files(20), {f"during/{name}": data for name, data in small_files(30).items()}
    spill = tmp_path / "spill"
    async with FaultProxy(s3.port).running() as proxy:
        url = f"{bucket.url}?endpoint=http://127.0.0.1:{proxy.port}"
        with anyio.CancelScope() as scope, anyio.fail_after(_LIMIT_S):
            async with capturing(url, spill=spill) as capture:
                await run_sync(push_all, before)
                await until(lambda: capture.report.files >= len(before))
                proxy.silent = True
                await run_sync(push_all, during)
                await until(lambda: capture.report.chunks == len(before | during))
                capture.hurry(1.0)
                if cancelled:
                    await until(lambda: capture.report.files == len(before | during))
                    scope.cancel()
        proxy.silent = False
        uploaded = await run_dumpstream("upload", spill)

    report = capture.report
    assert (report.files, report.failure) == (len(before | during), "cancelled" if cancelled else None)
    assert len(during) <= report.waiting_files <= len(before | during)
    assert uploaded.returncode == 0
    assert bucket.files() == before | during


async def test_full_spill_of_a_capture_in_a_hurry_ends_it(
    bucket: Bucket, s3: S3Server, tmp_path: Path
) -> None:
    spill = tmp_path / "spill"
    async with FaultProxy(s3.port).running() as proxy:
        url = f"{bucket.url}?endpoint=http://127.0.0.1:{proxy.port}"
        with (  # noqa: PT012 - raised on leaving
            anyio.fail_after(_LIMIT_S),
            pytest.raises(SinkError, match="the spill is full and the store does not answer") as failure,
        ):
            async with capturing(url, spill=spill, spill_bytes=1000) as capture:
                proxy.silent = True
                await run_sync(push_all, small_files(5, size=400))
                await until(lambda: capture.report.chunks == 5)
                capture.hurry(1.0)
        proxy.silent = False
        uploaded = await run_dumpstream("upload", spill)

    report = capture.report
    assert report.verdicts == {"lost": 3, "unparsed": 2}
    (note,) = failure.value.__notes__
    command = f"dumpstream upload {shlex.quote(str(spill))}"
    assert note == f"2 files wait for the store; upload what is missing with: {command}"
    assert uploaded.returncode == 0


async def test_second_signal_ends_a_capture_at_once_and_it_says_what_waits(
    bucket: Bucket, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = tmp_path / "spill"
    async with FaultProxy(s3.port).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        words = ["capture", "--out", bucket.url, "--buffer-bytes", "8M", "--spill", spill]
        async with running_dumpstream(*words, "--simulate", "steps=5000") as process:
            await until(lambda: len(bucket.keys()) > 20)
            proxy.silent = True
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            said = (await process.stderr.receive()).decode()
            process.send_signal(signal.SIGINT)
            said += await said_by(process, _LIMIT_S)

    finishing, aborted, waiting = said.splitlines()
    assert finishing == "dumpstream: finishing what has come; again to abort"
    assert aborted == "dumpstream: aborted; what was finished stays"
    assert waiting.endswith(f"dumpstream upload {shlex.quote(str(spill))}")
    assert process.returncode == 1
