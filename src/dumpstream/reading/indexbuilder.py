"""IndexBuilder: reads a journal into the tables of an index, or only what they do not cover yet."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

import xxhash

from dumpstream._native import hash_name
from dumpstream.archive.journalfile import VERDICTS, JournalFile, JournalLine
from dumpstream.archive.rows import BeginRow, FileRow, UnreadableRow, parse_line
from dumpstream.archive.totals import Totals
from dumpstream.reading.storedfile import parts_of
from dumpstream.system.location import is_url

#: If it is set, it is called with the bytes to index, and gives what is called with those that are indexed.
watching: ContextVar[Callable[[int], AbstractContextManager[Callable[[int], None]]] | None] = ContextVar(
    "watching", default=None
)
#: Returns the lines of all names that have a hash.
LINES_OF_HASH = "SELECT offset FROM lines WHERE hash = ? ORDER BY offset"

_FORMAT = 3
_NUMBERS = {verdict: number for number, verdict in enumerate(VERDICTS)}
_SCHEMA = """
CREATE TABLE about (value TEXT);
CREATE TABLE lines (offset INTEGER PRIMARY KEY, hash INTEGER);
CREATE TABLE repeated (offset INTEGER PRIMARY KEY, first INTEGER, verdict INTEGER);
"""
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS by_hash ON lines (hash)",
    "CREATE INDEX IF NOT EXISTS by_first ON repeated (first)",
)
_BUILDING = "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-16384;"
_WORST = """
SELECT worst, count(*) FROM (SELECT min(verdict) AS worst FROM repeated GROUP BY first) GROUP BY worst
"""
_AMBIGUOUS = "SELECT hash FROM lines GROUP BY hash HAVING count(*) > 1 AND max(offset) >= ?"


class About:
    """What an index says of itself."""

    def __init__(self, key: bytes | None = None) -> None:
        self.totals = Totals()
        self.row_verdicts = [0] * len(VERDICTS)  # of lines, not of files
        self.key = key or secrets.token_bytes(16)
        self.origin: list[int] = []  # says that the journal has not changed at all
        self.size = 0  # of the part of the journal that is covered,
        self.xxh3 = ""  # and its hash
        self.extensible = True  # whether lines behind that part cannot change what its last line means
        self.digest = xxhash.xxh3_64()  # of what was read again of that part

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> About:
        """Return what the index that is open as *connection* says; raises if it is not of this version."""
        fields = json.loads(connection.execute("SELECT value FROM about").fetchone()[0])
        if fields["format"] != _FORMAT:
            raise ValueError(fields["format"])
        about = cls(bytes.fromhex(fields["key"]))
        about.totals = Totals.from_json(fields["totals"])
        about.row_verdicts, about.origin = fields["row_verdicts"], fields["origin"]
        about.size, about.xxh3, about.extensible = fields["size"], fields["xxh3"], fields["extensible"]
        return about

    def write(self, connection: sqlite3.Connection) -> None:
        """Write it into the index."""
        fields = {
            "format": _FORMAT,
            "key": self.key.hex(),
            "totals": self.totals.to_json(),
            "row_verdicts": self.row_verdicts,
            "origin": self.origin,
            "size": self.size,
            "xxh3": self.xxh3,
            "extensible": self.extensible,
        }
        connection.execute("DELETE FROM about")
        connection.execute("INSERT INTO about VALUES (?)", (json.dumps(fields),))

    def covers_beginning(self, journal: JournalFile) -> bool:
        """Whether *journal* begins with the part that is covered; reads that part."""
        if not self.extensible or self.size > journal.size:
            return False
        for offset, block in journal.blocks():
            if offset >= self.size:
                break
            self.digest.update(block[: self.size - offset])
        return self.digest.hexdigest() == self.xxh3


def origin_of(journal: JournalFile) -> list[int]:
    """Return what changes with every change of *journal*."""
    status = journal.status
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


class IndexBuilder:
    """Adds to an index what *journal* has behind the part that it covers."""

    def __init__(self, journal: JournalFile, connection: sqlite3.Connection, about: About) -> None:
        self._journal, self._connection, self._about = journal, connection, about
        self._totals = about.totals
        self._unreadable: UnreadableRow | None = None  # torn, if a run begins behind it

    def build(self) -> None:
        """Read all that is not covered, in one transaction."""
        self._connection.executescript(_BUILDING + ("" if self._about.size else _SCHEMA))
        self._connection.execute("BEGIN")
        self._read()
        self._connection.execute("COMMIT")

    def _read(self) -> None:
        about, start = self._about, self._about.size
        ended = True
        with _watched(self._journal.size - start) as note:
            for offset, block in self._journal.blocks(start):
                about.digest.update(block)
                self._connection.executemany("INSERT INTO lines VALUES (?, ?)", self._lines(offset, block))
                ended = block.endswith(b"\n")
                note(offset + len(block) - start)
        about.extensible = ended and self._unreadable is None
        self._note_unreadable(torn=not ended)
        for statement in _INDEXES:
            self._connection.execute(statement)
        self._find_repeated(start)
        about.origin, about.size = origin_of(self._journal), self._journal.size
        about.xxh3 = about.digest.hexdigest()
        about.write(self._connection)

    def _lines(self, offset: int, block: bytes) -> Iterator[tuple[int, int]]:
        """Yield the offset and the hash of the lines of files."""
        totals, verdicts = self._totals, self._about.row_verdicts
        for line in self._journal.lines(block, self._about.key):
            totals.lines += 1
            if not line.is_common or line.at_url:
                yield from self._other(offset, block, line)
                continue
            if self._unreadable is not None:
                self._note_unreadable(torn=False)
            totals.bytes += line.bytes
            totals.stored_bytes += line.stored_bytes
            totals.not_stored += line.is_filtered
            verdicts[line.verdict] += 1
            yield offset + line.start, _signed(line.hash)

    def _other(self, offset: int, block: bytes, line: JournalLine) -> Iterator[tuple[int, int]]:
        row = parse_line(block[line.start : line.start + line.length], self._totals.lines)
        self._note_unreadable(torn=isinstance(row, BeginRow))
        if isinstance(row, FileRow):
            self._totals.bytes += row.bytes
            self._totals.stored_bytes += sum(part.stored_bytes for part in row.stored)
            self._totals.not_stored += row.not_stored is not None
            self._totals.at_urls |= any(is_url(part.path or "") for part in row.stored)
            self._totals.remote |= any(is_url(part.path or "") for part in parts_of(row))
            self._about.row_verdicts[_NUMBERS[row.verdict]] += 1
            yield offset + line.start, number_of(row.name, self._about.key)
        elif isinstance(row, UnreadableRow):
            self._unreadable = row
        else:
            self._totals.note(row)

    def _note_unreadable(self, *, torn: bool) -> None:
        if self._unreadable is not None:
            self._totals.note(self._unreadable._replace(torn=torn))
            self._unreadable = None

    def _find_repeated(self, start: int) -> None:
        """Record which names come more than once, and count files and verdicts."""
        connection, totals = self._connection, self._totals
        for (number,) in connection.execute(_AMBIGUOUS, (start,)):
            offsets = [offset for (offset,) in connection.execute(LINES_OF_HASH, (number,))]
            connection.executemany("REPLACE INTO repeated VALUES (?, ?, ?)", self._same_names(offsets))
        lines, names = connection.execute("SELECT count(*), count(DISTINCT first) FROM repeated").fetchone()
        totals.files = sum(self._about.row_verdicts) - lines + names
        counts = [*self._about.row_verdicts]
        for verdict, count in connection.execute("SELECT verdict, count(*) FROM repeated GROUP BY verdict"):
            counts[verdict] -= count
        for verdict, count in connection.execute(_WORST):
            counts[verdict] += count
        totals.verdicts = {str(VERDICTS[number]): count for number, count in enumerate(counts) if count}

    def _same_names(self, offsets: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yield the lines of names that are among those at *offsets* more than once."""
        found: dict[str, list[tuple[int, int]]] = {}
        for offset, row in zip(offsets, self._journal.rows_at(offsets), strict=True):
            found.setdefault(row.name, []).append((offset, _NUMBERS[row.verdict]))
        for lines in found.values():
            if len(lines) > 1:
                yield from ((offset, lines[0][0], verdict) for offset, verdict in lines)


def _watched(size: int) -> AbstractContextManager[Callable[[int], None]]:
    watch = watching.get()
    return nullcontext(lambda _: None) if watch is None else watch(size)


def number_of(name: str, key: bytes) -> int:
    """Return the hash that an index with *key* has for *name*."""
    return _signed(hash_name(os.fsencode(name), key))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
