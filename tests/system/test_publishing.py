from __future__ import annotations

import errno
import os
import resource
import stat
from typing import TYPE_CHECKING

import pytest

from dumpstream._native import new_files
from dumpstream.system import publishing
from dumpstream.system.publishing import (
    create_draft,
    discard_draft,
    is_temporary,
    publish_draft,
    replace_file,
    replacement_of,
    write_all,
    write_files,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typing_extensions import Buffer


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


@pytest.fixture(params=["nameless", "drafts"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write files as a file system lets us that has files without names, and as others do."""
    if request.param == "drafts":
        monkeypatch.setattr(publishing, "new_files", lambda *_: (0, errno.EOPNOTSUPP))


@pytest.mark.usefixtures("_either_way")
def test_files_are_written_except_those_that_exist(tmp_path: Path, directory: int) -> None:
    (tmp_path / "b").write_bytes(b"old")
    contents: dict[str, Buffer] = {
        "a": b"1",
        "b": b"2",
        "c": b"",
        "d\udcff": memoryview(b"3"),
        "x" * 256: b"4",
    }

    problems = [*write_files(directory, [*contents], [*contents.values()])]

    assert [problem and problem.errno for problem in problems] == [
        *(None, errno.EEXIST, None, None, errno.ENAMETOOLONG)
    ]
    assert isinstance(problems[1], FileExistsError)
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {"a": b"1", "b": b"old", "c": b"", "d\udcff": b"3"}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


@pytest.mark.usefixtures("_either_way")
def test_files_are_replaced_if_asked_to(tmp_path: Path, directory: int) -> None:
    (tmp_path / "b").write_bytes(b"old")
    (tmp_path / "folder").mkdir()

    problems = [*write_files(directory, ["a", "b", "folder"], [b"1", b"2", b"3"], replace=True)]

    assert problems[:2] == [None, None]
    assert isinstance(problems[2], IsADirectoryError)
    assert names(tmp_path) == ["a", "b", "folder"]
    assert (tmp_path / "b").read_bytes() == b"2"


@pytest.mark.usefixtures("_either_way")
def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path, directory: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        problems = [*write_files(directory, ["a", "b", "c"], [b"1", bytes(2000), b"3"])]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert [problem and problem.errno for problem in problems] == [None, errno.EFBIG, None]
    assert names(tmp_path) == ["a", "c"]


def test_every_new_file_needs_a_content(directory: int) -> None:
    with pytest.raises(ValueError, match="every name needs a content"):
        new_files(directory, ["a"], [])
    with pytest.raises(ValueError, match="null"):
        new_files(directory, ["a", "b\0"], [b"", b""])
