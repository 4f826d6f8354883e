"""Index: where the lines of each file are in a journal, in SQLite; derived from the journal, and disposable.

A small journal is indexed in memory each time. The index of a large one is kept in the user's cache, knows
what it was built from, and is extended when the journal has grown. It is never changed once it is there: an
extended one replaces it, so readers need no locks.
"""

from __future__ import annotations

import os
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
from dumpstream.archive.journalfile import JournalFile
from dumpstream.archive.rows import FileRow
from dumpstream.reading.indexbuilder import LINES_OF_HASH, About, IndexBuilder, number_of, origin_of
from dumpstream.system.cache import open_cache, prune_cache
from dumpstream.system.publishing import create_draft, discard_draft, publish_draft

#: A smaller journal is indexed faster than a file is made for its index.
_SMALL_BYTES = 4 << 20
_NTH = """
SELECT offset FROM lines WHERE offset NOT IN (SELECT offset FROM repeated WHERE offset != first)
ORDER BY offset LIMIT 1 OFFSET ?
"""


class Index:
    """Where the lines of *journal* are; made by `open_index`."""

    def __init__(
        self,
        journal: JournalFile,
        connection: sqlite3.Connection,
        about: About,
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
        return [offset for (offset,) in self._ask(LINES_OF_HASH, number_of(name, self.key))]

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

    def rows_at(self, offsets: Iterable[int]) -> Iterator[FileRow]:
        """Yield the rows of the files whose lines begin at *offsets*, which ascend and are from the index.

        Raises:
            DumpstreamError: a line is not that of a file; an index that was kept is removed.
        """
        try:
            yield from self.journal.rows_at(offsets)
        except ValueError as exc:
            raise self._mismatch(f"no file at {exc}") from exc

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
        return _build(journal, ":memory:" if journal.size < _SMALL_BYTES else "", About())
    except sqlite3.Error as exc:
        needed = journal.size // 5
        remedy = f"it takes about {needed >> 20} MiB; make space, or set XDG_CACHE_HOME or SQLITE_TMPDIR"
        raise DumpstreamError(f"the journal of {location} cannot be indexed ({exc}); {remedy}") from exc


def _open_kept(journal: JournalFile, path: Path, cache: int) -> Index:
    about = About()
    with suppress(sqlite3.Error, ValueError, LookupError, TypeError, AttributeError):
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1", uri=True, check_same_thread=False
        )
        try:
            kept = About.read(connection)
            if kept.origin == origin_of(journal):
                with suppress(OSError):  # a read-only disk
                    os.utime(path)
                return Index(journal, connection, kept, kept=path)
            about = kept if kept.covers_beginning(journal) else about
        except BaseException:
            connection.close()
            raise
        connection.close()
    return _keep(journal, path, cache, about)


def _keep(journal: JournalFile, path: Path, cache: int, about: About) -> Index:
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


def _build(journal: JournalFile, database: str, about: About, *, kept: Path | None = None) -> Index:
    connection = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
    try:
        IndexBuilder(journal, connection, about).build()
    except BaseException:
        connection.close()
        raise
    return Index(journal, connection, about, kept=kept)
