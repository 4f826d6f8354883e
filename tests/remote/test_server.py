"""Captures into a real S3 server."""

from __future__ import annotations

import json
import os
import signal
import sys
from subprocess import DEVNULL
from typing import TYPE_CHECKING

import anyio
import obstore
import pytest
from anyio.to_thread import run_sync
from xxhash import xxh3_64_hexdigest

from dumpstream import (
    DestinationError,
    DumpstreamError,
    SinkError,
    StoredCapture,
)
from dumpstream.reading.verification import verify
from s3server import SECRET, running_server

from .bucket import bucket_of
from .captures import capturing, finished_files, found, push, push_all, run_dumpstream, small_files, until
from .servers.proxy import FaultProxy

if TYPE_CHECKING:
    from pathlib import Path

    from s3server import S3Server

    from .bucket import Bucket

pytestmark = [pytest.mark.anyio, pytest.mark.stores]

_MIB = 1 << 20


async def test_files_manifest_and_journal_are_below_the_prefix(bucket: Bucket) -> None:
    files = small_files(300)

    async with capturing(bucket.url) as capture:
        await run_sync(push_all, files)

    assert capture.report.whole
    assert not capture.report.waiting
    assert bucket.files() == files
    assert [row["type"] for row in bucket.rows() if row["type"] != "file"] == ["merged", "begin", "end"]
    assert set(bucket.keys()) == {f"files/{name}.dsz" for name in files} | {"manifest.json", "journal.jsonl"}
    assert json.loads(bucket.get("manifest.json"))["runs"][0]["outcome"] == "finished"


async def test_large_file_goes_out_in_parts_and_is_whole(bucket: Bucket, s3: S3Server) -> None:
    pieces = [os.urandom(3 * _MIB) for _ in range(15)]

    async with capturing(bucket.url):
        for number, piece in enumerate(pieces, 1):
            await run_sync(lambda: push("large", piece, last=number == len(pieces)))  # noqa: B023 - at once

    (row,) = [row for row in bucket.rows() if row["type"] == "file"]
    assert bucket.files() == {"large": b"".join(pieces)}
    assert row["stored"][0]["etag"].strip('"').endswith("-6")  # S3's mark of six parts
    assert s3.uploads() == []


async def test_cancelled_upload_is_aborted_in_the_store(bucket: Bucket, s3: S3Server) -> None:
    with anyio.CancelScope() as scope:
        async with capturing(bucket.url) as capture:
            for _ in range(12):
                await run_sync(lambda: push("large", os.urandom(3 * _MIB), last=False))
            await until(lambda: bool(s3.uploads()))
            scope.cancel()

    assert s3.uploads() == []
    assert bucket.files() == {"large": b""}
    assert capture.report.verdicts == {"lost": 1}


async def test_packed_files_are_read_with_one_range_each(bucket: Bucket) -> None:
    files = small_files(2000)

    async with capturing(bucket.url, pack=True):
        await run_sync(push_all, files)

    keys = bucket.keys()
    assert bucket.files() == files
    assert 1 <= sum(key.startswith("packs/") for key in keys) <= 3
    assert not any(key.startswith("files/") for key in keys)


async def test_second_run_adds_to_the_journal_and_takes_the_next_names(bucket: Bucket) -> None:
    async with capturing(bucket.url):
        await run_sync(push, "a", b"first")
    async with capturing(bucket.url, append=True):
        await run_sync(push, "a", b"second")

    rows = bucket.rows()
    assert [row["stored"][0]["path"] for row in rows if row["type"] == "file"] == [
        "files/a.dsz",
        "files/a.2.dsz",
    ]
    assert [row["run"] for row in rows if row["type"] == "end"] == [1, 2]
    assert rows[0] == {"type": "merged", "through": 2}


async def test_forced_run_replaces_the_capture(bucket: Bucket) -> None:
    async with capturing(bucket.url, pack=True):
        await run_sync(push, "a", b"first")
    async with capturing(bucket.url, force=True):
        await run_sync(push, "a", b"second")

    assert bucket.files() == {"a": b"second"}
    assert set(bucket.keys()) == {"files/a.dsz", "manifest.json", "journal.jsonl"}


