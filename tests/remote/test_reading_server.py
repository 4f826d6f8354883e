"""Every command that reads a capture, on one in a real S3 server."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import obstore
import pytest
from anyio.to_thread import run_sync

from dumpstream import RingOptions, RingSource, StoredCapture, Verdict, open_capture
from dumpstream.archive.place import RESTORE
from dumpstream.archive.rows import FileRow
from dumpstream.cli import main
from dumpstream.objectstore.store import Store
from dumpstream.reading.stored import State
from dumpstream.reading.verification import verify
from s3server import BUCKET, SECRET

from .captures import push, push_all, small_files, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import CaptureBuilder, DumpBuilder

    from s3server import S3Server

    from .bucket import Bucket

pytestmark = pytest.mark.stores

_MIB = 1 << 20
_RUN = "/dump/20260530164725/0/net/1/0"


@pytest.fixture
def directory(builder: CaptureBuilder, dump_of: Callable[[str], DumpBuilder]) -> Path:
    """A capture with dumps of a watched operator, and a file with a gap."""
    for number, (name, value) in enumerate([("C", 0), ("A_To_C", 0), ("B_To_C", 7)]):
        data = dump_of(name).output(np.full((2, 3), value, np.float32)).build()
        builder.add(f"{_RUN}/Relu.{name}.{number}.1.178015966000000{number}", data, Verdict.COMPLETE)
    large = dump_of("large").output(np.frombuffer(os.urandom(6 * _MIB), np.uint8)).build()
    builder.add(f"{_RUN}/Relu.large.4.1.1780159660000009", large, Verdict.COMPLETE)
    builder.add_gapped("gapped", b"before", b"behind", 100)
    return builder.finish()


@pytest.fixture
def url(directory: Path, bucket: Bucket) -> str:
    """The same in the store."""
    copy(directory, bucket)
    return bucket.url


def copy(directory: Path, bucket: Bucket) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            key = f"{bucket.prefix}/{path.relative_to(directory)}"
            obstore.put(bucket.client, key, path.read_bytes())


def run(*arguments: object) -> int:
    return main([*map(str, arguments)])


def test_journal_is_fetched_once_and_again_when_it_has_changed(
    url: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    get_range = Store.get_range

    def noting(store: Store, key: str, start: int, length: int) -> Any:
        if length > 1:  # one byte only tells the entity tag
            fetched.append(key)
        return get_range(store, key, start, length)

    monkeypatch.setattr(Store, "get_range", noting)
    first = [file.name for file in StoredCapture.open(url).files]
    assert "journal.jsonl" in fetched

    fetched.clear()
    again = [file.name for file in StoredCapture.open(url).files]
    assert (again, "journal.jsonl" in fetched) == (first, False)

    journal = bytes(obstore.get(bucket.client, f"{bucket.prefix}/journal.jsonl").bytes())
    line = FileRow("new", 0, 1, Verdict.LOST, []).to_line().encode() + b"\n"
    obstore.put(bucket.client, f"{bucket.prefix}/journal.jsonl", journal + line)
    assert [file.name for file in StoredCapture.open(url).files] == [*first, "new"]


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize(
    "command",
    [
        ["ls"],
        ["ls", "--json"],
        ["verify", "--deep", "--json"],
        ["stats", "--format", "json"],
        ["show", "*Relu.large*"],
        ["overflow", "--json"],
        ["watch"],
    ],
    ids=lambda command: "-".join(command[:2]).replace("*", ""),
)
def test_command_says_of_a_store_what_it_says_of_a_directory(
    directory: Path, url: str, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    name, *more = command

    codes, said = [], []
    for place in (directory, url):
        codes.append(run(name, place, *more))
        said.append(capsys.readouterr())

    assert codes[0] == codes[1]
    assert said[0] == said[1]
    assert said[0].out


@pytest.mark.parametrize("command", ["extract", "convert"])
def test_command_writes_from_a_store_what_it_writes_from_a_directory(
    directory: Path, url: str, tmp_path: Path, command: str
) -> None:
    codes = [run(command, place, "--out", tmp_path / out) for place, out in ((directory, "a"), (url, "b"))]

    assert codes == [3, 3]  # a gap
    assert tree(tmp_path / "a") == tree(tmp_path / "b") != {}


@pytest.mark.parametrize("pack", [[], ["--pack"]])
def test_capture_at_a_url_is_read_back(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: list[str]
) -> None:
    captured = run("capture", "--out", bucket.url, "--simulate", "steps=3", "--json", *pack)
    report = json.loads(capsys.readouterr().out)
    shallow = run("verify", bucket.url, "--json")
    found = json.loads(capsys.readouterr().out)
    deep = run("verify", bucket.url, "--deep", "--json")
    verified = json.loads(capsys.readouterr().out)
    extracted = run("extract", bucket.url, "--out", tmp_path / "out")

    assert (captured, shallow, deep, extracted) == (0, 0, 0, 0)
    assert (found["parts"], found["found_parts"]) == (0, report["files"])
    assert (verified["parts"], verified["bytes"]) == (report["files"], report["bytes"])
    assert sum(map(len, tree(tmp_path / "out").values())) == report["bytes"]


def test_objects_that_were_shortened_are_told(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], builder: CaptureBuilder
) -> None:
    data = [os.urandom(100) for _ in range(3)]
    parts = [builder.add(f"{number}", it) for number, it in enumerate(data)]
    packed = parts[2]._replace(path="packs/1.zip", start=1000)
    builder.write(FileRow("packed", 100, 1, Verdict.UNPARSED, [packed]).to_line())
    copy(builder.finish(), bucket)
    obstore.put(bucket.client, f"{bucket.prefix}/files/0.zst", b"")
    obstore.put(bucket.client, f"{bucket.prefix}/files/1.zst", b"short")
    obstore.put(bucket.client, f"{bucket.prefix}/packs/1.zip", b"short")

    code = run("verify", bucket.url)

    assert code == 3
    assert capsys.readouterr().out.splitlines()[:3] == [
        f"damaged     0: files/0.zst has 0 bytes instead of {parts[0].stored_bytes}; {RESTORE}",
        f"damaged     1: files/1.zst has 5 bytes instead of {parts[1].stored_bytes}; {RESTORE}",
        f"damaged     packed: packs/1.zip has only 5 bytes; {RESTORE}",
    ]


def test_endpoint_in_the_url_is_enough(
    url: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")

    code = run("ls", f"{url}?endpoint=http://127.0.0.1:{s3.port}")

    assert code == 0
    assert SECRET not in capsys.readouterr().out


@pytest.mark.anyio
async def test_sink_of_its_own_is_read_from_the_capture_beside_it(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = small_files(40) | {"large": os.urandom(20 * _MIB), "odd ?#%25 name": b"data"}
    out = tmp_path / "run"
    async with open_capture(out, source=ring(), sinks=[bucket.url]):
        await run_sync(push_all, files)

    stored = await run_sync(StoredCapture.open, out)
    shallow = await run_sync(verify, stored)
    deep = await run_sync(lambda: verify(stored, deep=True))
    extracted = await run_sync(run, "extract", out, "--out", tmp_path / "files")
    obstore.delete(bucket.client, f"{bucket.prefix}/files/large.dsz")
    after = await run_sync(run, "verify", out)

    assert (shallow.whole, shallow.parts, shallow.found_parts) == (True, 0, len(files))
    assert (deep.whole, deep.parts, deep.found_parts) == (True, len(files), 0)
    assert extracted == 0
    assert tree(tmp_path / "files") == files
    assert after == 3
    assert f"missing     large: {bucket.url}/files/large.dsz is missing" in capsys.readouterr().out


def ring() -> RingSource:
    return RingSource(RingOptions(buffer_bytes=32 * _MIB))


@pytest.mark.anyio
async def test_running_capture_is_read_as_far_as_it_is_stored(bucket: Bucket) -> None:
    async with open_capture(bucket.url, source=ring()):
        await run_sync(push, "a", b"first")
        await until(lambda: any(key.startswith("journal/") for key in bucket.keys()))  # noqa: SIM118 - a method
        running = await run_sync(StoredCapture.open, bucket.url)
        data = await run_sync(lambda: b"".join(map(bytes, running.read_part(running.files[0].parts[0]))))
        await run_sync(push, "b", b"second")
    finished = await run_sync(StoredCapture.open, bucket.url)

    assert running.state is State.RUNNING
    assert running.writer == (os.getpid(), socket.gethostname())
    assert data == b"first"
    assert finished.state is State.FINISHED
    assert {file.name for file in await run_sync(list, finished.files)} == {"a", "b"}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("AWS_SECRET_ACCESS_KEY", "403, SignatureDoesNotMatch"),
        ("AWS_ACCESS_KEY_ID", "403, InvalidAccessKeyId"),
    ],
)
def test_wrong_credentials_are_told_and_not_shown(
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    message: str,
) -> None:
    monkeypatch.setenv(variable, f"not-{SECRET}")

    codes = [run(command, bucket.url) for command in ("ls", "stats")]

    said = capsys.readouterr()
    assert codes == [1, 1]
    assert [message in line for line in said.err.splitlines()] == [True, True]
    assert SECRET not in said.err


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("s3://no-such-bucket/run", "there is no such bucket; make it or choose another"),
        (f"s3://{BUCKET}/none", "holds no capture (no manifest.json); name a prefix that"),
    ],
)
@pytest.mark.usefixtures("s3")
def test_place_without_a_capture_is_one_line_with_the_remedy(
    capsys: pytest.CaptureFixture[str], place: str, message: str
) -> None:
    codes = [run(command, place) for command in ("ls", "stats")]

    said = capsys.readouterr()
    assert codes == [1, 1]
    assert [message in line for line in said.err.splitlines()] == [True, True]


@pytest.mark.usefixtures("s3")
def test_store_that_is_away_is_told_soon(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dumpstream.remote.place._RETRY_S", 0.2)
    with closing(socket.socket()) as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bound.getsockname()[1]}")

        code = run("ls", "s3://bucket/run")

    said = capsys.readouterr().err
    assert code == 1
    assert "does not answer (connection refused); check the network and the endpoint\n" in said


@pytest.mark.anyio
async def test_process_that_has_read_a_store_ends_in_order(url: str) -> None:
    codes: list[Any] = []

    async def read() -> None:
        done = await anyio.run_process([sys.executable, "-m", "dumpstream", "ls", url], check=False)
        codes.append(done.returncode)

    for _ in range(4):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(read)

    assert codes == [0] * 8
