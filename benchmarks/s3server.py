"""A real S3 server on loopback: seaweedfs, in a directory and on ports of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.store import S3Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import S3Config

BUCKET = "bucket"
ACCESS_KEY = "testkey"
#: The server also answers to ``BUCKET.DOMAIN``.
DOMAIN = "obs.test"
#: Easy to find where it must not be.
SECRET = "marker-of-a-secret"  # noqa: S105 - as it says
WEED = Path(sys.executable).with_name("weed")

_START_S = 120
#: Ignores the proxy that a test may have set when the first request is made.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class S3Server:
    """seaweedfs in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = _free_ports(5)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """Where it answers."""
        return self._ports[0]

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it, and wait until it takes objects."""
        s3, master, volume, filer, admin = self._ports
        arguments = [
            str(WEED),
            "mini",
            f"-dir={self._directory}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-s3.port={s3}",
            f"-s3.domainName={DOMAIN}",
            f"-master.port={master}",
            f"-volume.port={volume}",
            f"-filer.port={filer}",
            f"-admin.port={admin}",
            "-webdav=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-bucket={BUCKET}",
        ]
        self._process = subprocess.Popen(
            arguments,
            env={**os.environ, **self.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._directory,
        )
        self._await_volumes()

    def kill(self) -> None:
        """End it without a warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self, config: S3Config | None = None) -> S3Store:
        """Return what reaches its bucket, without dumpstream."""
        return S3Store(
            BUCKET,
            endpoint=self.environment["AWS_ENDPOINT_URL"],
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET,
            region="us-east-1",
            client_options={"allow_http": True},
            retry_config={"max_retries": 3},
            config=config,
        )

    def uploads(self) -> list[str]:
        """Return the multipart uploads that are neither finished nor aborted."""
        url = f"http://127.0.0.1:{self._ports[3]}/buckets/{BUCKET}/.uploads/"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        try:
            with _DIRECT.open(request, timeout=10) as answer:
                return [entry["FullPath"] for entry in json.load(answer)["Entries"] or ()]
        except urllib.error.HTTPError as exc:
            if exc.code != HTTPStatus.NOT_FOUND:
                raise
            return []  # there has never been one

    def _await_volumes(self) -> None:
        deadline = time.monotonic() + _START_S
        client = self.client()
        while True:
            try:
                obstore.put(client, "started", b"not empty: its volumes answer later than its front")
                obstore.delete(client, "started")
            except Exception:
                if time.monotonic() > deadline or (self._process and self._process.poll() is not None):
                    raise
                time.sleep(0.05)
            else:
                return


@contextmanager
def running_server(directory: Path) -> Iterator[S3Server]:
    """Run a server in *directory*, which is deleted afterwards."""
    directory.mkdir(exist_ok=True)
    server = S3Server(directory)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    """Return ports that are free, with the port 10,000 above, which the server takes too.

    They lie below the ports that the kernel gives to clients, so that no client takes one meanwhile.
    """
    ports: set[int] = set()
    while len(ports) < count:
        port = 10_000 + secrets.randbelow(10_000)
        with socket.socket() as probe, socket.socket() as above, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            above.bind(("127.0.0.1", port + 10_000))
            ports.add(port)
    return list(ports)