async def test_place_that_is_in_use_is_refused(bucket: Bucket) -> None:
    async with capturing(bucket.url):
        with pytest.raises(DumpstreamError, match=f"is being written by process {os.getpid()}"):
            async with capturing(bucket.url):
                pass

    assert "lock.json" not in bucket.keys()  # noqa: SIM118 - a method of the test's own


@pytest.mark.parametrize(
    "wrong",
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong", "403, SignatureDoesNotMatch.*AWS_SECRET_ACCESS_KEY"),
        ("AWS_ACCESS_KEY_ID", "nobody", "403, InvalidAccessKeyId.*AWS_ACCESS_KEY_ID"),
    ],
)
async def test_wrong_credentials_are_found_before_the_capture(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: tuple[str, str, str]
) -> None:
    variable, value, message = wrong
    monkeypatch.setenv(variable, value)

    for destination, sinks, error in (
        (bucket.url, None, DestinationError),
        (tmp_path / "run", [bucket.url], SinkError),
    ):
        with pytest.raises(error, match=message):
            async with capturing(destination, sinks=sinks):
                pass

    assert bucket.keys() == {}
    assert not found(tmp_path, "run")
    assert not found(tmp_path, "state/dumpstream/*")


async def test_missing_bucket_is_found_before_the_capture(s3: S3Server, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="there is no such bucket; make it or choose another"):
        async with capturing(tmp_path / "run", sinks=["s3://no-such-bucket/run"]):
            pass

    assert not found(tmp_path, "run")


async def test_sink_beside_a_directory_names_its_objects_by_url(bucket: Bucket, tmp_path: Path) -> None:
    files = small_files(50)

    async with capturing(tmp_path / "run", sinks=["zstd:", bucket.url]):
        await run_sync(push_all, files)

    stored = await run_sync(StoredCapture.open, tmp_path / "run")
    assert (await run_sync(verify, stored)).whole
    rows = [file.rows[0] for file in await run_sync(list, stored.files)]
    assert {part.path for row in rows for part in row.stored if part.sink == "s3"} == {
        f"{bucket.url}/files/{name}.dsz" for name in files
    }
    assert set(bucket.keys()) == {f"files/{name}.dsz" for name in files}


