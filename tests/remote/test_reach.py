"""Stores that cannot be reached, and how soon that is told."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from dumpstream._errors import StoreError
from dumpstream.cli import main
from dumpstream.remote.place import Buckets
from dumpstream.system.location import Prefix

from .conftest import enter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: What a person waits for a reading command, and for a capture to begin.
_READING_S, _BEGINNING_S = 5, 12
_COMMANDS = [
    *("ls {}", "verify {}", "show {} *", "stats {}", "overflow {}", "watch {}"),
    *("extract {} --out out", "convert {} --out out"),
]


@contextmanager
def nowhere(kind: str) -> Iterator[tuple[str, str]]:
    """Yield an endpoint that is not a store's, and why it does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        if kind == "silent":  # connections are accepted by the kernel
            yield endpoint, "timed out"
            return
    if kind == "refused":
        yield endpoint, "connection refused"
    else:
        yield "http://no-such-host.invalid", "there is no such host"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "NO_PROXY": "*"}
    enter(monkeypatch, keys, tmp_path)
    monkeypatch.chdir(tmp_path)


def told(capsys: pytest.CaptureFixture[str], limit_s: float, *arguments: str) -> str:
    """Return the one line that the command says when it fails, which is within *limit_s* seconds."""
    began = time.monotonic()
    code = main([*arguments])
    seconds = time.monotonic() - began

    (said,) = capsys.readouterr().err.splitlines()
    assert code == 1
    assert seconds < limit_s
    return said


@pytest.mark.parametrize("kind", ["refused", "silent", "unknown"])
def test_endpoint_is_named_within_seconds(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with nowhere(kind) as (endpoint, reason):
        said = told(capsys, _READING_S, "ls", f"s3://bucket/run?endpoint={endpoint}")

    assert f"s3://bucket/run: {endpoint} does not answer ({reason}); check the network" in said
    assert "lock.json" not in said
    assert ".dumpstream-probe" not in said


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_reading_command_tells_soon(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with nowhere("refused") as (endpoint, _):
        url = f"s3://bucket/run?endpoint={endpoint}"
        said = told(capsys, _READING_S, *command.format(url).split())

    assert f"{endpoint} does not answer (connection refused)" in said


@pytest.mark.parametrize("kind", ["refused", "silent"])
@pytest.mark.parametrize(
    "where", [["--out", "{}"], ["--out", "run", "--sink", "{}"]], ids=["destination", "sink"]
)
def test_capture_waits_no_longer_than_a_person_before_it_begins(
    kind: str, where: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with nowhere(kind) as (endpoint, reason):
        url = f"s3://bucket/run?endpoint={endpoint}"
        arguments = [word.format(url) for word in where]
        said = told(capsys, _BEGINNING_S, "capture", "--simulate", "small", *arguments)

    assert f"{endpoint} does not answer ({reason}); check the network" in said
    assert said.count("s3://bucket/run") == 1
    assert "lock.json" not in said
    assert not (tmp_path / "run").exists()


def test_bucket_that_a_journal_names_is_asked_once(tmp_path: Path) -> None:
    with nowhere("refused") as (endpoint, _):
        buckets = Buckets(Prefix.parse(f"s3://bucket/run?endpoint={endpoint}"))
        began = time.monotonic()
        for number in range(50):
            with pytest.raises(StoreError, match="does not answer"):
                buckets.open(f"s3://other/{number}.zst", 0, None)

    assert time.monotonic() - began < _READING_S


@pytest.mark.parametrize("bucket", ["{}#", "{}?", "a@{}#", "{}\\", ""])
def test_journal_does_not_choose_the_host_that_requests_go_to(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")  # the bucket is part of the host's name
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        listener.setblocking(False)
        with pytest.raises(StoreError, match="the journal is not to be trusted"):
            Buckets(tmp_path).open(f"s3://{bucket.format(host)}/key", 0, 10)

        with pytest.raises(BlockingIOError):  # no connection has come
            listener.accept()
