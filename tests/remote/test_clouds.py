"""Captures into stores that are not plain S3: Azure, Google's dialect, and S3 as Huawei OBS has it."""

from __future__ import annotations

import os
from shutil import which
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream._errors import ObjectMissingError, StoreError
from dumpstream.archive.place import WritingProcess
from dumpstream.cli import main
from dumpstream.objectstore.store import PART_BYTES, Store
from dumpstream.remote.storelock import take_store_lock
from dumpstream.simulation import Workload
from dumpstream.system.location import Prefix
from s3server import ACCESS_KEY, BUCKET, SECRET

from .captures import capturing, found, push, run_dumpstream, until
from .conftest import enter
from .servers.azure import ACCOUNT, KEY
from .servers.google import GoogleServer, ServiceAccount
from .servers.obs import OldServer

if TYPE_CHECKING:
    from pathlib import Path

    from s3server import S3Server

    from .bucket import Bucket
    from .servers.azure import AzureServer
    from .servers.cloud import Cloud
    from .servers.obs import ObsServer

pytestmark = pytest.mark.stores

_MIB = 1 << 20
_SMALL = "small"
#: A file that goes out in parts, and one that is text, which is small enough for a pack.
_LARGE = "models=1,ops=2,seed=1,tensor_bytes=4500000,dtypes=float32,stats_text=1"


def expected() -> dict[str, bytes]:
    """Return what both workloads dump, by the last component of its name."""
    files = [file for text in (_SMALL, _LARGE) for file in Workload.parse(text).expected_files("/dump")]
    return {file.name.rpartition("/")[2]: file.data for file in files}


