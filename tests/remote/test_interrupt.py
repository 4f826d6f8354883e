"""Ctrl-C while a store accepts connections and does not answer."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from s3server import ACCESS_KEY, SECRET

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import Popen

#: Well above what it may take, and below how long a store is asked.
_LIMIT_S = 100


def interrupt_each(commands: list[str], cwd: Path) -> list[tuple[int, str]]:
    """Run *commands* at once, and interrupt each when it waits for a store; return how they ended."""
    with ThreadPoolExecutor(len(commands)) as executor:
        return list(executor.map(partial(interrupt, cwd=cwd), commands))


def interrupt(command: str, cwd: Path) -> tuple[int, str]:
    with socket.create_server(("127.0.0.1", 0)) as store:
        store.settimeout(_LIMIT_S)
        with start(command, cwd, f"http://127.0.0.1:{store.getsockname()[1]}") as process:
            try:
                connection, _ = store.accept()
                with connection:
                    assert connection.recv(1)
                    process.send_signal(signal.SIGINT)
                    _, said = process.communicate(timeout=_LIMIT_S)
            finally:
                process.kill()
    return process.returncode, said


def start(command: str, cwd: Path, endpoint: str) -> Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dumpstream", *shlex.split(command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={
            **os.environ,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "XDG_STATE_HOME": str(cwd / "state"),
        },
    )


def test_commands_that_read_end_soon(tmp_path: Path) -> None:
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

    assert interrupt_each(commands, tmp_path) == [(130, "")] * len(commands)


def test_captures_that_have_not_begun_end_soon_and_leave_nothing(tmp_path: Path) -> None:
    places = ["--out s3://bucket/run", "--out run --sink s3://bucket/run"]
    sources = ["--simulate", "-- touch started"]
    commands = [f"capture {place} --spill spill {source}" for place in places for source in sources]

    ended = interrupt_each([*commands, "capture --out s3://bucket/run --simulate"], tmp_path)

    assert ended == [(1, "dumpstream: aborted; what was finished stays\n")] * 5
    assert {path.name for path in tmp_path.iterdir()} == {"spill", "state"}
    assert not [*(tmp_path / "spill").iterdir(), *(tmp_path / "state" / "dumpstream").iterdir()]
