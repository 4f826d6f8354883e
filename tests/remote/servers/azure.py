"""A real Azure Blob server on loopback: azurite, in a directory and on a port of its own."""

from __future__ import annotations

import base64
import hmac
import os
import secrets
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import obstore
from obstore.store import AzureStore
from tests.conftest import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Where `make` installs it.
AZURITE = Path(__file__).parents[3] / "build/azurite/node_modules/.bin/azurite-blob"
ACCOUNT = "account"
CONTAINER = "container"
#: Easy to look for wherever it must not be.
KEY = base64.b64encode(b"marker-of-a-secret-account-key").decode()

_VERSION = "2021-12-02"
#: Whatever proxy a test has set when the first request is made.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AzureServer:
    """azurite in *directory*, with one account and one container."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def start(self) -> None:
        """Start it, and wait until it has made the container."""
        arguments = [str(AZURITE), "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        arguments += ["--location", str(self._directory), "--blobHost", "127.0.0.1"]
        arguments += ["--blobPort", str(self.port)]
        self._process = subprocess.Popen(
            arguments,
            env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._directory,
        )
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                self._ask("PUT", {"restype": "container"})
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """End it without a warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self) -> AzureStore:
        """Return what reaches its container, without dumpstream."""
        return AzureStore(
            CONTAINER,
            account_name=ACCOUNT,
            account_key=KEY,
            endpoint=self.endpoint,
            client_options={"allow_http": True},
        )

    def uploads(self, prefix: str) -> list[str]:
        """Return the objects below *prefix* that are only blocks, not committed."""
        query = {"comp": "list", "include": "uncommittedblobs", "prefix": prefix, "restype": "container"}
        listed = self._ask("GET", query)
        every = {name.text or "" for name in ET.fromstring(listed).iter("Name")}
        whole = {meta["path"] for page in obstore.list(self.client(), prefix) for meta in page}
        return sorted(every - whole)

    def _ask(self, method: str, query: dict[str, str]) -> bytes:
        """Ask for what obstore cannot do with the container, with the signature of a shared key."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        # The account is there twice: as the owner, and as the first part of the path.
        lines = [f"{name}:{value}" for name, value in headers.items()]
        lines += [f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}"]
        lines += [f"{name}:{value}" for name, value in sorted(query.items())]
        text = method + "\n" * 12 + "\n".join(lines)
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
        headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
        url = f"{self.endpoint}/{CONTAINER}?{urlencode(query)}"
        request = urllib.request.Request(url, method=method, headers=headers)
        with _DIRECT.open(request, timeout=LIMIT_S) as answer:
            data: bytes = answer.read()
            return data


@contextmanager
def running_azure_server(directory: Path) -> Iterator[AzureServer]:
    """Run a server in *directory*, which is deleted afterwards."""
    server = AzureServer(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    """Return a port that is free, and that the kernel gives to no client meanwhile."""
    while True:
        port = 30_000 + secrets.randbelow(2_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
