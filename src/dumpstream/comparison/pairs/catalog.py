"""Catalog: the files of both sides, and the executions that they are of, in a database on the disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from dumpstream._errors import DumpstreamError
from dumpstream.comparison.sides.descriptor import Descriptor, pack, unpack
from dumpstream.comparison.sides.entry import Entry

_SCHEMA = """
PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-32768;
CREATE TABLE files (
    id INTEGER PRIMARY KEY, side INT, rank INT, device INT, model TEXT, step INT, op_type TEXT, op_name TEXT,
    part TEXT, same INT, started INT, sequence INT, time INT, task INT, name TEXT, ios TEXT,
    file TEXT, source INT, reference TEXT, content TEXT, tensors BLOB, problem TEXT
);
CREATE TABLE executions (
    id INTEGER PRIMARY KEY, side INT, operator BLOB, number INT, loose BLOB, scope BLOB,
    own_rank INT, own_model TEXT, own_step INT, op_type TEXT, op_name TEXT, occurrence INT,
    started INT, sequence INT, time INT, task INT, files TEXT
);
CREATE TABLE matches (mine INTEGER PRIMARY KEY, golden INT UNIQUE, guess INT);
CREATE TABLE places (place INTEGER PRIMARY KEY, id INT UNIQUE);
CREATE TABLE extra (id INTEGER PRIMARY KEY, behind INT, place INT);
"""
_ADD = f"INSERT INTO files VALUES (NULL{', ?' * 21})"  # noqa: S608 - constants
_FILE = "id, file, source, reference, content, tensors, problem"
_FETCHED = 512
_INTEGER = (1 << 63) - 1

NameOf = Callable[[str | None, str | None], str]


class Which(IntEnum):
    """The side that a file is of."""

    MINE = 0
    GOLDEN = 1

    @property
    def other(self) -> Which:
        """The other side."""
        return Which(1 - self)


class CatalogFile(NamedTuple):
    """A file as the catalog has it."""

    id: int
    file: str
    source: int
    reference: str | None
    content: str | None
    tensors: Sequence[Descriptor]
    problem: str | None


class Catalog:
    """The database, which is in the new file *path*."""

    def __init__(self, path: Path) -> None:
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.executescript(_SCHEMA)
        except sqlite3.Error as exc:
            raise _failure(exc) from exc

    def close(self) -> None:
        """Close the database; its file is left to the caller."""
        self._connection.close()

    def add(
        self, side: Which, entries: Iterable[Entry], name_of: Callable[[str | None, str | None], str]
    ) -> None:
        """Add files; *name_of* returns what the golden calls an operator of a type and a name."""
        self.write(_ADD, (_row(side, entry, name_of) for entry in entries))

    def ask(self, query: str, *values: Any) -> Iterator[Any]:
        """Yield the rows that *query* finds."""
        try:
            yield from self._connection.execute(query, values)
        except sqlite3.Error as exc:
            raise _failure(exc) from exc

    def write(self, statement: str, rows: Iterable[Sequence[Any]] | None = None) -> None:
        """Run *statement*, once or for each of *rows*."""
        try:
            if rows is None:
                self._connection.execute(statement)
            else:
                self._connection.execute("BEGIN")
                self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
        except sqlite3.Error as exc:
            raise _failure(exc) from exc

    def files(self, ids: Iterable[int]) -> dict[int, CatalogFile]:
        """Return the files *ids*."""
        found: dict[int, CatalogFile] = {}
        numbers = iter(ids)
        while some := [*islice(numbers, _FETCHED)]:
            among = ",".join(map(str, some))
            query = f"SELECT {_FILE} FROM files WHERE id IN ({among})"  # noqa: S608 - numbers
            for id_, file, source, reference, content, tensors, problem in self.ask(query):
                found[id_] = CatalogFile(id_, file, source, reference, content, unpack(tensors), problem)
        return found


def _row(side: Which, entry: Entry, name_of: NameOf) -> tuple[Any, ...]:
    rank, device, model, step, op_type, op_name, part, group, started, sequence, time, task = entry.origin
    return (
        int(side),
        rank,
        device,
        model,
        step,
        op_type,
        op_name,
        part,
        xxhash.xxh3_64_intdigest(group.encode("utf-8", "surrogateescape")) & _INTEGER,
        started,
        sequence,
        time,
        task,
        name_of(op_type, op_name),
        " ".join([f"{it.io} {it.index}" for it in entry.tensors]),
        entry.file,
        entry.source,
        entry.reference,
        entry.content,
        pack(entry.tensors),
        entry.problem,
    )


def _failure(exc: sqlite3.Error) -> DumpstreamError:
    return DumpstreamError(
        f"the tensors cannot be put in order ({exc}); make space for temporary files, or set TMPDIR"
    )
