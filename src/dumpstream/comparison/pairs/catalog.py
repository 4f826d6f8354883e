"""Catalog: the files of both sides, and the executions that they are of, in a database on the disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from dumpstream._errors import DumpstreamError
from dumpstream.comparison.sides.descriptor import Descriptor, unpack
from dumpstream.comparison.sides.entry import Entry, Packed

_SCHEMA = """
PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-32768;
CREATE TABLE files (
    id INTEGER PRIMARY KEY, side INT, rank INT, device INT, model TEXT, step INT, op_type TEXT, op_name TEXT,
    part TEXT, same INT, started INT, sequence INT, time INT, task INT, name TEXT, ios TEXT
);
CREATE TABLE contents (
    id INTEGER PRIMARY KEY, file TEXT, source INT, reference TEXT, content TEXT, problem TEXT, tensors BLOB,
    whole INT, hashed INT
);
CREATE TABLE executions (
    id INTEGER PRIMARY KEY, side INT, operator INT, number INT, loose INT, scope INT,
    own_rank INT, own_model TEXT, own_step INT, op_type TEXT, op_name TEXT, occurrence INT,
    started INT, sequence INT, time INT, task INT, files TEXT
);
CREATE TABLE matches (mine INTEGER PRIMARY KEY, golden INT UNIQUE, guess INT);
CREATE TABLE guesses (mine INT, golden INT);
CREATE TABLE places (place INTEGER PRIMARY KEY, id INT UNIQUE);
CREATE TABLE extra (id INTEGER PRIMARY KEY, behind INT, place INT);
"""
#: Stands for a text in a statement: `as_text` of it.
TEXT = "CAST(? AS TEXT)"
_ADD = f"INSERT INTO files VALUES (?, ?, ?, ?, {TEXT}, ?, {TEXT}, {TEXT}, {TEXT}, ?, ?, ?, ?, ?, {TEXT}, ?)"  # noqa: S608 - constants
_ADD_CONTENT = f"INSERT INTO contents VALUES (?, {TEXT}, ?, {TEXT}, ?, {TEXT}, ?, ?, ?)"  # noqa: S608 - constants
_FILE = "id, file, source, reference, content, problem, tensors, whole, hashed"
_CONTENTS = "SELECT content, ios, tensors, whole, hashed FROM contents JOIN files USING (id)"
_SAID = "rank, device, model, step, op_type, op_name, part, same, started, sequence, time, task, name, ios"
_FETCHED = 512
_INTEGER = (1 << 63) - 1

#: Returns what the golden calls an operator.
NameOf = Callable[[str], str]


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
    problem: str | None
    packed: bytes
    whole: int  #: as `Packed`
    hashed: bool

    @property
    def tensors(self) -> Sequence[Descriptor]:
        """What its tensors are known to be."""
        return unpack(self.packed)


class Catalog:
    """The database, which is in the new file *path*."""

    def __init__(self, path: Path) -> None:
        self._count = 0
        self._mine: int | None = None  # how many files of mine there are, once all are there
        self._by_file = False
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            self._connection.executescript(_SCHEMA)
            self._connection.execute("BEGIN")  # for ever: a commit writes to the disk what may stay in memory
        except sqlite3.Error as exc:
            raise _failure(exc) from exc

    def close(self) -> None:
        """Close the database; its file is left to the caller."""
        self._connection.close()

    def add(self, side: Which, entries: Sequence[Entry], name_of: NameOf) -> None:
        """Add files; *name_of* returns what the golden calls an operator."""
        first = self._count + 1
        self._count += len(entries)
        self.write(_ADD, (_row(it, side, entry, name_of) for it, entry in enumerate(entries, first)))
        self.write(_ADD_CONTENT, (_content(it, entry) for it, entry in enumerate(entries, first)))

    def mirror(self) -> None:
        """Add the files of mine again, as those of the golden."""
        self.write(f"INSERT INTO files SELECT id + {self._count}, 1, {_SAID} FROM files")  # noqa: S608 - constants
        contents = _FILE.replace("id", f"id + {self._count}", 1)
        self.write(f"INSERT INTO contents SELECT {contents} FROM contents")  # noqa: S608 - constants
        self._count *= 2

    def find_contents(self, contents: Sequence[str]) -> dict[str, Packed]:
        """Return the tensors of mine's files that have the same bytes as some of *contents*, by these."""
        found: dict[str, Packed] = {}
        if self._mine is None:
            return found
        for start in range(0, len(contents), _FETCHED):
            some = contents[start : start + _FETCHED]
            among = ", ".join("?" * len(some))
            query = f"{_CONTENTS} WHERE contents.id <= {self._mine} AND content IN ({among})"
            found |= {row[0]: Packed._make(row[1:]) for row in self.ask(query, *some)}
        return found

    def has_file(self, file: str) -> bool:
        """Whether there is a file of this name."""
        if not self._by_file:
            self.write("CREATE INDEX by_file ON contents (file)")
            self._by_file = True
        first = 0 if self._mine is None else self._mine
        query = f"SELECT 1 FROM contents WHERE file = {TEXT} AND id > ? LIMIT 1"  # noqa: S608 - constants
        return next(self.ask(query, as_text(file), first), None) is not None

    def end_mine(self) -> None:
        """Take note that all files of mine are there; those that follow are of the golden."""
        self._mine = self._count
        # Without those that are added later.
        self.write(f"CREATE INDEX by_content ON contents (content) WHERE id <= {self._count}")

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
                self._connection.executemany(statement, rows)
        except sqlite3.Error as exc:
            raise _failure(exc) from exc

    def files(self, ids: Iterable[int]) -> dict[int, CatalogFile]:
        """Return the files *ids*."""
        found: dict[int, CatalogFile] = {}
        numbers = iter(ids)
        while some := [*islice(numbers, _FETCHED)]:
            among = ",".join(map(str, some))
            query = f"SELECT {_FILE} FROM contents WHERE id IN ({among})"  # noqa: S608 - numbers
            found |= {row[0]: CatalogFile._make(row) for row in self.ask(query)}
        return found


def as_text(text: str | None) -> str | bytes | None:
    """Return what is to be bound for *text*: names of files need not be UTF-8, and SQLite's text is."""
    return text if text is None or text.isascii() else text.encode("utf-8", "surrogateescape")


def number_of(text: str) -> int:
    """Return a number that no other *text* has."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogateescape")) & _INTEGER


def _row(number: int, side: Which, entry: Entry, name_of: NameOf) -> tuple[Any, ...]:
    rank, device, model, step, op_type, op_name, part, group, started, sequence, time, task = entry.origin
    return (
        number,
        int(side),
        rank,
        device,
        as_text(model),
        step,
        as_text(op_type),
        as_text(op_name),
        as_text(part),
        number_of(group),
        started,
        sequence,
        time,
        task,
        as_text(name_of(op_name or "")),
        entry.packed.ios,
    )


def content_row(number: int, entry: Entry) -> tuple[Any, ...]:
    """Return *entry* with the fields of a `CatalogFile`."""
    _, file, source, reference, content, (_, *packed), problem = entry
    return (number, file, source, reference, content, problem, *packed)


def _content(number: int, entry: Entry) -> tuple[Any, ...]:
    _, file, source, reference, content, problem, *packed = content_row(number, entry)
    return (number, as_text(file), source, as_text(reference), content, as_text(problem), *packed)


def _failure(exc: sqlite3.Error) -> DumpstreamError:
    return DumpstreamError(
        f"the tensors cannot be put in order ({exc}); make space for temporary files, or set TMPDIR"
    )
