"""What `dumpstream upload` does where other objects have appeared meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import zstandard
from anyio.to_thread import run_sync

from dumpstream.codec import Codec
from dumpstream.codec.blocks import encode_whole
from dumpstream.objectstore.store import Store
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.reconciliation import reconcile

from .captures import capturing, contents, found, leave_behind, push, run_dumpstream

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

    from .bucket import Bucket

pytestmark = [pytest.mark.anyio, pytest.mark.stores]


async def test_key_that_a_later_run_has_taken_is_left_to_it(bucket: Bucket, tmp_path: Path) -> None:
    async with capturing(bucket.url):
        pass
    await run_sync(leave_behind, tmp_path / "spill", bucket, {"a": b"first", "b": b"first too"})
    async with capturing(bucket.url, append=True):
        await run_sync(push, "a", b"second")

    uploaded = await run_dumpstream("upload", tmp_path / "spill")

    assert uploaded.returncode == 0
    assert contents(bucket) == [("a", b"first"), ("a", b"second"), ("b", b"first too")]
    assert not found(tmp_path, "spill/*")


async def test_object_that_was_uploaded_before_keeps_its_key(bucket: Bucket, tmp_path: Path) -> None:
    async with capturing(bucket.url):
        await run_sync(push, "a", b"first")
    await run_sync(leave_behind, tmp_path / "spill", bucket, {"b": b"again"})
    await run_sync(bucket.put, "files/b.dsz", encode_whole(Codec.AUTO, b"again"))

    uploaded = await run_dumpstream("upload", tmp_path / "spill")

    assert uploaded.returncode == 0
    assert contents(bucket) == [("a", b"first"), ("b", b"again")]
    assert "files/b.2.dsz" not in bucket.keys()  # noqa: SIM118 - a method of the test's own


async def test_nothing_is_uploaded_while_a_later_run_writes(bucket: Bucket, tmp_path: Path) -> None:
    async with capturing(bucket.url):
        pass
    await run_sync(leave_behind, tmp_path / "spill", bucket, {"a": b"first"})
    async with capturing(bucket.url, append=True):
        await run_sync(push, "b", b"second")
        early = await run_dumpstream("upload", tmp_path / "spill")
    late = await run_dumpstream("upload", tmp_path / "spill")

    assert (early.returncode, late.returncode) == (1, 0)
    assert b"upload again when that has ended, or in two minutes if it was killed" in early.stderr
    assert contents(bucket) == [("a", b"first"), ("b", b"second")]
    assert "lock.json" not in bucket.keys()  # noqa: SIM118 - as above


async def test_capture_that_has_replaced_another_is_not_mixed_with_it(bucket: Bucket, tmp_path: Path) -> None:
    async with capturing(bucket.url):
        pass
    await run_sync(leave_behind, tmp_path / "spill", bucket, {"a": b"first"})
    async with capturing(bucket.url, force=True):
        await run_sync(push, "a", b"second")

    uploaded = await run_dumpstream("upload", tmp_path / "spill")

    assert uploaded.returncode == 1
    assert b"holds another capture by now" in uploaded.stderr
    assert contents(bucket) == [("a", b"second")]


async def test_outbox_of_another_process_is_not_said_to_be_uploaded(bucket: Bucket, tmp_path: Path) -> None:
    async with capturing(bucket.url):
        pass
    await run_sync(leave_behind, tmp_path / "spill", bucket, {"a": b"first"})
    (path,) = found(tmp_path, "spill/*")
    outbox = await run_sync(Outbox.open, path)
    uploaded = await run_dumpstream("upload", tmp_path / "spill")
    await run_sync(outbox.close)

    assert uploaded.returncode == 1
    assert b"is using it" in uploaded.stderr


async def test_many_objects_are_on_their_way_at_once(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with capturing(bucket.url):
        pass
    files = {f"file{number:02}": b"%d" % number for number in range(40)}
    await run_sync(leave_behind, tmp_path / "spill", bucket, files)
    put, on_their_way, most = Store.put, 0, 0

    async def counted(store: Store, key: str, data: Buffer) -> str | None:
        nonlocal on_their_way, most
        on_their_way += 1
        most = max(most, on_their_way)
        try:
            return await put(store, key, data)
        finally:
            on_their_way -= 1

    monkeypatch.setattr(Store, "put", counted)
    outbox = await run_sync(Outbox.open, found(tmp_path, "spill/*")[0])
    result = await reconcile(outbox)
    await run_sync(outbox.close)

    assert (result.files, result.objects, result.lines) == (40, 40, 40)
    assert contents(bucket) == sorted(files.items())
    assert 1 < most <= 16


@pytest.mark.parametrize("beside", [False, True], ids=["capture", "sink"])
async def test_pack_that_a_killed_run_had_stored_and_not_written_down_is_deleted_and_no_other(
    bucket: Bucket, tmp_path: Path, *, beside: bool
) -> None:
    place, sinks = (tmp_path / "run", [bucket.url]) if beside else (bucket.url, ["zstd:"])
    spill, files = tmp_path / "spill", {f"file{number}": b"%d" % number for number in range(20)}
    await run_sync(kill_when_packed, str(place), sinks[0], spill, list(files))
    (description,) = found(spill, "*/outbox.json")
    (begin,) = json.loads(description.read_text())["packs"]
    token = begin.rpartition("/")[2]
    (named,) = (key for key in bucket.keys() if key.startswith("packs/"))  # noqa: SIM118 - as above
    for name in (f"{token}-000007", "0123abcd-000001"):
        await run_sync(bucket.put, f"packs/{name}.zip", b"")

    uploaded = await run_dumpstream("upload", spill)
    verified = await run_dumpstream("verify", place)

    assert uploaded.returncode == 0
    assert b"; deleted 1 pack that the run had not finished" in uploaded.stdout
    assert {key for key in bucket.keys() if key.startswith("packs/")} == {  # noqa: SIM118 - as above
        named,
        "packs/0123abcd-000001.zip",
    }
    assert named == f"packs/{token}-000001.zip"
    assert token.encode() not in verified.stdout
    if not beside:
        assert sorted(bucket.files()) == sorted(files)


async def test_directory_whose_capture_was_replaced_is_not_mixed_with_it(
    bucket: Bucket, tmp_path: Path
) -> None:
    run, spill = tmp_path / "run", tmp_path / "spill"
    await run_sync(kill_when_packed, str(run), bucket.url, spill, ["first"])
    async with capturing(run, force=True, sinks=["null:"]):
        await run_sync(push, "second", b"2")

    uploaded = await run_dumpstream("upload", spill)

    assert uploaded.returncode == 1
    assert b"holds another capture by now" in uploaded.stderr
    assert b"first" not in (run / "journal.jsonl").read_bytes()
    assert found(spill, "*/outbox.json")


async def test_nothing_is_uploaded_while_a_later_run_writes_to_the_directory(
    bucket: Bucket, tmp_path: Path
) -> None:
    run, spill = tmp_path / "run", tmp_path / "spill"
    await run_sync(kill_when_packed, str(run), bucket.url, spill, ["first"])
    async with capturing(run, append=True, sinks=["null:"]):
        early = await run_dumpstream("upload", spill)
    late = await run_dumpstream("upload", spill)

    assert (early.returncode, late.returncode) == (1, 0)
    assert b"upload again when that has ended" in early.stderr
    assert (run / "journal.jsonl").read_bytes().count(b'"first"') == 1


async def test_objects_without_a_line_are_removed_after_the_upload_and_not_before(
    bucket: Bucket, tmp_path: Path
) -> None:
    spill = tmp_path / "spill"
    await run_sync(kill_when_packed, bucket.url, "zstd:", spill, ["first"])
    await run_sync(bucket.put, "files/extra.zst", zstandard.compress(b"without a line"))
    await run_sync(bucket.put, "files/notes.txt", b"")

    early = await run_dumpstream("verify", "--repair", bucket.url)
    uploaded = await run_dumpstream("upload", spill)
    repaired = await run_dumpstream("verify", "--repair", bucket.url)

    assert (early.returncode, uploaded.returncode, repaired.returncode) == (1, 0, 3)
    assert b"repair it when that has ended, or in two minutes" in early.stderr
    assert repaired.stdout.splitlines()[0] == b"removed     files/extra.zst: no line of the journal names it"
    assert bucket.files() == {"first": b"0"}
    keys = bucket.keys().keys()
    assert "files/notes.txt" in keys
    assert not {"files/extra.zst", "lock.json"} & keys


def kill_when_packed(place: str, sink: str, spill: Path, names: list[str]) -> None:
    """Let a process capture files called *names* into a pack, and kill it when they are in its journal."""
    script = (
        "import ctypes, os, signal, sys, anyio\n"
        "from dumpstream import RingOptions, RingSource, _native, open_capture\n"
        "async def main(place, sink, spill, *names):\n"
        "    source = RingSource(RingOptions(buffer_bytes=8 << 20))\n"
        "    options = {'sinks': [sink], 'spill': spill, 'pack': True}\n"
        "    async with open_capture(place, source=source, **options) as capture:\n"
        "        for number, name in enumerate(names):\n"
        "            data = ctypes.create_string_buffer(b'%d' % number, 4)\n"
        "            size = len(b'%d' % number)\n"
        "            _native.push(os.fsencode(name), ctypes.addressof(data), size, True, -1, 0)\n"
        "        while capture.report.files < len(names):\n"
        "            await anyio.sleep(0.01)\n"
        "        await capture._session._journal.drain()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "anyio.run(main, *sys.argv[1:])\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, place, sink, str(spill), *names], check=False)
    assert killed.returncode == -signal.SIGKILL
