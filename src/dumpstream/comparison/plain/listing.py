"""Listing: the dump files of a directory as columns, if their names are of the usual form."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream._native import OPERATOR_NAME, list_operators
from dumpstream.comparison.sides.origin import Origin, origin_of_dump
from dumpstream.reading.inputs import Input

#: More files are put in order on the disk.
_MOST_FILES = 200_000
_NAME: np.dtype[Any] = np.dtype(OPERATOR_NAME)  # type: ignore[call-overload]  # numpy has no type for a layout
_ANY_FILE = "Type.operator.0.0.0"  #: a name, to ask what a directory says


class PlainFiles(NamedTuple):
    """The files below a directory, in the order of a walk."""

    directories: Sequence[str]
    absolute: Sequence[str]  #: their absolute paths
    origins: Sequence[Origin]  #: what each directory says
    names: list[str]  #: of the files, without the directory
    directory: NDArray[np.intp]  #: of each file
    said: NDArray[np.void]  #: by each name: a record of `list_operators`

    @property
    def started(self) -> NDArray[np.int64]:
        """When the dump was configured, for each file."""
        return np.array([it.started for it in self.origins], np.int64)[self.directory]

    def path(self, file: int) -> str:
        """Return the path of a file, which is also what commands call it."""
        return f"{self.directories[self.directory[file]]}/{self.names[file]}"

    def paths(self, files: Sequence[int]) -> list[str]:
        """Return the paths of *files*."""
        directories, names, directory = self.directories, self.names, self.directory[files].tolist()
        return [f"{directories[at]}/{names[file]}" for at, file in zip(directory, files, strict=True)]

    def input(self, file: int) -> Input:
        """Return a file as those who read dump files know it."""
        path = self.path(file)
        return Input(label=path, name=self.names[file], bytes=0, named=False, path=path)

    def origin(self, file: int) -> Origin:
        """Return the origin of a file."""
        return origin_of_dump(f"{self.absolute[self.directory[file]]}/{self.names[file]}")


def list_plain(root: Path, key: bytes) -> PlainFiles | None:
    """Return the files below *root*; *key* hashes the names of operators.

    None if they take a closer look: one has a name of another form, as those of a capture and of a mapping of
    names do, or there are none, or too many.

    Raises:
        OSError: a directory cannot be read.
    """
    directories: list[str] = []
    names: list[str] = []
    said: list[bytes] = []
    counts: list[int] = []
    for directory, files, records in _walk(str(root), key):
        if records is None or len(names) + len(files) > _MOST_FILES:
            return None
        if files:
            directories.append(directory)
            counts.append(len(files))
            names += files
            said.append(records)
    if not names:
        return None
    absolute = [it if it.startswith("/") else os.path.normpath(f"{Path.cwd()}/{it}") for it in directories]
    return PlainFiles(
        directories,
        absolute,
        [origin_of_dump(f"{it}/{_ANY_FILE}") for it in absolute],
        names,
        np.repeat(np.arange(len(counts)), counts),
        np.frombuffer(b"".join(said), _NAME),
    )


def _walk(root: str, key: bytes) -> Iterator[tuple[str, list[str], bytes | None]]:
    """Yield each directory with its files, and what these are called, in the order of `find_inputs`."""
    waiting = [root]
    while waiting:
        path = waiting.pop()
        files, folders, said = list_operators(path, key)
        yield path, files, said
        waiting += [f"{path}/{name}" for name in reversed(folders)]
