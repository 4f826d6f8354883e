"""Stores that answer as no honest one would: reading them ends, and takes no more memory than asked for."""

from __future__ import annotations

import itertools
import json
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from dumpstream import NotACaptureError, StoredCapture
from dumpstream._errors import StoreError
from dumpstream.archive.manifest import Manifest, Run, manifest_text
from dumpstream.archive.place import WritingProcess
from dumpstream.archive.rows import BeginRow, MergedRow
from dumpstream.cli import main
from dumpstream.objectstore.store import Store
from dumpstream.remote.segments import read_journal
from dumpstream.remote.storelock import find_lock
from dumpstream.system.location import Prefix

from .servers.hostile import Answer, HostileServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MIB = 1 << 20
_PREFIX = "s3://bucket/run"
_LINE = BeginRow(1, "now").to_line().encode() + b"\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HostileServer]:
    """A server with a capture that has a journal of more than a request's worth."""
    run = Run(run=1, started="now", python="3", platform="linux")
    manifest = manifest_text(Manifest(dumpstream="1", created="now", runs=[run])).encode()
    journal = MergedRow(1).to_line().encode() + b"\n" + _LINE * (2 * _MIB // len(_LINE))
    server = HostileServer({"run/manifest.json": manifest, "run/journal.jsonl": journal})
    with server.running() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        yield server


@pytest.fixture
def store(server: HostileServer) -> Store:
    return Store(Prefix.parse(_PREFIX), retry_s=1)


def test_honest_answers_are_read(server: HostileServer, store: Store) -> None:
    lines = read_journal(store, list)

    assert b"".join(lines) == server.objects["run/journal.jsonl"]


def test_journal_that_comes_shorter_than_the_store_says_is_an_error(
    server: HostileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = server.objects["run/journal.jsonl"]

    def shorten(key: str, start: int, end: int) -> Answer | None:
        short = journal[start : end - 1]
        return (
            Answer(len(journal) - 1, [short], len(short)) if key.endswith("journal.jsonl") and start else None
        )

    server.answer = shorten

    assert main(["verify", _PREFIX]) == 1
    assert "the journal is another one whenever it is read" in capsys.readouterr().err
    assert server.asked["run/journal.jsonl"] <= 20


def test_marker_that_is_never_the_same_is_an_error(server: HostileServer, store: Store) -> None:
    numbers = itertools.cycle([9, 8, 7])  # they go backwards, too

    def mark(key: str, start: int, end: int) -> Answer | None:
        text = MergedRow(next(numbers)).to_line().encode() + b"\n"
        return Answer(len(text), [text], len(text)) if key.endswith("journal.jsonl") else None

    server.answer = mark

    with pytest.raises(StoreError, match="another one whenever it is read"):
        read_journal(store, list)


def test_segment_that_is_listed_and_not_there_is_an_error(server: HostileServer, store: Store) -> None:
    server.objects = {"run/journal/000001.jsonl": _LINE, "run/journal/000002.jsonl": _LINE}
    assert read_journal(store, list) == [_LINE, _LINE]

    server.objects = Listed(server.objects)

    with pytest.raises(StoreError, match="another one whenever it is read"):
        read_journal(store, list)


class Listed(dict[str, bytes]):
    """Objects that are listed; the second segment cannot be read."""

    def __contains__(self, key: object) -> bool:
        return key != "run/journal/000002.jsonl" and super().__contains__(key)


def test_segment_with_an_endless_number_is_not_one(server: HostileServer, store: Store) -> None:
    server.objects = {"run/journal/000001.jsonl": _LINE, f"run/journal/{'9' * 5000}.jsonl": _LINE}

    assert read_journal(store, list) == [_LINE]


def test_listing_that_begins_again_is_an_error(server: HostileServer, store: Store) -> None:
    server.objects |= {f"run/files/{number}.zst": b"" for number in range(600)}
    server.more = "again"

    with pytest.raises(StoreError, match="lists the same objects again"):
        for _ in zip(store.entries(), range(5000), strict=False):
            pass


@pytest.mark.parametrize("text", [b'{"pid": Infinity}', b"[" * 4096, b'{"pid": []}', b"\xff", b"7"])
def test_lock_with_any_text_is_one_of_an_unknown_process(
    server: HostileServer, store: Store, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpstream.remote.storelock.STALE_S", float("inf"))
    server.objects["run/lock.json"] = text

    assert find_lock(store) == WritingProcess(0)


@pytest.mark.parametrize("field", ["format", "runs", "processes"])
def test_manifest_with_an_infinite_number_is_not_one(server: HostileServer, field: str) -> None:
    wrong = {"format": float("inf"), "runs": [{"run": float("inf")}], "processes": [{"pid": float("inf")}]}
    manifest = json.loads(server.objects["run/manifest.json"]) | {field: wrong[field]}
    server.objects["run/manifest.json"] = json.dumps(manifest).encode()

    with pytest.raises(NotACaptureError):
        StoredCapture.open(_PREFIX)


@pytest.mark.anyio
@pytest.mark.parametrize("key", ["run/manifest.json", "run/journal.jsonl", "run/lock.json"])
async def test_object_without_an_end_is_an_error_and_not_all_of_the_memory(
    server: HostileServer, key: str
) -> None:
    server.objects.setdefault(key, bytes(_MIB))
    size = len(server.objects[key])
    server.answer = lambda asked, *_: Answer(size, _endless(), 1 << 40) if asked == key else None
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 30,) * 2)"
    code = f"{limit}; from dumpstream.cli import main; sys.exit(main(['ls', {_PREFIX!r}]))"

    ended = await anyio.run_process([sys.executable, "-c", code], check=False)

    assert ended.returncode == 1
    assert b"sends more than the" in ended.stderr


def _endless() -> Iterator[bytes]:
    while True:
        yield bytes(_MIB)
