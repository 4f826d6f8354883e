from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from dumpstream.system.publishing import (
    create_draft,
    discard_draft,
    is_temporary,
    publish_draft,
    replace_file,
    replacement_of,
    write_all,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def fill(directory: int, data: bytes) -> str:
    temporary, fd = create_draft(directory)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    return temporary


def test_a_draft_does_not_replace_a_file_unless_asked_to(tmp_path: Path, directory: int) -> None:
    (tmp_path / "name").write_bytes(b"old")
    temporary = fill(directory, b"new")

    with pytest.raises(FileExistsError):
        publish_draft(temporary, "name", directory)
    assert (tmp_path / "name").read_bytes() == b"old"
    publish_draft(temporary, "name", directory, replace=True)

    assert (tmp_path / "name").read_bytes() == b"new"
    assert names(tmp_path) == ["name"]


def test_drafts_are_known_by_their_names_and_discarded_once(tmp_path: Path, directory: int) -> None:
    drafts = [fill(directory, b"") for _ in range(3)]

    assert all(map(is_temporary, drafts))
    assert names(tmp_path) == sorted(drafts)
    for draft in [*drafts, drafts[0]]:
        discard_draft(draft, directory)
    assert names(tmp_path) == []


def test_a_replaced_file_is_whole_and_private(tmp_path: Path, directory: int) -> None:
    (tmp_path / "name").write_bytes(b"old")
    (tmp_path / replacement_of("name")).write_bytes(b"of a process that was killed")

    replace_file("name", [b"one", b"two"], directory)

    assert (tmp_path / "name").read_bytes() == b"onetwo"
    assert stat.S_IMODE((tmp_path / "name").stat().st_mode) == 0o600
    assert names(tmp_path) == ["name"]


def test_a_replacement_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "name").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(OSError, match="No space left"):
        replace_file("name", [b"new"], directory)

    assert (tmp_path / "name").read_bytes() == b"old"
    assert names(tmp_path) == ["name"]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    fd = os.open(tmp_path / "name", os.O_WRONLY | os.O_CREAT)
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:2]))

    written = write_all(fd, b"seven b")
    os.close(fd)

    assert written == 7
    assert (tmp_path / "name").read_bytes() == b"seven b"