async def test_cut_connections_cost_nothing_but_time(
    bucket: Bucket, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = small_files(40, size=20_000) | {"large": os.urandom(20 * _MIB)}

    async with FaultProxy(s3.port).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        async with capturing(bucket.url) as capture:
            proxy.cut_after, proxy.cuts_left = _MIB, 3
            await run_sync(push_all, files)

    assert not proxy.cuts_left
    assert capture.report.whole
    assert bucket.files() == files
    assert s3.uploads() == []


async def test_slow_connection_loses_nothing(
    bucket: Bucket, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = small_files(30, size=50_000)

    async with FaultProxy(s3.port).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        proxy.bytes_per_s = 1_000_000
        async with capturing(bucket.url):
            await run_sync(push_all, files)

    assert bucket.files() == files


@pytest.mark.parametrize("pack", [False, True])
async def test_killed_server_is_waited_for_in_the_spill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pack: bool
) -> None:
    before, during, after = small_files(100), small_files(101), small_files(102)
    during = {f"during/{name}": data for name, data in during.items()} | {"large": os.urandom(20 * _MIB)}
    after = {f"after/{name}": data for name, data in after.items()}
    with running_server(tmp_path / "weed") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket = bucket_of(server, "run")
        async with capturing(bucket.url, spill=tmp_path / "spill", pack=pack) as capture:
            await run_sync(push_all, before)
            await until(lambda: pack or capture.report.files >= len(before))
            await run_sync(server.kill)
            await run_sync(push_all, during)
            await until(lambda: bool(found(tmp_path, "spill/*/objects/*")))
            await run_sync(server.start)
            await run_sync(push_all, after)

        assert capture.report.whole
        assert not capture.report.waiting
        assert bucket.files() == before | during | after
        assert not found(tmp_path, "spill/*")
        assert server.uploads() == []


async def test_what_a_killed_server_did_not_get_is_uploaded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpstream.remote.backlog._LAST_WAIT_S", 0.1)
    monkeypatch.setattr("dumpstream.remote.uploader.SHORT_RETRY_S", 2.0)
    monkeypatch.setattr("dumpstream.remote.destination._PROBE_S", 2.0)
    before, during = small_files(20), {f"during/{name}": data for name, data in small_files(30).items()}
    with running_server(tmp_path / "weed") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket = bucket_of(server, "run")
        async with capturing(bucket.url, spill=tmp_path / "spill") as capture:
            await run_sync(push_all, before)
            await until(lambda: capture.report.files >= len(before))
            await run_sync(server.kill)
            await run_sync(push_all, during)
        waiting = capture.report.waiting
        first = await run_dumpstream("upload", tmp_path / "spill")
        await run_sync(server.start)
        second = await run_dumpstream("upload", tmp_path / "spill")
        third = await run_dumpstream("upload", tmp_path / "spill")

        assert waiting
        assert (first.returncode, second.returncode, third.returncode) == (1, 0, 0)
        assert b"does not answer" in first.stderr
        assert b"nothing waits" in third.stdout
        assert bucket.files() == before | during
        assert json.loads(bucket.get("manifest.json"))["runs"][0]["outcome"] == "finished"
        assert not any(key.startswith("journal/") for key in bucket.keys())  # noqa: SIM118 - as above


@pytest.mark.parametrize("options", [[], ["--pack"]], ids=["files", "packs"])
async def test_every_file_that_a_killed_capture_had_finished_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    with running_server(tmp_path / "weed") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket, spill = bucket_of(server, "run"), tmp_path / "spill"
        command = ["capture", "--out", bucket.url, "--simulate", "steps=5000", "--buffer-bytes", "8M"]
        arguments = [sys.executable, "-m", "dumpstream", *command, "--spill", str(spill), *options]
        async with await anyio.open_process(arguments, stdout=DEVNULL, stderr=DEVNULL) as process:

            def journalled() -> dict[str, str]:
                return {
                    name: xxh3
                    for path in spill.glob("*/journal.jsonl")
                    for name, xxh3 in finished_files(path).items()
                }

            await until(lambda: len(journalled()) > 100)
            await run_sync(server.kill)
            await until(lambda: len(found(spill, "*/objects/*")) >= (1 if options else 20))
            process.kill()
            await process.wait()
            finished = await run_sync(journalled)
        await run_sync(server.start)
        uploaded = await run_dumpstream("upload", spill)

        assert uploaded.returncode == 0
        assert {name: xxh3_64_hexdigest(data) for name, data in bucket.files().items()} == finished
        assert not found(spill, "*")


async def test_what_a_killed_capture_left_is_not_mixed_into_another_one(
    bucket: Bucket, s3: S3Server, tmp_path: Path
) -> None:
    spill = tmp_path / "spill"
    capture = ["capture", "--out", bucket.url, "--buffer-bytes", "8M", "--simulate"]
    killed = [sys.executable, "-m", "dumpstream", *capture, "steps=5000", "--spill", str(spill)]
    async with await anyio.open_process(killed, stdout=DEVNULL, stderr=DEVNULL) as process:
        await until(lambda: any(finished_files(path) for path in found(spill, "*/journal.jsonl")))
        process.kill()
        await process.wait()
    await run_sync(obstore.delete, s3.client(), f"{bucket.prefix}/lock.json")

    another = await run_dumpstream(*capture, "small", "--force")
    files = await run_sync(bucket.files)
    uploaded = await run_dumpstream("upload", spill)

    assert another.returncode == 0
    assert uploaded.returncode == 1
    assert b"holds another capture by now" in uploaded.stderr
    assert await run_sync(bucket.files) == files
    assert found(spill, "*/journal.jsonl")


async def test_no_secret_is_written_anywhere(
    bucket: Bucket, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = ["capture", "--simulate", "small", "--buffer-bytes", "8M", "--spill", tmp_path / "spill"]
    done = [
        await run_dumpstream(*capture, "--out", bucket.url),
        await run_dumpstream(*capture, "--out", bucket.url),
        await run_dumpstream(
            *capture, "--out", tmp_path / "run", "--sink", f"{bucket.url}/sink", "--sink", "zstd:"
        ),
        await run_dumpstream(*capture, "--out", f"s3://no-such-bucket{'x' * 9}/run"),
    ]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    done.append(await run_dumpstream("upload", tmp_path / "spill"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"{SECRET}-id")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.environment["AWS_ENDPOINT_URL"])
    done.append(await run_dumpstream(*capture, "--out", f"{bucket.url}/other"))

    said = b"".join(process.stdout + process.stderr for process in done)
    left = b"".join(path.read_bytes() for path in found(tmp_path, "**/*") if path.is_file())
    stored = b"".join(bucket.get(key) for key in bucket.keys())  # noqa: SIM118 - as above
    assert [process.returncode for process in done] == [0, 1, 0, 1, 0, 1]
    assert SECRET.encode() not in said + left + stored


async def test_a_process_whose_last_act_is_an_upload_ends_in_order(bucket: Bucket) -> None:
    script = (
        "import asyncio, sys\n"
        "from dumpstream.system.location import Prefix\n"
        "from dumpstream.objectstore.store import Store\n"
        "asyncio.run(Store(Prefix.parse(sys.argv[1])).put('key', b'data'))\n"
    )

    codes = [
        (await anyio.run_process([sys.executable, "-c", script, bucket.url], check=False)).returncode
        for _ in range(8)
    ]

    assert codes == [0] * 8


async def test_full_spill_of_a_dropping_capture_loses_files_by_name_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_server(tmp_path / "weed") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket, spill = bucket_of(server, "run"), tmp_path / "spill"
        command = ["capture", "--out", bucket.url, "--simulate", "steps=50000", "--on-full", "drop", "--json"]
        arguments = [
            sys.executable,
            "-m",
            "dumpstream",
            *command,
            "--spill",
            str(spill),
            "--spill-bytes",
            "2M",
        ]
        async with await anyio.open_process(arguments, stderr=DEVNULL) as process:

            def journal() -> bytes:
                return b"".join(path.read_bytes() for path in spill.glob("*/journal.jsonl"))

            await until(lambda: b"complete" in journal())
            await run_sync(server.kill)
            await until(lambda: b"spill_full" in journal())
            await run_sync(server.start)
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            report = json.loads(b"".join([data async for data in process.stdout]))
        uploaded = await run_dumpstream("upload", spill)  # a server that has just started may hang

        rows = [row for row in bucket.rows() if row["type"] == "file" and row.get("cause") == "spill_full"]
        assert (process.returncode, uploaded.returncode) == (3, 0)
        assert report["losses"]["spill_full"]["chunks"] >= len(rows) > 0
        assert report["verdicts"]["lost"] >= len(rows)
        assert {row["verdict"] for row in rows} == {"lost"}
        assert report["failure"] is None


async def test_files_of_a_killed_capture_in_a_directory_come_into_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_server(tmp_path / "weed") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket, spill, run = bucket_of(server, "run"), tmp_path / "spill", tmp_path / "run"
        command = ["capture", "--out", str(run), "--sink", bucket.url, "--simulate", "steps=5000"]
        arguments = [sys.executable, "-m", "dumpstream", *command, "--spill", str(spill)]
        async with await anyio.open_process(arguments, stdout=DEVNULL, stderr=DEVNULL) as process:
            await until(lambda: len(finished_files(run / "journal.jsonl")) > 20)
            await run_sync(server.kill)
            (ahead,) = found(spill, "*/journal.jsonl")
            await until(lambda: len(finished_files(ahead)) > len(finished_files(run / "journal.jsonl")) + 5)
            process.kill()
            await process.wait()
        finished = finished_files(ahead)
        before = finished_files(run / "journal.jsonl")
        await run_sync(server.start)
        uploaded = await run_dumpstream("upload", spill)

        assert uploaded.returncode == 0
        assert len(before) < len(finished)
        assert finished_files(run / "journal.jsonl") == finished
        assert {f"files{name.replace('//', '/')}.dsz" for name in finished} <= set(bucket.keys())
        assert not found(spill, "*")
