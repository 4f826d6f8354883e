from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dumpstream.system.removal import Remover, remove_empty, remove_tree
from dumpstream.system.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DEEP = 3000


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_every_directory_comes_before_and_after_what_is_in_it(root: int, tmp_path: Path) -> None:
    for name in ("b/x", "a/y/z", "file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    walked = [(folder.path, folder.ended, list(folder.files)) for folder in walk(root)]

    assert walked == [
        ("", False, ["file"]),
        ("a/", False, []),
        ("a/y/", False, ["z"]),
        ("a/y/", True, ["z"]),
        ("a/", True, []),
        ("b/", False, ["x"]),
        ("b/", True, ["x"]),
        ("", True, ["file"]),
    ]


def test_directories_that_the_caller_takes_off_the_list_are_not_entered(root: int, tmp_path: Path) -> None:
    (tmp_path / "in/below").mkdir(parents=True)
    (tmp_path / "out/below").mkdir(parents=True)

    entered = []
    for folder in walk(root):
        entered.append(folder.path)
        folder.folders = [name for name in folder.folders if name != "out"]

    assert set(entered) == {"", "in/", "in/below/"}


def test_a_link_to_a_directory_is_a_file(root: int, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    first = next(walk(root))

    assert (first.files, first.folders) == (["link"], ["real"])


def test_any_depth_takes_two_descriptors(
    root: int, tmp_path: Path, make_deep: Callable[[Path, str], None]
) -> None:
    make_deep(tmp_path, "file")
    before = open_descriptors()
    most = deepest = 0

    with closing(walk(root)) as folders:
        for number, folder in enumerate(folders):
            if number % 500 == 0:
                most = max(most, open_descriptors() - before)
            if folder.files:
                deepest = folder.path.count("/")

    assert deepest == _DEEP
    assert most <= 2
    assert open_descriptors() == before


def test_a_walk_that_is_moved_under_way_does_not_go_on_elsewhere(root: int, tmp_path: Path) -> None:
    (tmp_path / "start/a/b").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    before = open_descriptors()

    with closing(walk(root)) as folders:
        next(folder for folder in folders if folder.path == "start/a/b/")
        (tmp_path / "start/a/b").rename(tmp_path / "elsewhere/b")
        with pytest.raises(OSError, match="moved"):
            list(folders)

    assert open_descriptors() == before


def test_a_tree_of_any_depth_is_removed(
    root: int, tmp_path: Path, make_deep: Callable[[Path, str], None]
) -> None:
    make_deep(tmp_path, "file")

    remove_tree("d", root)

    assert list(tmp_path.iterdir()) == []


def test_of_a_link_the_link_is_removed(root: int, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").touch()
    (tmp_path / "tree/below").mkdir(parents=True)
    for link in ("link", "tree/below/link"):
        (tmp_path / link).symlink_to(tmp_path / "real")

    remove_tree("link", root)
    remove_tree("tree", root)
    remove_tree("gone", root)

    assert {path.name for path in tmp_path.rglob("*")} == {"real", "file"}


def test_empty_directories_are_removed_up_to_one_that_is_not(root: int, tmp_path: Path) -> None:
    (tmp_path / "a/b/c/d").mkdir(parents=True)
    (tmp_path / "a/file").touch()
    (tmp_path / "link").symlink_to("a")

    remove_empty(["link", "b", "c", "d"], root)
    untouched = (tmp_path / "a/b/c/d").exists()
    remove_empty(["a", "b", "c", "d"], root)

    assert untouched
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"file"}


def test_removing_many_files_keeps_few_directories_open_and_no_empty_ones(root: int, tmp_path: Path) -> None:
    paths = [(f"d{number % 300}", "below", str(number)) for number in range(900)]
    for path in paths:
        tmp_path.joinpath(*path).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(*path).touch()
    (tmp_path / "d7/mine").touch()
    before = open_descriptors()
    most = 0

    with Remover(root, is_foreign=lambda _: False) as remover:
        for path in paths:
            assert remover.remove(path)
            most = max(most, open_descriptors() - before)

    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {"d7", "d7/mine"}
    assert most <= 64
    assert open_descriptors() == before