def extracted(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def run(*arguments: object) -> int:
    return main([*map(str, arguments)])


@pytest.mark.anyio
async def test_capture_is_whole_and_read_in_place(
    cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = ["capture", "--out", cloud.url, "--spill", tmp_path / "spill", "--json", "--simulate"]
    done = [
        await run_dumpstream(*capture, _SMALL),
        await run_dumpstream(*capture, _LARGE, "--append", "--pack"),
    ]
    codes = [
        await run_sync(run, command, cloud.url, *more)
        for command, *more in (
            ("ls",),
            ("verify",),
            ("verify", "--deep", "--json"),
            ("stats", "--format", "json"),
            ("show", "*1797566767000028"),  # the large one
            ("extract", "--out", tmp_path / "out"),
        )
    ]

    said = "".join(capsys.readouterr()).encode() + b"".join(it.stdout + it.stderr for it in done)
    stored = await run_sync(cloud.objects)
    assert [it.returncode for it in done] == [0, 0]
    assert codes == [0] * 6
    assert await run_sync(extracted, tmp_path / "out") == await run_sync(expected)
    assert any(len(data) > PART_BYTES for data in stored.values())  # so it went out in parts
    assert any(key.startswith("packs/") for key in stored)
    assert b'"whole": true' in said
    assert "lock.json" not in stored
    assert cloud.uploads() == []
    assert not found(tmp_path, "spill/*")
    assert cloud.secret.encode() not in said + b"".join(stored.values())


@pytest.mark.parametrize("failure", ["wrong credentials", "missing bucket"])
def test_failure_is_one_line_with_the_remedy(
    cloud: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    failure: str,
) -> None:
    url, message = cloud.missing, f"there is no such {cloud.kind}; make it or choose another"
    if failure == "wrong credentials":
        url, message = cloud.url, cloud.refusal
        for name, value in cloud.wrong.items():
            monkeypatch.setenv(name, value)

    codes = [
        run("ls", url),
        run("stats", url),
        run("capture", "--out", url, "--simulate", "small"),
        run("capture", "--out", tmp_path / "run", "--sink", url, "--simulate", "small"),
    ]

    said = capsys.readouterr().err.splitlines()
    assert codes == [1, 1, 1, 1]
    assert [message in line for line in said] == [True] * 4
    assert not any(cloud.secret in line for line in said)
    assert cloud.objects() == {}
    assert not (tmp_path / "run").exists()


@pytest.mark.anyio
async def test_cancelled_upload_leaves_nothing(cloud: Cloud) -> None:
    with anyio.CancelScope() as scope:
        async with capturing(cloud.url) as capture:
            for _ in range(12):
                await run_sync(lambda: push("large", os.urandom(3 * _MIB), last=False))
            await until(lambda: bool(cloud.uploads()))
            scope.cancel()

    stored = await run_sync(cloud.objects)
    await until(lambda: cloud.forgets or not cloud.uploads())
    assert not any(key.startswith("files/") for key in stored)
    assert capture.report.verdicts == {"lost": 1}


@pytest.mark.anyio
async def test_store_has_what_captures_need(cloud: Cloud) -> None:
    store = Store(Prefix.parse(cloud.url))

    tags = {key: await store.put(key, b"0123456789") for key in ("a", "b/c", "b/d e#?%25/ü")}
    created = [await run_sync(store.create, "lock", text) for text in (b"one", b"two")]
    ranges = [await run_sync(store.get_range, "a", start, 5) for start in (2, 8, 10, 20)]
    empty = await run_sync(store.get_range, "a", 3, 0)
    listed = {entry.key: entry.etag for entry in await run_sync(lambda: list(store.entries()))}

    assert created == [True, False]
    assert await run_sync(store.get, "lock") == b"one"
    assert [data for _, data in ranges] == [b"23456", b"89", b"", b""]
    assert empty[1] == b""
    assert {entry.bytes for entry, _ in (*ranges, empty)} == {10}
    assert listed.keys() == tags.keys() | {"lock"}
    assert all((listed[key] or "").strip('"') == (tag or "").strip('"') for key, tag in tags.items())
    folders, keys = await run_sync(store.children)
    assert folders == {"b"}
    assert keys == {key for key in listed if "/" not in key}
    await run_sync(store.delete, "a")
    await run_sync(store.delete, "a")
    with pytest.raises(ObjectMissingError):
        await run_sync(store.head, "a")


@pytest.mark.parametrize(
    "variables",
    [
        {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": "{}",
        },
        {"AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": KEY, "AZURE_ENDPOINT": "{}"},
        {
            "AZURE_STORAGE_ACCOUNT": "another",
            "AZURE_STORAGE_CONNECTION_STRING": f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={{}}/;",
        },
        {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": "{}/..",  # without the account
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        },
    ],
    ids=["obstore", "tools", "connection string", "emulator"],
)
def test_azure_is_found_by_the_variables_alone(
    azure: Cloud,
    azure_server: AzureServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variables: dict[str, str],
) -> None:
    urls = {name: value.format(azure_server.endpoint) for name, value in variables.items()}
    enter(monkeypatch, urls, tmp_path)

    store = Store(Prefix.parse(f"{azure.root}/{azure.prefix}"), retry_s=0)
    store.write("key", b"data")

    assert azure.objects() == {"key": b"data"}


def test_google_is_found_by_the_variables_alone(
    google: Cloud, google_server: GoogleServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    enter(monkeypatch, {**google.environment, "GOOGLE_BASE_URL": google_server.endpoint}, tmp_path)

    store = Store(Prefix.parse(f"{google.root}/{google.prefix}"), retry_s=0)
    store.write("key", b"data")

    assert google.objects() == {"key": b"data"}


@pytest.mark.skipif(which("openssl") is None, reason="openssl, which makes the key, is not installed")
def test_google_gets_tokens_that_a_service_account_has_signed(
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    key, other = ServiceAccount(tmp_path / "key.json"), ServiceAccount(tmp_path / "other.json")
    said = {}

    with GoogleServer(s3_server.port, key.has_signed).running() as server:
        for account in (key, other):
            enter(monkeypatch, {"GOOGLE_APPLICATION_CREDENTIALS": str(account.path)}, tmp_path)
            assert run("ls", f"gs://{BUCKET}/none?endpoint={server.endpoint}") == 1
            said[account] = capsys.readouterr().err

    assert "holds no capture (no manifest.json)" in said[key]
    assert "(401, AuthenticationRequired); the token is wrong or has expired" in said[other]


def test_obs_has_the_bucket_in_its_host_name(
    obs: Cloud, obs_server: ObsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    enter(monkeypatch, obs.environment, tmp_path)

    code = run("capture", "--out", obs.url, "--simulate", "small")

    assert code == 0
    assert obs_server.hosts == {obs_server.host}
    assert obs_server.unpromised == set()


def test_obs_is_found_by_the_variables_of_either_tools(
    obs: Cloud, obs_server: ObsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    endpoint, proxy = obs.options.partition("=")[2], obs.environment["HTTP_PROXY"]
    keys = {"ACCESS_KEY_ID": ACCESS_KEY, "SECRET_ACCESS_KEY": SECRET}
    huawei = {f"OBS_{name}": value for name, value in keys.items()} | {"OBS_ENDPOINT": endpoint}
    aws = {f"AWS_{name}": value for name, value in keys.items()} | {"AWS_ENDPOINT_URL": endpoint}

    for number, variables in enumerate([huawei, aws, huawei | {"AWS_SESSION_TOKEN": "of another store"}]):
        enter(monkeypatch, {**variables, "HTTP_PROXY": proxy}, tmp_path)
        Store(Prefix.parse(f"{obs.root}/{obs.prefix}"), retry_s=0).write(f"{number}", b"data")

    assert obs.objects().keys() == {"0", "1", "2"}


def test_s3_may_have_the_bucket_in_the_host_name_and_lack_conditional_writes(
    obs: Cloud, obs_server: ObsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    enter(monkeypatch, {**keys, "HTTP_PROXY": obs.environment["HTTP_PROXY"]}, tmp_path)

    url = obs.url.replace("obs:", "s3:", 1)
    code = run("capture", "--out", f"{url}&addressing=virtual", "--simulate", "small")

    assert code == 0
    assert obs_server.hosts == {obs_server.host}
    assert "if-none-match" in obs_server.unpromised


def test_locks_of_captures_that_begin_at_once_on_obs_have_one_holder(
    obs: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    enter(monkeypatch, obs.environment, tmp_path)
    prefix = Prefix.parse(obs.url)

    class Overtaken(Store):
        """Another process, which has seen no lock either, writes after this one."""

        def create(self, key: str, data: bytes) -> bool:
            taken = super().create(key, data)
            self.write(key, b'{"pid": 7, "host": "other"}')
            return taken

    holder = take_store_lock(Overtaken(prefix), b'{"pid": 1}')

    assert holder == WritingProcess(7, "other")


@pytest.mark.anyio
async def test_list_that_the_store_cuts_short_is_not_taken_for_whole(
    s3_server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Store(Prefix.parse(bucket.url)).put
    async with anyio.create_task_group() as tasks:
        for number in range(1001):
            tasks.start_soon(put, str(number), b"")

    with OldServer(s3_server.port).running() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
        store = Store(Prefix.parse(bucket.url))
        whole = await run_sync(lambda: {entry.key for entry in store.entries()})
        server.deaf = True
        with pytest.raises(StoreError, match="lists only some objects; capture with --pack"):
            await run_sync(lambda: list(store.entries()))

    assert whole == {str(number) for number in range(1001)}
