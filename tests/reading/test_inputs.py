"""Inputs: the files that paths stand for, with their sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dumpstream._native import file_sizes
from dumpstream.reading.inputs import find_inputs

if TYPE_CHECKING:
    from pathlib import Path


def test_files_of_a_directory_come_in_order_with_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for number in range(1100):
        (tmp_path / "b" / f"{number:04}").write_bytes(bytes(number % 7))
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / ".hidden").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")

    found = [(it.name, it.bytes) for it in find_inputs([tmp_path])]

    assert found == [("a", 3), *((f"b/{number:04}", number % 7) for number in range(1100))]


def test_a_size_is_that_of_the_file_itself_and_0_if_it_is_gone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(70_000))
    (tmp_path / "link").symlink_to("file")

    assert file_sizes(str(tmp_path), ["file", "gone", "link", "\udcff"]) == [70_000, 0, 4, 0]
    with pytest.raises(FileNotFoundError):
        file_sizes(str(tmp_path / "gone"), [])
    with pytest.raises(TypeError):
        file_sizes(str(tmp_path), [b"file"])  # type: ignore[list-item]


def test_a_file_that_goes_away_is_a_problem_of_its_own(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).touch()
    inputs = find_inputs([tmp_path])

    first = next(inputs)
    (tmp_path / "b").unlink()

    assert [first.name, *(it.name for it in inputs)] == ["a", "b"]
