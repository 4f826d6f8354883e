"""PartsPlace: where parts are kept: a directory, or a prefix in an object store."""

from __future__ import annotations

import os
import shutil
from io import BufferedReader
from pathlib import Path
from typing import IO, Protocol

from dumpstream._errors import DestinationError
from dumpstream.archive.destination import explained, make_directory
from dumpstream.archive.place import open_file
from dumpstream.objectstore.reader import ObjectReader
from dumpstream.objectstore.store import Store
from dumpstream.reading.outputs import open_output
from dumpstream.system.location import Prefix

_RETRY_S = 15.0
_COPIED_BYTES = 1 << 20


class PartsPlace(Protocol):
    """Where parts are. Every call blocks."""

    @property
    def location(self) -> Path | Prefix:
        """What it was opened as."""

    def names(self) -> list[str]:
        """Return the names of the files there."""

    def write(self, name: str, file: IO[bytes]) -> None:
        """Store what is in *file*, which is at its beginning, under *name*, whole or not at all.

        Raises:
            DestinationError: it cannot be written.
            StoreError: the store refuses, or does not answer.
        """

    def open(self, name: str) -> IO[bytes]:
        """Open a file; the caller closes it.

        Raises:
            PartError: it cannot be opened, or is a link or anything else but a file.
            StoreError: the store refuses, or does not answer.
        """


class PartsDirectory:
    """A directory, which is made when the first part is written."""

    def __init__(self, location: Path) -> None:
        self.location = location

    def names(self) -> list[str]:
        return [it.name for it in self.location.iterdir()] if self.location.is_dir() else []

    def write(self, name: str, file: IO[bytes]) -> None:
        with explained(self.location):
            os.close(make_directory(self.location))
        with open_output(self.location / name, replace=True) as out:
            shutil.copyfileobj(file, out, _COPIED_BYTES)

    def open(self, name: str) -> IO[bytes]:
        return open_file(self.location / name).file


class PartsPrefix:
    """A prefix in an object store."""

    def __init__(self, location: Prefix) -> None:
        self.location = location
        self._store = Store(location, retry_s=_RETRY_S)

    def names(self) -> list[str]:
        return [entry.key for entry in self._store.entries()]

    def write(self, name: str, file: IO[bytes]) -> None:
        self._store.write(name, file.read())

    def open(self, name: str) -> IO[bytes]:
        return BufferedReader(ObjectReader(self._store, name))


def open_parts(location: Path | Prefix) -> PartsPlace:
    """Return the place at *location*.

    Raises:
        DestinationError: it is a file.
        StoreError: the store cannot be used.
    """
    if isinstance(location, Prefix):
        return PartsPrefix(location)
    if location.exists() and not location.is_dir():
        raise DestinationError(location, "is not a directory; parts are kept in one")
    return PartsDirectory(location)
