"""A job of several hosts in a real S3 server: collectors with names of their own play the hosts."""

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
from anyio.to_thread import run_sync

from countingproxy import counting_proxy
from dumpstream.reading.collection import Collection
from s3server import running_server

from .bucket import bucket_of
from .captures import finished_files, found, run_dumpstream, said_by, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from anyio.abc import Process

    from s3server import S3Server

    from .bucket import Bucket

pytestmark = [pytest.mark.anyio, pytest.mark.stores]

_DUMPSTREAM = [sys.executable, "-m", "dumpstream"]
_JOB = [*_DUMPSTREAM, "simulate", "--ranks", "2", "--workload", "tensor_bytes=256-2048"]
_SLOW = ("--steps", "100000", "--rate", "400K")
_LIMIT_S = 120


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that the test may kill."""
    with running_server(tmp_path / "weed") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield server


@pytest.fixture
def job(server: S3Server) -> Bucket:
    return bucket_of(server, "job")


@asynccontextmanager
async def capturing(
    job: Bucket, host: str, *flags: object, steps: tuple[str, ...] = ()
) -> AsyncIterator[Process]:
    """Run a job of two ranks, captured on *host*."""
    command = ["capture", "--out", job.url, "--host", "auto", "--buffer-bytes", "32M", *map(str, flags)]
    async with await anyio.open_process(
        [*_DUMPSTREAM, *command, "--", *_JOB, *steps],
        stdout=DEVNULL,
        stderr=PIPE,
        env={**os.environ, "NODE_RANK": host},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the job, too


async def captured(job: Bucket, host: str, *flags: object) -> tuple[int, str]:
    """Capture on *host* until its end; return the exit code, and what was said."""
    async with capturing(job, host, *flags) as process:
        said = await said_by(process, _LIMIT_S)
        return await process.wait(), said


async def listed(job: Bucket, *flags: object) -> Any:
    return json.loads((await run_dumpstream("ls", job.url, *flags, "--json")).stdout)


async def states(job: Bucket) -> dict[str, str]:
    return {host["host"]: host["state"] for host in (await listed(job))["hosts"]}


def finished(spill: Path) -> set[str]:
    """Return the files that the write-ahead journals of one host have, as `ls` of the job calls them."""
    names = set()
    for path in found(spill, "*/outbox.json"):
        process = json.loads(path.read_text())["destination"].partition("/job/")[2]
        names |= {f"{process}/{name}" for name in finished_files(path.parent / "journal.jsonl")}
    return names


def keys_of(job: Bucket, host: str) -> set[str]:
    return {key for key in {*job.keys()} if key.startswith(f"{host}/")}


def running(job: Bucket, host: str, files: int = 1) -> bool:
    """Whether *host* has a process, and some files in the store."""
    keys = keys_of(job, host)
    return f"{host}/manifest.json" in keys and sum(key.startswith(f"{host}/rank-") for key in keys) > files


async def test_hosts_capture_side_by_side_and_a_second_one_of_a_name_is_refused(job: Bucket) -> None:
    codes: dict[str, tuple[int, str]] = {}

    async def capture(host: str) -> None:
        codes[host] = await captured(job, host)

    async with capturing(job, "0", steps=_SLOW) as first:
        await until(lambda: running(job, "0"))
        refused, said = await captured(job, "0")
        async with anyio.create_task_group() as tasks:  # others do not wait for it
            for host in ("1", "2", "10"):
                tasks.start_soon(capture, host)
        during = await states(job)
        first.terminate()
        await said_by(first, _LIMIT_S)

    assert refused == 1
    assert f"{job.url}/0 is being written by process {first.pid} on " in said
    assert "give each its own name with --host" in said
    assert [code for code, _ in codes.values()] == [0, 0, 0]
    assert during == {"0": "running", "1": "finished", "2": "finished", "10": "finished"}
    after = await listed(job)
    assert [it["host"] for it in after["hosts"]] == ["0", "1", "2", "10"]
    assert after["state"] == "finished"
    assert all(process["files"] == 16 for it in after["hosts"][1:] for process in it["processes"])
    verified = await run_dumpstream("verify", job.url, "--host", "1", "--host", "2", "--host", "10")
    assert verified.returncode == 0


async def test_a_host_is_appended_to_and_replaced_without_touching_the_others(job: Bucket) -> None:
    for host in ("0", "1"):
        assert (await captured(job, host))[0] == 0
    before = keys_of(job, "1")

    refused, said = await captured(job, "0")
    appended, _ = await captured(job, "0", "--append")
    processes = [it["directory"] for it in (await listed(job))["hosts"][0]["processes"]]
    forced, _ = await captured(job, "0", "--force")

    assert (refused, "--append" in said) == (1, True)
    assert (appended, forced) == (0, 0)
    assert processes == ["rank-0", "rank-0.2", "rank-1", "rank-1.2"]
    assert keys_of(job, "1") == before
    assert not any("rank-0.2" in key for key in keys_of(job, "0"))
    assert (await run_dumpstream("verify", job.url)).returncode == 0


async def test_what_a_killed_host_had_finished_is_uploaded_later_and_the_others_go_on(
    server: S3Server, job: Bucket, tmp_path: Path
) -> None:
    spill = tmp_path / "spill"
    assert (await captured(job, "0"))[0] == 0

    async with capturing(job, "1", "--spill", spill, steps=_SLOW) as process:
        await until(lambda: len(finished(spill)) > 20)
        await run_sync(server.kill)
        before = len(await run_sync(finished, spill))
        await until(lambda: len(finished(spill)) > before + 20)
        process.kill()
        await process.wait()
    had_finished = await run_sync(finished, spill)
    await run_sync(server.start)
    late = await captured(job, "2")  # joins late, while much of host 1 is missing
    there = {file["name"] for file in (await listed(job, "--host", "1"))["files"]}
    uploaded = await run_dumpstream("upload", spill)
    after = await listed(job, "--host", "1")
    result = json.loads((await run_dumpstream("verify", job.url, "--json")).stdout)

    assert late[0] == 0
    assert uploaded.returncode == 0
    assert there < had_finished
    assert {file["name"] for file in after["files"]} == had_finished
    assert (await states(job)) == {"0": "finished", "1": "interrupted", "2": "finished"}
    assert {it["kind"] for it in result["problems"]} <= {"interrupted", "died", "extra"}
    assert all("/1/" in f"/{it['subject']}" for it in result["problems"])
    assert not found(spill, "*")


async def test_a_host_whose_upload_comes_later_is_whole_then(
    server: S3Server, job: Bucket, tmp_path: Path
) -> None:
    spill = tmp_path / "spill"
    async with capturing(job, "0", "--spill", spill, steps=("--steps", "20", "--rate", "400K")) as process:
        await until(lambda: running(job, "0", files=20))
        await run_sync(server.kill)
        await said_by(process, _LIMIT_S)
    await run_sync(server.start)
    uploaded = await run_dumpstream("upload", spill)

    assert process.returncode == 3
    assert uploaded.returncode == 0
    assert (await states(job)) == {"0": "finished"}
    assert json.loads(job.get("0/manifest.json"))["ended"] is not None
    verified = await run_dumpstream("verify", job.url)
    assert verified.returncode == 0


async def test_listing_takes_one_request_for_each_host(server: S3Server, job: Bucket) -> None:
    hosts = 12
    assert (await captured(job, "0"))[0] == 0
    manifest = job.get("0/manifest.json")
    for host in range(1, hosts):
        await run_sync(job.put, f"{host}/manifest.json", manifest)

    with counting_proxy(server.port) as proxy:
        url = f"{job.url}?endpoint=http://127.0.0.1:{proxy.port}"
        collection = await run_sync(Collection.open, url)

    assert len(collection.processes or ()) == hosts * 2
    assert proxy.requests["GET", "manifest.json"] == hosts + 1
    assert proxy.total == hosts + 5
    assert not any(name.startswith("journal") for _, name in proxy.requests)


async def test_a_capture_and_a_job_refuse_each_other(job: Bucket) -> None:
    assert (await captured(job, "0"))[0] == 0

    inside = await run_dumpstream("capture", "--out", job.url, "--", "true")
    above = await run_dumpstream("capture", "--out", f"{job.url}/0", "--host", "x", "--", "true")

    assert (inside.returncode, b"--host auto" in inside.stderr) == (1, True)
    assert (above.returncode, b"is itself a capture" in above.stderr) == (1, True)
