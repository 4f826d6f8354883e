from __future__ import annotations

import os
import time
from typing import IO, TYPE_CHECKING

import pytest

from dumpstream.system.cache import open_cache, open_cached, prune_cache
from dumpstream.system.publishing import create_draft

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dumpstream"


def test_draft_of_a_killed_process_is_deleted_and_a_recent_one_stays(cache: Path) -> None:
    opened = open_cache()
    assert opened is not None
    _, fd = opened
    recent, old = (create_draft(fd) for _ in range(2))
    os.utime(old[1], (0, time.time() - 2 * 3600))

    prune_cache(fd)

    assert [it.name for it in cache.iterdir()] == [recent[0]]
    for it in (recent[1], old[1], fd):
        os.close(it)


def test_cache_is_not_made_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    opened = open_cache()

    assert opened is not None
    assert opened[0] == tmp_path / "home/.cache/dumpstream"
    assert not (tmp_path / "relative").exists()
    os.close(opened[1])


def test_kept_file_is_used_where_its_time_cannot_be_set(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(b"data")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, os.strerror(30))

    os.close(open_cached("name", "1", write))
    (kept,) = cache.iterdir()
    monkeypatch.setattr(os, "utime", refuse)

    fd = open_cached("name", "1", write)

    assert os.fstat(fd).st_ino == kept.stat().st_ino
    os.close(fd)
