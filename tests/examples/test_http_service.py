from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import LIMIT_S

from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.verification import verify

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVICE = Path(__file__).parent.parent.parent / "examples" / "http_service.py"


class Service:
    """The example as a process of its own."""

    def __init__(self, run: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, _SERVICE, run, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", self.process.stdout.readline())
        assert found is not None
        self.port = int(found[1])

    def ask(self, path: str, method: str = "GET") -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def send(self, data: bytes) -> bytes:
        """Send *data*, and return all that comes back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            return client.makefile("rb").read()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "run")
    yield service
    service.process.kill()
    service.process.communicate()


def test_it_answers_while_it_trains_and_ends_cleanly_on_sigterm(service: Service, tmp_path: Path) -> None:
    _, first = service.ask("/progress")
    _, later = service.ask("/progress?wait=1")
    nan = None
    while nan is None:
        status, answer = service.ask("/nan")
        nan = answer["nan"]
    with socket.create_connection(("127.0.0.1", service.port)) as silent:
        service.ask("/progress")  # so that the silent client has been let in
        service.process.send_signal(signal.SIGTERM)
        output, errors = service.process.communicate(timeout=LIMIT_S)
        assert silent.recv(1) == b""

    assert status == 200
    assert later["chunks"] > first["chunks"] or later["files"] > first["files"]
    assert nan["nan"] > 0
    assert nan["op_name"].startswith("layer_5")
    assert (service.process.returncode, errors) == (0, "")
    assert output.endswith("whole: True\n")
    assert verify(StoredCapture.open(tmp_path / "run")).whole


def test_requests_that_make_no_sense_do_no_harm(service: Service) -> None:
    answers = [
        service.ask("/elsewhere")[0],
        service.ask("/progress", "POST")[0],
        int(service.send(b"nonsense\r\n\r\n").split()[1]),
    ]
    silent = [service.send(data) for data in (b"", b"GET /progress", b"x" * 100_000, b"\xff\r\n")]

    assert answers == [404, 405, 400]
    assert silent == [b""] * 4
    assert service.ask("/progress")[0] == 200
    assert service.process.poll() is None
