"""Side: everything that one side of a comparison has, found and described file by file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from dumpstream._errors import DumpstreamError, PartError
from dumpstream.analysis.sources import StoredTable, has_start, left_by_sink, table_text
from dumpstream.archive.manifest import MANIFEST
from dumpstream.comparison.sides.capturesource import CapturedFile, CaptureSource, content_of
from dumpstream.comparison.sides.entry import Entry, Packed
from dumpstream.comparison.sides.source import PathSource, Source
from dumpstream.comparison.sides.statisticstable import TableSource
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.problem import problem_of_member, problems_of_capture
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile, is_readable
from dumpstream.system.batches import run_batches
from dumpstream.system.location import Prefix, as_location

_PARQUET = ".parquet"
_BATCH_FILES = 256
_TABLE_BYTES = 4 << 20  #: how large a portion of a table counts: it is a batch by itself


#: Returns the tensors of files by their contents, of those that are known.
Known = Callable[[Sequence[str]], Mapping[str, Packed]]


class _Task(NamedTuple):
    source: Any
    item: Any
    bytes: int = 0
    remote: bool = False


class _Tables:
    """The tables that the statistics sink left in *capture*, each once; *open_source* makes their sources."""

    def __init__(self, capture: StoredCapture, open_source: Callable[[bool], TableSource]) -> None:
        self._capture, self._open_source = capture, open_source
        self._exist: dict[str, bool] = {}
        self._new: list[_Task] = []
        self.lines: list[bytes] = []  #: what is in the lines of files that are in a table; becomes more

    def cover(self, file: StoredFile) -> bool:
        """Whether the tensors of *file* are in a table; one that is new is to be read."""
        covered = False
        for row in file.rows:
            if len(row.stored) == 1 and is_readable(row.stored[0]):
                continue
            for path in left_by_sink(row, _PARQUET):
                if path not in self._exist:
                    self._exist[path] = _exists(self._capture, path)
                    if self._exist[path]:
                        self._use(path, stored=any(map(has_start, file.rows)))
                covered |= self._exist[path]
        return covered

    def portions(self) -> Iterator[_Task]:
        """Yield what is to be read of tables that were not known before."""
        while self._new:
            yield self._new.pop(0)

    def _use(self, path: str, *, stored: bool) -> None:
        # The files that follow in the journal are most likely in this one.
        self.lines.insert(0, table_text(path))
        source, remote = self._open_source(stored), self._capture.remote
        table = StoredTable(path, partial(_open, self._capture, path))
        # A store would be asked again for each portion.
        for portion in [table] if remote else table.portions():
            self._new.append(_Task(source, portion, _TABLE_BYTES, remote))


class Side:
    """One side, opened by `open_side`; it can be read once."""

    def __init__(self, location: Path | Prefix, name: str, ranks: Sequence[int]) -> None:
        self.location, self.name, self._ranks = location, name, ranks
        self.notes: list[str] = []  #: what the user should know, one line each; complete when all was read
        self.sources: list[Source] = []
        self._members: Sequence[Member] | None = None

    def entries(self, known: Known | None = None) -> Iterator[Sequence[Entry]]:
        """Yield everything, many files at a time; the tensors of files that are *known* are not looked for.

        Raises:
            DumpstreamError: it cannot be read at all.
        """
        yield from run_batches(
            _run,
            self._tasks(known or (lambda _: {})),
            bytes_of=lambda task: task.bytes,
            most_items=_BATCH_FILES,
            is_remote=lambda task: task.remote,
        )

    def mirror(self, other: Side) -> bool:
        """Have what *other* has if this is a copy of it, with the same journals; return whether it is one."""
        members, others = self._find_members(), other._find_members()
        if members is None or others is None or len(members) != len(others):
            return False
        found: dict[StoredCapture, Member] = {}
        for ours, theirs in zip(members, others, strict=True):
            if ours.capture is None or theirs.capture is None or ours.capture.running:
                return False
            if (ours.prefix, ours.rank) != (theirs.prefix, theirs.rank):
                return False
            if ours.capture.files.digest() != theirs.capture.files.digest():
                return False
            found[theirs.capture] = ours
            self._note_problems(ours.capture, ours.prefix)
        self.sources = [source.like(found) for source in other.sources]
        return True

    def _find_members(self) -> Sequence[Member] | None:
        """Return the captures that it consists of, if it is a capture."""
        if self._members is None:
            location = self.location
            if isinstance(location, Prefix) or (location / MANIFEST).exists():
                self._members = [*Collection.open(location, self._ranks).members()]
        return self._members

    def _tasks(self, known: Known) -> Iterator[_Task]:
        members, location = self._find_members(), self.location
        if members is not None or isinstance(location, Prefix):
            for member in members or ():
                yield from self._tasks_of_member(member, known)
            return
        paths = self._add(PathSource)
        capture: CaptureSource | None = None
        for item in find_inputs([location], self._ranks if location.is_dir() else ()):
            if item.capture is not None and item.file is not None:
                if capture is None or capture.capture is not item.capture:
                    self._note_problems(item.capture, item.prefix)
                    capture = self._add(CaptureSource, item.capture, item.prefix, item.rank)
                yield _Task(
                    capture, CapturedFile(item.file, content_of(item.file), None), item.bytes, item.remote
                )
            elif item.path is not None and item.path.suffix == _PARQUET:
                table = self._add(TableSource, None, None, stored=False)
                whole = StoredTable(item.label, partial(_open_file, item.path), item.bytes)
                yield from (_Task(table, portion, _TABLE_BYTES) for portion in whole.portions())
            else:
                yield _Task(paths, item, item.bytes)

    def _add(self, kind: Any, *arguments: Any, **options: Any) -> Any:
        source = kind(len(self.sources), *arguments, **options)
        self.sources.append(source)
        return source

    def _tasks_of_member(self, member: Member, known: Known) -> Iterator[_Task]:
        capture = member.capture
        if capture is None:
            problem = problem_of_member(member)
            self.notes.append(f"{self.name}: {problem.subject}: {problem.detail}")
            return
        self._note_problems(capture, member.prefix)
        files = self._add(CaptureSource, capture, member.prefix, member.rank)
        tables = _Tables(capture, lambda stored: self._add(TableSource, capture, member, stored=stored))
        uncovered = (file for file in capture.files.without(tables.lines) if not tables.cover(file))
        while some := [*islice(uncovered, _BATCH_FILES)]:
            yield from tables.portions()
            contents = [content_of(file) for file in some]
            found = known([content for content in contents if content is not None])
            for file, content in zip(some, contents, strict=True):
                packed = None if content is None else found.get(content)
                size = file.bytes if packed is None else 0
                yield _Task(files, CapturedFile(file, content, packed), size, capture.remote)
        yield from tables.portions()

    def _note_problems(self, capture: StoredCapture, prefix: str) -> None:
        for problem in problems_of_capture(capture, prefix):
            self.notes.append(f"{self.name}: {problem.subject}: {problem.detail}")


def open_side(
    location: str | os.PathLike[str] | Prefix | Any, name: str = "mine", *, ranks: Sequence[int] = ()
) -> Side:
    """Return the side at *location*: a capture, a directory, a dump or NPY file, or a table of statistics.

    *name* is its name in messages. With *ranks*, only those of a capture of several processes are read.

    Raises:
        DumpstreamError: there is nothing at *location*.
    """
    place = as_location(location)
    if isinstance(place, Path) and not place.exists():
        raise DumpstreamError(f"{place} does not exist; {name} is a capture, a directory or a file")
    return Side(place, name, ranks)


def _run(tasks: Sequence[_Task]) -> list[Sequence[Entry]]:
    found: list[Entry] = []
    for source, of in groupby(tasks, key=lambda task: task.source):
        found += [entry for entry in source.entries([task.item for task in of]) if entry is not None]
    return [found]


def _open_file(path: Path) -> IO[bytes]:
    return path.open("rb")


def _open(capture: StoredCapture, path: str) -> Any:
    return capture.open_stored(path).file


def _exists(capture: StoredCapture, path: str) -> bool:
    with suppress(PartError):
        _open(capture, path).close()
        return True
    return False
