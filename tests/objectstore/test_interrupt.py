"""Ctrl-C while a store takes connections and says nothing."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from s3server import ACCESS_KEY, SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import Popen

#: Well above what it may take, and below how long a store is asked.
_LIMIT_S = 20


class SilentStore:
    """Takes connections, and says nothing."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._connections: list[socket.socket] = []

    def wait(self) -> None:
        """Return when somebody has asked for something."""
        connection, _ = self._listener.accept()
        self._connections.append(connection)
        assert connection.recv(1)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SilentStore]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(40)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        silent = SilentStore(listener)
        yield silent
        silent.close()


def interrupt_each(store: SilentStore, commands: list[str], cwd: Path) -> list[tuple[int, str]]:
    """Run *commands* at once, interrupt each when all wait for *store*; return how they ended."""
    with ExitStack() as stack:
        processes = []
        for command in commands:
            processes.append(stack.enter_context(start(command, cwd)))
            stack.callback(processes[-1].kill)
        for _ in processes:
            store.wait()
        for process in processes:
            process.send_signal(signal.SIGINT)
        said = [process.communicate(timeout=_LIMIT_S)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def start(command: str, cwd: Path) -> Popen[str]:
    words = [sys.executable, "-m", "dumpstream", *shlex.split(command)]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=cwd)


def test_commands_that_read_end_soon(store: SilentStore, tmp_path: Path) -> None:
    commands = [
        "ls s3://bucket/run",
        "verify s3://bucket/run",
        "stats s3://bucket/run",
        "show s3://bucket/run name",
        "extract s3://bucket/run --out extracted",
        "convert s3://bucket/run --out converted",
        "overflow s3://bucket/run",
        "watch s3://bucket/run",
    ]

    assert interrupt_each(store, commands, tmp_path) == [(130, "")] * len(commands)


def test_captures_that_have_not_begun_end_soon_and_leave_nothing(store: SilentStore, tmp_path: Path) -> None:
    places = ["--out s3://bucket/run", "--out run --sink s3://bucket/run"]
    sources = ["--simulate", "-- touch started"]
    commands = [f"capture {place} --spill spill {source}" for place in places for source in sources]

    ended = interrupt_each(store, [*commands, "capture --out s3://bucket/run --simulate"], tmp_path)

    assert ended == [(1, "dumpstream: aborted; what was finished stays\n")] * 5
    assert {path.name for path in tmp_path.iterdir()} == {"spill", "state"}
    assert not [*(tmp_path / "spill").iterdir(), *(tmp_path / "state" / "dumpstream").iterdir()]
