"""Side: everything that one side of a comparison has, found and described file by file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dumpstream._errors import DumpstreamError
from dumpstream.analysis.sources import StoredTable
from dumpstream.comparison.sides.capturesource import CapturedFile, CaptureSource, captured_files
from dumpstream.comparison.sides.capturetables import CaptureTables, paths_of
from dumpstream.comparison.sides.copies import count_whole, find_copies
from dumpstream.comparison.sides.entry import Entry, Packed
from dumpstream.comparison.sides.ranknumbers import Seat, number_processes
from dumpstream.comparison.sides.source import PathSource, Source
from dumpstream.comparison.sides.statisticstable import TableError, TableSource
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.inputs import find_inputs, is_capture
from dumpstream.reading.problem import Kind, Problem, problem_of_member, problems_of_capture
from dumpstream.reading.stored import StoredCapture
from dumpstream.system.batches import run_batches
from dumpstream.system.location import Prefix, as_location

_PARQUET = ".parquet"
_BATCH_FILES = 256
_TABLE_BYTES = 4 << 20  #: how large a portion of a table counts: it is a batch by itself


class Known(Protocol):
    """What is known of files already."""

    def find_contents(self, contents: Sequence[str]) -> Mapping[str, Packed]:
        """Return the tensors of files that have the same bytes as some of *contents*, by these."""

    def has_file(self, file: str) -> bool:
        """Whether there is an entry of this name."""


class _Task(NamedTuple):
    source: Any
    item: Any
    bytes: int = 0
    remote: bool = False


class _Described(NamedTuple):
    entries: Sequence[Entry]
    foreign: int = 0  #: files that are not dump files
    failure: TableError | None = None


class Side:
    """One side, opened by `open_side`; it can be read once."""

    def __init__(self, location: Path | Prefix, name: str) -> None:
        self.location, self.name = location, name
        self.notes: list[str] = []  #: what the user should know, one line each; complete when all was read
        self.sources: list[Source] = []
        self._captures: Collection | None = None
        self._members: Sequence[Member] | None = None
        self._foreign = 0
        self._failures: dict[tuple[StoredCapture, str], str] = {}

    @property
    def is_file(self) -> bool:
        """Whether it is a single file."""
        return isinstance(self.location, Path) and not self.location.is_dir()

    @property
    def directory(self) -> Path | None:
        """Where its dump files are, if it is a directory and not a capture."""
        location = self.location
        if not isinstance(location, Path) or self.is_file or self._find_members() is not None:
            return None
        return location

    def entries(self, known: Known, ranks: Iterable[int] = ()) -> Iterator[Sequence[Entry]]:
        """Yield everything, many files at a time; tensors that are *known* are not looked for.

        Of a capture of several processes that has all these *ranks*, only they are read.

        Raises:
            DumpstreamError: it cannot be read at all.
        """
        yield from self._described(self._tasks(known, set(ranks)))
        for (capture, path), problem in self._failures.items():
            self._note(f"{problem}; the headers of its files are read instead")
            yield from self._described(self._uncovered(capture, path, known))
        if self._foreign:
            one = self._foreign == 1
            files = "1 file is not a dump file" if one else f"{self._foreign} files are not dump files"
            self._note(f"{files}, and left out")

    def mirror(self, other: Side) -> bool:
        """Have what *other* has if this is a copy of it, with the same journals; return whether it is one."""
        found = self._find_copies(other)
        if found is None:
            return False
        for member in found.values():
            self._note_problems(member)
        self.sources = [source.like(found) for source in other.sources]
        return True

    def count_copied(self, other: Side, tell: Callable[[int], None]) -> int | None:
        """Return how many tensors it has in common with *other*, if this is a copy of it and all are whole.

        None if that is not so, or not known without a closer look. *tell* is called with the count so far.
        """
        found = self._find_copies(other)
        count = None if found is None else count_whole([*found], tell)
        if not count or found is None:
            return None
        for original, copy in found.items():
            other._note_problems(copy._replace(capture=original))
            self._note_problems(copy)
        return count

    def _find_copies(self, other: Side) -> Mapping[StoredCapture, Member] | None:
        members, others = self._find_members(), other._find_members()
        return None if members is None or others is None else find_copies(members, others)

    def _described(self, tasks: Iterator[_Task]) -> Iterator[Sequence[Entry]]:
        for described in run_batches(
            _describe,
            tasks,
            bytes_of=lambda task: task.bytes,
            most_items=_BATCH_FILES,
            is_remote=lambda task: task.remote,
        ):
            self._foreign += described.foreign
            failure = described.failure
            if failure is not None:
                if failure.capture is None:
                    raise failure
                self._failures.setdefault((failure.capture, failure.path), str(failure))
            yield described.entries

    @property
    def captures(self) -> Collection | None:
        """The captures that it consists of, if it is one or several."""
        if self._captures is None and is_capture(self.location):
            self._captures = Collection.open(self.location)
        return self._captures

    def number_ranks(self, numbers: Mapping[Seat, int]) -> None:
        """Take it that the processes of several hosts have these ranks."""
        assert self.captures is not None
        for host in self.captures.hosts:
            host.processes = [
                it if it.rank is None else replace(it, rank=numbers[host.name, it.rank])
                for it in host.processes or ()
            ]
        (host_name, rank), number = max(numbers.items(), key=lambda it: it[1])
        self._note(
            "ranks come again on other hosts, so processes are paired by host and rank, and numbered in that "
            f"order: rank {rank} of host {host_name} is {number}"
        )

    def _find_members(self) -> Sequence[Member] | None:
        """Return the captures that it consists of, if it is a capture."""
        if self._members is None and self.captures is not None:
            self._members = [*self.captures.members()]
        return self._members

    def _tasks(self, known: Known, ranks: set[int]) -> Iterator[_Task]:
        members = self._find_members()
        if members is None:
            assert isinstance(self.location, Path)
            yield from self._tasks_of_path(self.location)
            return
        all_ranks = {member.rank for member in members}
        for member in members:
            if not ranks or not ranks <= all_ranks or member.rank in ranks:
                self._note_problems(member)
                yield from self._tasks_of_member(member, known)

    def _tasks_of_path(self, path: Path) -> Iterator[_Task]:
        paths = self._add(PathSource)
        capture: CaptureSource | None = None
        for item in find_inputs([path]):
            if item.capture is not None and item.file is not None:
                if capture is None or capture.capture is not item.capture:
                    self._note_problems(Member(item.capture))
                    capture = self._add(CaptureSource, item.capture, item.prefix, item.rank)
                for file in captured_files([item.file]):
                    yield _Task(capture, file, file.row.bytes, item.remote)
            elif item.path is not None and item.path.endswith(_PARQUET):
                table = self._add(TableSource, None, None, stored=False)
                whole = StoredTable.at(item.path, item.label, item.bytes)
                yield from (_Task(table, portion, _TABLE_BYTES) for portion in whole.portions())
            else:
                yield _Task(paths, item, item.bytes)

    def _tasks_of_member(self, member: Member, known: Known) -> Iterator[_Task]:
        capture = member.capture
        if capture is None:
            return
        files = self._add(CaptureSource, capture, member.prefix, member.rank)
        tables = CaptureTables(capture)
        found = capture.files.without(tables.lines)
        uncovered = (it for it in captured_files(found) if not tables.cover(it.row))
        for task in self._files(files, uncovered, known):
            yield from self._tables(tables, member)
            yield task
        yield from self._tables(tables, member)

    def _tables(self, tables: CaptureTables, member: Member) -> Iterator[_Task]:
        for table in tables.take_new():
            source = self._add(TableSource, member.capture, member, stored=table.stored)
            remote = member.capture is not None and member.capture.remote
            yield from (_Task(source, portion, _TABLE_BYTES, remote) for portion in table.portions)

    def _files(self, source: CaptureSource, files: Iterator[CapturedFile], known: Known) -> Iterator[_Task]:
        remote = source.capture.remote
        while some := [*islice(files, _BATCH_FILES)]:
            found = known.find_contents([item.content for item in some if item.content is not None])
            for item in some:
                if item.content is not None and item.content in found:
                    yield _Task(source, item._replace(packed=found[item.content]), remote=remote)
                else:
                    yield _Task(source, item, item.row.bytes, remote)

    def _uncovered(self, capture: StoredCapture, path: str, known: Known) -> Iterator[_Task]:
        """Yield the files of which a table that cannot be read has rows, but no row was read."""
        sources = (it for it in self.sources if isinstance(it, CaptureSource) and it.capture is capture)
        source = next(sources)
        files = (it for it in captured_files(capture.files) if path in paths_of(it.row))
        return self._files(
            source, (it for it in files if not known.has_file(source.label(it.row.name))), known
        )

    def _add(self, kind: Any, *arguments: Any, **options: Any) -> Any:
        source = kind(len(self.sources), *arguments, **options)
        self.sources.append(source)
        return source

    def _note(self, text: str) -> None:
        self.notes.append(f"{self.name}: {text}")

    def _note_problems(self, member: Member) -> None:
        if member.capture is None:
            problems: Iterable[Problem] = [problem_of_member(member)]
        else:
            problems = problems_of_capture(member.capture, member.prefix, process=member.process)
        for problem in problems:
            detail = problem.detail
            if problem.kind is Kind.RUNNING and member.capture is not None:
                detail = f"{member.capture.writer} is still capturing; what is finished by now is compared"
            self._note(f"{problem.subject}: {detail}")


def open_side(location: str | os.PathLike[str] | Prefix | Any, name: str) -> Side:
    """Return the side at *location*: a capture, a directory, a dump or NPY file, or a table of statistics.

    *name* is what messages call it, such as "mine" and "the golden".

    Raises:
        DumpstreamError: there is nothing at *location*.
    """
    place = as_location(location)
    if isinstance(place, Path) and not place.exists():
        raise DumpstreamError(f"{place} does not exist; {name} is a capture, a directory or a file")
    return Side(place, name)


def agree_on_ranks(mine: Side, golden: Side) -> None:
    """Number the processes of both sides if one is a job that has ranks several times.

    Raises:
        DumpstreamError: a job cannot be read.
    """
    sides = (mine, golden)
    if not any(isinstance(it.captures, Collection) and it.captures.job is not None for it in sides):
        return
    numbers = number_processes(*([] if it.captures is None else it.captures.hosts for it in sides))
    for side, of_side in zip(sides, numbers or (), strict=False):
        if side.captures is not None and side.captures.job is not None:
            side.number_ranks(of_side)


def _describe(tasks: Sequence[_Task]) -> list[_Described]:
    found: list[_Described] = []
    for source, of in groupby(tasks, key=lambda task: task.source):
        entries: list[Entry | None] = []
        failure = None
        try:
            for entry in source.entries([task.item for task in of]):
                entries.append(entry)  # noqa: PERF402 - those before a failure count
        except TableError as exc:
            failure = exc
        known = [entry for entry in entries if entry is not None]
        found.append(_Described(known, len(entries) - len(known), failure))
    return found
