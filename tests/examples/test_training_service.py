from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.verification import verify

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVICE = Path(__file__).parent.parent.parent / "examples" / "training_service.py"


class Client:
    """A connection to the service."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(LIMIT_S)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rw", encoding="utf-8", newline="\n")

    def send(self, line: str) -> None:
        self._lines.write(f"{line}\n")
        self._lines.flush()

    def receive(self) -> str:
        return self._lines.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        self.send(line)
        return self.receive()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class Service:
    """The example as a process of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.process = subprocess.Popen(
            [sys.executable, _SERVICE, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"listening on {path}\n"

    @contextmanager
    def connected(self) -> Iterator[Client]:
        client = Client(self._path)
        try:
            yield client
        finally:
            client.close()

    def ask(self, line: str) -> str:
        with self.connected() as client:
            return client.ask(line)

    def steps(self) -> int:
        found = re.match(r"step (\d+), capture: ", self.ask("status"))
        assert found is not None
        return int(found[1])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "control.sock")
    yield service
    service.process.kill()
    service.process.communicate()


def test_captures_cover_the_steps_that_were_asked_for(service: Service, tmp_path: Path) -> None:
    answers = [service.ask(f"capture {steps} {tmp_path / f'run{steps}'}") for steps in (2, 3)]
    service.ask("stop")
    _, errors = service.process.communicate(timeout=LIMIT_S)

    assert [answer.partition(",")[0] for answer in answers] == ["32 files", "48 files"]
    assert all(answer.endswith(" bytes, whole") for answer in answers)
    assert (service.process.returncode, errors) == (0, "")
    for steps in (2, 3):
        stored = StoredCapture.open(tmp_path / f"run{steps}")
        assert len(stored.files) == 16 * steps
        assert verify(stored).whole


def test_a_capture_that_fails_does_not_stop_the_training(service: Service, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    failure = service.ask(f"capture 2 {tmp_path / 'file'}")
    before = service.steps()
    answer = service.ask(f"capture 1 {tmp_path / 'run'}")

    assert failure == f"failed: {tmp_path / 'file'} is a file or is below one; choose a directory"
    assert answer.startswith("16 files")
    assert service.steps() > before
    assert service.process.poll() is None


def test_the_service_answers_while_it_captures(service: Service, tmp_path: Path) -> None:
    with service.connected() as client:
        client.send(f"capture 20 {tmp_path / 'run'}")
        while "capture: idle" in (status := service.ask("status")):
            pass
        answer = client.receive()

    assert re.fullmatch(r"step \d+, capture: \d+ files, \d+ bytes, whole", status)
    assert answer.startswith("320 files")


def test_a_client_that_goes_away_or_talks_nonsense_does_no_harm(service: Service, tmp_path: Path) -> None:
    with service.connected() as client:
        client.send(f"capture 1 {tmp_path / 'run'}")

    answers = [service.ask(line) for line in ("", "capture", "capture x y", "\0")]
    failure = service.ask("capture 1 \0")

    assert set(answers) == {"say capture STEPS DIRECTORY, status or stop"}
    assert failure == "failed: embedded null byte"
    assert service.ask("stop") == "stopping"
    assert service.process.wait(timeout=LIMIT_S) == 0
    assert verify(StoredCapture.open(tmp_path / "run")).whole
