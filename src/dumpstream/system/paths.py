"""Paths: a set and a table of them that take little memory, however many they are."""

import os
import secrets
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Self

from xxhash import xxh3_64_intdigest

_BATCH = 4096
_RECENT = 4  #: a pack and a table for each sink
_SIGN = 1 << 63
#: The largest number of a `PathTable`.
MOST = _SIGN - 1


class PathSet:
    """Paths, of which only hashes are kept, on disk where they are many.

    Two paths have the same hash once in many lives, and cannot be chosen so: each set has a seed of its own.
    """

    def __init__(self) -> None:
        self._seed = secrets.randbits(64)
        self._database = _database("CREATE TABLE known (hash INTEGER PRIMARY KEY)")
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._new: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, path: str) -> None:
        """Add *path*; costs next to nothing if it is one of the few that were added last."""
        if path not in self._recent:
            self._recent.append(path)
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


#: A path, and a number, a text and a fact about it.
PathRow = tuple[str, int | None, str | None, bool]


class PathTable:
    """Paths with what is known of each, on disk where they are many; the latest of equal ones counts."""

    def __init__(self) -> None:
        columns = "path BLOB PRIMARY KEY, number INTEGER, text TEXT, fact INTEGER"
        self._database = _database(f"CREATE TABLE paths ({columns}) WITHOUT ROWID")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, rows: Iterable[PathRow]) -> None:
        """Add *rows*, fastest in the order of their paths; no number may be above `MOST`."""
        encoded = ((os.fsencode(path), *rest) for path, *rest in rows)
        self._database.executemany("INSERT OR REPLACE INTO paths VALUES (?, ?, ?, ?)", encoded)

    def get(self, path: str) -> PathRow | None:
        """Return the row of *path*; any thread may ask."""
        query = "SELECT * FROM paths WHERE path = ?"
        row = self._database.execute(query, (os.fsencode(path),)).fetchone()
        return None if row is None else _decoded(row)

    def __iter__(self) -> Iterator[PathRow]:
        return map(_decoded, self._database.execute("SELECT * FROM paths ORDER BY path"))


def _decoded(row: tuple[bytes, int | None, str | None, int]) -> PathRow:
    path, number, text, fact = row
    return os.fsdecode(path), number, text, bool(fact)


def _database(table: str) -> sqlite3.Connection:
    """Return a database that is on disk where it is large, and gone when it is closed, with one *table*."""
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=OFF")
    database.execute(table)
    database.execute("BEGIN")  # never committed: that would write to the disk each time
    return database
