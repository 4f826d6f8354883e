"""Side: everything that one side of a comparison has, found and described file by file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NamedTuple

from dumpstream._errors import DumpstreamError, PartError
from dumpstream.analysis.sources import StoredTable, has_start, left_by_sink, table_text
from dumpstream.archive.manifest import MANIFEST
from dumpstream.comparison.sides.entry import Entry
from dumpstream.comparison.sides.source import CaptureSource, PathSource, Source
from dumpstream.comparison.sides.statisticstable import TableSource
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.problem import problem_of_member, problems_of_capture
from dumpstream.reading.stored import StoredCapture
from dumpstream.system.batches import run_batches
from dumpstream.system.location import Prefix, as_location

_PARQUET = ".parquet"
_BATCH_FILES = 256
_TABLE_BYTES = 4 << 20  #: how large a portion of a table counts: it is a batch by itself


class _Task(NamedTuple):
    source: Any
    item: Any
    bytes: int = 0
    remote: bool = False


class Side:
    """One side, opened by `open_side`; it can be read once."""

    def __init__(self, location: Path | Prefix, name: str, ranks: Sequence[int]) -> None:
        self.location, self.name, self._ranks = location, name, ranks
        self.notes: list[str] = []  #: what the user should know, one line each; complete when all was read
        self.sources: list[Source] = []
        self.skipped = 0  #: files that are not dump files

    def entries(self) -> Iterator[Sequence[Entry]]:
        """Yield everything, many files at a time.

        Raises:
            DumpstreamError: it cannot be read at all.
        """
        yield from run_batches(
            _run,
            self._tasks(),
            bytes_of=lambda task: task.bytes,
            most_items=_BATCH_FILES,
            is_remote=lambda task: task.remote,
        )

    def _tasks(self) -> Iterator[_Task]:
        location = self.location
        if isinstance(location, Prefix) or (location / MANIFEST).exists():
            for member in Collection.open(location, self._ranks).members():
                yield from self._tasks_of_member(member)
            return
        paths = self._add(PathSource)
        capture: CaptureSource | None = None
        for item in find_inputs([location], self._ranks if location.is_dir() else ()):
            if item.capture is not None and item.file is not None:
                if capture is None or capture.capture is not item.capture:
                    self._note_problems(item.capture, item.prefix)
                    capture = self._add(CaptureSource, item.capture, item.prefix, item.rank)
                yield _Task(capture, item.file, item.bytes, item.remote)
            elif item.path is not None and item.path.suffix == _PARQUET:
                table = self._add(TableSource, None, "", None, stored=False)
                whole = StoredTable(item.label, partial(_open_file, item.path), item.bytes)
                yield from (_Task(table, portion, _TABLE_BYTES) for portion in whole.portions())
            else:
                yield _Task(paths, item, item.bytes)

    def _add(self, kind: Any, *arguments: Any, **options: Any) -> Any:
        source = kind(len(self.sources), *arguments, **options)
        self.sources.append(source)
        return source

    def _tasks_of_member(self, member: Member) -> Iterator[_Task]:
        capture = member.capture
        if capture is None:
            problem = problem_of_member(member)
            self.notes.append(f"{self.name}: {problem.subject}: {problem.detail}")
            return
        self._note_problems(capture, member.prefix)
        files = self._add(CaptureSource, capture, member.prefix, member.rank)
        tables: dict[str, bool] = {}
        covered: list[bytes] = []
        for file in capture.files.without(covered):
            paths = [path for row in file.rows for path in left_by_sink(row, _PARQUET)]
            for path in paths:
                if path not in tables:
                    tables[path] = _exists(capture, path)
                    if tables[path]:
                        covered.insert(0, table_text(path))
                        stored = any(map(has_start, file.rows))
                        source = self._add(TableSource, capture, member.prefix, member.rank, stored=stored)
                        table = StoredTable(path, partial(_open, capture, path))
                        portions = [table] if capture.remote else table.portions()
                        yield from (_Task(source, it, _TABLE_BYTES, capture.remote) for it in portions)
            if not any(tables[path] for path in paths):
                yield _Task(files, file, file.bytes, capture.remote)

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
