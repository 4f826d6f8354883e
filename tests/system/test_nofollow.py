from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dumpstream.system.nofollow import opened_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_missing_directories_are_made_only_if_asked_for(root: int, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), opened_directory(root, ["a", "b"]):
        pass

    with opened_directory(root, ["a", "b"], create=True) as fd:
        assert os.path.samestat(os.fstat(fd), (tmp_path / "a" / "b").stat())
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_directory_that_is_there_is_not_made_again(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkdir("a", dir_fd=root)
    monkeypatch.delattr(os, "mkdir")

    with opened_directory(root, ["a"], create=True):
        pass


def test_a_link_is_not_followed(root: int, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)

    with pytest.raises(NotADirectoryError), opened_directory(root, ["link"], create=True):
        pass
