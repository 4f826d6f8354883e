"""Index: where the lines of each file are in a journal, in SQLite; derived from the journal, and disposable.

A small journal is indexed in memory each time. The index of a large one is kept in the user's cache, knows
what it was built from, and is extended when the journal has grown. It is never changed once it is there: an
extended one replaces it, so readers need no locks.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import xxhash

from dumpstream._errors import DumpstreamError
from dumpstream._native import hash_name
from dumpstream.archive.journalfile import VERDICTS, JournalFile, JournalLine
from dumpstream.archive.rows import BeginRow, FileRow, UnreadableRow, parse_line
from dumpstream.archive.totals import Totals
from dumpstream.reading.storedfile import parts_of
from dumpstream.system.cache import open_cache, prune_cache
from dumpstream.system.location import is_url
from dumpstream.system.publishing import create_draft, discard_draft, publish_draft

_FORMAT = 1
#: A smaller journal is indexed faster than a file is made for its index.
_SMALL_BYTES = 4 << 20
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
_OTHERS = "SELECT offset FROM lines WHERE hash = ? ORDER BY offset"
_WORST = """
SELECT worst, count(*) FROM (SELECT min(verdict) AS worst FROM repeated GROUP BY first) GROUP BY worst
"""
_NTH = """
SELECT offset FROM lines WHERE offset NOT IN (SELECT offset FROM repeated WHERE offset != first)
ORDER BY offset LIMIT 1 OFFSET ?
"""
_AMBIGUOUS = "SELECT hash FROM lines GROUP BY hash HAVING count(*) > 1 AND max(offset) >= ?"


class Index:
    """Where the lines of *journal* are; made by `open_index`."""

    def __init__(
        self,
        journal: JournalFile,
        connection: sqlite3.Connection,
        about: _About,
        *,
        kept: Path | None = None,
    ) -> None:
        self.journal = journal
        self.totals = about.totals
        self.key = about.key
        self._connection = connection
        self._kept = kept  # where it is for the next reader, too
        weakref.finalize(self, connection.close)

    def find(self, name: str) -> Sequence[int]:
        """Return the offsets of the lines of the file *name*, in order; there may be lines of others."""
        number = _signed(hash_name(os.fsencode(name), self.key))
        return [offset for (offset,) in self._ask(_OTHERS, number)]

    def repeated(self) -> Iterator[tuple[int, int]]:
        """Yield the offset of each line of a name that comes more than once, and that of its first line."""
        return self._ask("SELECT offset, first FROM repeated ORDER BY offset")

    def first_of(self, offset: int) -> int:
        """Return the offset of the first line of the name that is in the line at *offset*."""
        found = next(self._ask("SELECT first FROM repeated WHERE offset = ?", offset), None)
        return offset if found is None else int(found[0])

    def lines_of(self, first: int) -> Sequence[int]:
        """Return the offsets of all lines of a name, of which *first* is the first."""
        found = self._ask("SELECT offset FROM repeated WHERE first = ? ORDER BY offset", first)
        return [offset for (offset,) in found] or [first]

    def first_at(self, number: int) -> int:
        """Return the offset of the first line of the file *number*, counted from 0; raises `IndexError`."""
        found = next(self._ask(_NTH, number), None)
        if found is None:
            raise IndexError(number)
        return int(found[0])

    def row_at(self, offset: int) -> FileRow:
        """Return the row of the file whose line begins at *offset*, where the index says that there is one.

        Raises:
            DumpstreamError: there is none; an index that was kept is removed.
        """
        try:
            return self.journal.row_at(offset)
        except ValueError as exc:
            raise self._mismatch(f"no file at {offset}") from exc

    def _ask(self, query: str, *values: int) -> Iterator[Any]:
        try:
            yield from self._connection.execute(query, values)
        except sqlite3.Error as exc:
            raise self._mismatch(str(exc)) from exc

    def _mismatch(self, problem: str) -> DumpstreamError:
        """Return the error for a damaged index, or a changed journal, and see to it that it is built anew."""
        if self._kept is not None:
            with suppress(OSError):
                self._kept.unlink()
        return DumpstreamError(
            f"the index of the journal does not fit it ({problem}), "
            "which was changed meanwhile, or the index was damaged; run the command again, which rebuilds it"
        )


class _About:
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
    def read(cls, connection: sqlite3.Connection) -> _About:
        fields = json.loads(connection.execute("SELECT value FROM about").fetchone()[0])
        if fields["format"] != _FORMAT:
            raise ValueError(fields["format"])
        about = cls(bytes.fromhex(fields["key"]))
        about.totals = Totals.from_json(fields["totals"])
        about.row_verdicts, about.origin = fields["row_verdicts"], fields["origin"]
        about.size, about.xxh3, about.extensible = fields["size"], fields["xxh3"], fields["extensible"]
        return about

    def write(self, connection: sqlite3.Connection) -> None:
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


def open_index(journal: JournalFile, location: str) -> Index:
    """Return the index of *journal*, which is at *location*: one that is kept, or a new one.

    Raises:
        DumpstreamError: there is no space for it.
    """
    try:
        if journal.size >= _SMALL_BYTES and (cache := open_cache()) is not None:
            path, fd = cache
            try:
                return _open_kept(
                    journal, path / f"{xxhash.xxh3_128_hexdigest(os.fsencode(location))}.sqlite", fd
                )
            except OSError:
                pass  # a full or read-only disk: another may have space
            finally:
                os.close(fd)
        return _build(journal, ":memory:" if journal.size < _SMALL_BYTES else "", _About())
    except sqlite3.Error as exc:
        needed = journal.size // 5
        remedy = f"it takes about {needed >> 20} MiB; make space, or set XDG_CACHE_HOME or SQLITE_TMPDIR"
        raise DumpstreamError(f"the journal of {location} cannot be indexed ({exc}); {remedy}") from exc


def _open_kept(journal: JournalFile, path: Path, cache: int) -> Index:
    about = _About()
    with suppress(sqlite3.Error, ValueError, LookupError, TypeError, AttributeError):
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1", uri=True, check_same_thread=False
        )
        try:
            kept = _About.read(connection)
            if kept.origin == _origin(journal):
                with suppress(OSError):  # a read-only disk
                    os.utime(path)
                return Index(journal, connection, kept, kept=path)
            about = kept if _covers_beginning(kept, journal) else about
        except BaseException:
            connection.close()
            raise
        connection.close()
    return _keep(journal, path, cache, about)


def _keep(journal: JournalFile, path: Path, cache: int, about: _About) -> Index:
    """Build an index, from *about* on, which is what the one at *path* says if that can be extended."""
    prune_cache(cache)
    draft, fd = create_draft(cache)
    try:
        with os.fdopen(fd, "wb") as file:
            if about.size:
                with path.open("rb") as kept:
                    shutil.copyfileobj(kept, file, 1 << 20)
        index = _build(journal, str(path.parent / draft), about, kept=path)
        publish_draft(draft, path.name, cache, replace=True)
    except sqlite3.Error as exc:
        with suppress(OSError):  # what was extended may be damaged
            path.unlink()
        raise OSError(str(exc)) from exc
    finally:
        discard_draft(draft, cache)
    return index


def _origin(journal: JournalFile) -> list[int]:
    status = journal.status
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _covers_beginning(about: _About, journal: JournalFile) -> bool:
    if not about.extensible or about.size > journal.size:
        return False
    for offset, block in journal.blocks():
        if offset >= about.size:
            break
        about.digest.update(block[: about.size - offset])
    return about.digest.hexdigest() == about.xxh3


def _build(journal: JournalFile, database: str, about: _About, *, kept: Path | None = None) -> Index:
    connection = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
    try:
        connection.executescript(_BUILDING + ("" if about.size else _SCHEMA))
        connection.execute("BEGIN")
        _Builder(journal, connection, about).build()
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return Index(journal, connection, about, kept=kept)


class _Builder:
    """Adds to an index what *journal* has behind the part that it covers."""

    def __init__(self, journal: JournalFile, connection: sqlite3.Connection, about: _About) -> None:
        self._journal, self._connection, self._about = journal, connection, about
        self._totals = about.totals
        self._unreadable: UnreadableRow | None = None  # torn, if a run begins behind it

    def build(self) -> None:
        about, start = self._about, self._about.size
        ended = True
        for offset, block in self._journal.blocks(start):
            about.digest.update(block)
            self._connection.executemany("INSERT INTO lines VALUES (?, ?)", self._lines(offset, block))
            ended = block.endswith(b"\n")
        about.extensible = ended and self._unreadable is None
        self._note_unreadable(torn=not ended)
        for statement in _INDEXES:
            self._connection.execute(statement)
        self._find_repeated(start)
        about.origin, about.size = _origin(self._journal), self._journal.size
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
            verdicts[line.verdict] += 1
            yield offset + line.start, _signed(line.hash)

    def _other(self, offset: int, block: bytes, line: JournalLine) -> Iterator[tuple[int, int]]:
        row = parse_line(block[line.start : line.start + line.length], self._totals.lines)
        self._note_unreadable(torn=isinstance(row, BeginRow))
        if isinstance(row, FileRow):
            self._totals.bytes += row.bytes
            self._totals.stored_bytes += sum(part.stored_bytes for part in row.stored)
            self._totals.at_urls |= any(is_url(part.path or "") for part in row.stored)
            self._totals.remote |= any(is_url(part.path or "") for part in parts_of(row))
            self._about.row_verdicts[_NUMBERS[row.verdict]] += 1
            yield offset + line.start, _signed(hash_name(os.fsencode(row.name), self._about.key))
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
            offsets = [offset for (offset,) in connection.execute(_OTHERS, (number,))]
            connection.executemany("REPLACE INTO repeated VALUES (?, ?, ?)", self._same_names(offsets))
        lines, names = connection.execute("SELECT count(*), count(DISTINCT first) FROM repeated").fetchone()
        totals.files = sum(self._about.row_verdicts) - lines + names
        counts = [*self._about.row_verdicts]
        for verdict, count in connection.execute("SELECT verdict, count(*) FROM repeated GROUP BY verdict"):
            counts[verdict] -= count
        for verdict, count in connection.execute(_WORST):
            counts[verdict] += count
        totals.verdicts = {str(VERDICTS[number]): count for number, count in enumerate(counts) if count}

    def _same_names(self, offsets: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        """Yield the lines of names that are among those at *offsets* more than once."""
        found: dict[str, list[tuple[int, int]]] = {}
        for offset in offsets:
            row = self._journal.row_at(offset)
            found.setdefault(row.name, []).append((offset, _NUMBERS[row.verdict]))
        for lines in found.values():
            if len(lines) > 1:
                yield from ((offset, lines[0][0], verdict) for offset, verdict in lines)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
