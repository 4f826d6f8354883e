"""PathSet: a set of paths that takes little memory, however many they are."""

import os
import secrets
import sqlite3
from typing import Self

from xxhash import xxh3_64_intdigest

_BATCH = 4096
_SIGN = 1 << 63


class PathSet:
    """Paths, of which only hashes are kept, on disk where they are many.

    Two paths have the same hash once in many lives, and cannot be chosen so: each set has a seed of its own.
    """

    def __init__(self) -> None:
        self._seed = secrets.randbits(64)
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=OFF")
        self._database.execute("CREATE TABLE known (hash INTEGER PRIMARY KEY)")
        self._database.execute("BEGIN")  # never committed: that would write to the disk each time
        self._last: str | None = None
        self._new: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, path: str) -> None:
        """Add *path*; costs next to nothing if it is the one that was added last."""
        if path != self._last:
            self._last = path
            self._new.add(self._hash(path))
            if len(self._new) > _BATCH:
                self._write()

    def __contains__(self, path: str) -> bool:
        self._write()
        query = "SELECT 1 FROM known WHERE hash = ?"
        return self._database.execute(query, (self._hash(path),)).fetchone() is not None

    def _write(self) -> None:
        if self._new:
            hashes = [(it,) for it in sorted(self._new)]
            self._database.executemany("INSERT OR IGNORE INTO known VALUES (?)", hashes)
            self._new.clear()

    def _hash(self, path: str) -> int:
        return xxh3_64_intdigest(os.fsencode(path), self._seed) - _SIGN
