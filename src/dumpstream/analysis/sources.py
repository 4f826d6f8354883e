"""Sources of statistics: files that are measured, and tables that were written before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from typing_extensions import Buffer

from dumpstream._errors import DumpFormatError, DumpstreamError, StoreError
from dumpstream.archive.rows import FileRow, part_beginning, sink_beginning
from dumpstream.format.opname import parse_name
from dumpstream.reading.content import Content, content_of_path, content_of_stored
from dumpstream.reading.smallfiles import read_small
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile, is_readable
from dumpstream.statistics.condition import Comparison, Condition, Either, columns_of, comparable
from dumpstream.statistics.devicestats import DeviceText
from dumpstream.statistics.engine import SMALL_BYTES, MeasuredFiles, measure_whole
from dumpstream.statistics.files import begin_file, origin_of, whole_file
from dumpstream.statistics.parquet import read_tensors, row_groups
from dumpstream.statistics.table import COLUMNS, HOST, Provenance, TensorRow
from dumpstream.statistics.tensors import TensorRows, Tensors

#: Ends the names of CANN's text, as the statistics sink leaves it.
CSV = ".csv"
_SINK = "stats"
_BLOCK_BYTES = 1 << 20
# The longest compressed file that is read again as a whole, in case it is one of version 1.
_VERSION_1_BYTES = 256 << 20


class Measured(NamedTuple):
    """What is known of one file, or of a portion of a table of statistics."""

    label: str
    bytes: int = 0  #: that were read
    rows: Sequence[TensorRow] = ()
    problems: Sequence[str] = ()  #: why not all of it could be read; each with the name of a file
    skipped: bool = False  #: whether it is not a dump file, and the caller did not name it
    not_stored: bool = False  #: whether the capture was not to store it, and nothing else is known
    process: str = ""  #: what tells it from the other processes of a capture, as `Input.prefix`


class Batch(NamedTuple):
    """What is known of some files, or of a portion of a table of statistics."""

    files: Sequence[Measured]  #: without rows
    tensors: Tensors  #: of all files, in order, as far as they are wanted
    counts: Sequence[int]  #: how many tensors each file has, or more if it is the only one


class Wanted(NamedTuple):
    """What is wanted of all that is known."""

    conditions: Sequence[Condition] = ()
    columns: Sequence[str] = tuple(COLUMNS)
    histogram: bool = False
    patterns: Sequence[str] = ()  #: of the names of files; all if there are none

    @property
    def of_files(self) -> list[Condition]:
        """The condition that a row is of a file that is called like one of the patterns, or matches it."""
        texts = [comparable(pattern) for pattern in self.patterns]
        named = [Comparison("file", operator, text) for text in texts for operator in ("==", "~")]
        return [Either(named)] if named else []


class StoredTable(NamedTuple):
    """A table that was written before, or a portion of it, and what to call it."""

    label: str
    open: Callable[[], IO[bytes]]
    bytes: int = 0
    groups: Sequence[int] | None = None  #: the row groups of the portion

    @classmethod
    def at(cls, path: str, label: str, size: int) -> StoredTable:
        """Return the table in a file of *size* bytes."""
        return cls(label, lambda: Path(path).open("rb"), size)

    def portions(self) -> list[StoredTable]:
        """Return it in portions that take little memory; one that cannot be read stays whole."""
        groups: list[range] = []
        with suppress(DumpstreamError, OSError), self.open() as file:
            groups = row_groups(file)
        if not groups:
            return [self]
        return [self._replace(groups=groups[0]), *(self._replace(groups=it, bytes=0) for it in groups[1:])]


class StoredTables:
    """Tables that were written before."""

    def __init__(self, wanted: Wanted, prefix: str = "", of: Provenance = Provenance()) -> None:  # noqa: B008 - never changes
        self._conditions, self._of_files = wanted.conditions, wanted.of_files
        self._prefix, self._provenance = prefix, of
        self._columns = {"file", "io", "problem", *wanted.columns, *columns_of(wanted.conditions)}

    def measure(self, items: Sequence[StoredTable]) -> Iterator[Batch]:
        """Yield what is known of *items*, one by one."""
        for item in items:
            label = self._prefix + item.label
            problems: dict[str, str] = {}
            try:
                tensors = self._read(item, problems)
            except (DumpstreamError, OSError) as exc:
                tensors, problems = TensorRows(), {label: str(exc)}
            told = [f"{file}: {problem}" for file, problem in problems.items()]
            measured = Measured(label, item.bytes, problems=told, process=self._prefix)
            yield Batch([measured], tensors, [sys.maxsize])

    def _read(self, item: StoredTable, problems: dict[str, str]) -> Tensors:
        """Return the tensors that are wanted; the first problem of each file is added to *problems*."""
        parts = []
        with item.open() as file:
            for part in read_tensors(file, self._columns, item.groups, self._conditions):
                found = part._replace(prefix=self._prefix, provenance=self._provenance)
                tensors, faulty = found.where(self._of_files).sorted_out()
                parts.append(tensors.where(self._conditions))
                for name, problem in faulty:
                    problems.setdefault(name, problem)
        return parts[0].join(parts[1:]) if parts else TensorRows()


class Item(NamedTuple):
    """A file that is to be measured."""

    name: str  #: says what its tensors are of
    label: str  #: what to call it
    bytes: int
    place: Any  #: where its bytes are: a path, or a `FileRow` of a capture
    may_be_foreign: bool  #: whether it need not be a dump file
    step: int | None = None  #: that was marked, if its name has none


class _Files:
    """Files that are measured together; those that are not small, each by itself."""

    def __init__(self, wanted: Wanted, prefix: str = "", of: Provenance = Provenance()) -> None:  # noqa: B008 - never changes
        self._wanted, self._prefix, self._provenance = wanted, prefix, of

    def measure(self, items: Sequence[Item]) -> Iterator[Batch]:
        """Yield what is known of *items*, at one go."""
        data = self.read_small(items)
        labels = [item.label for item in items]
        small = [(item.name, content) for item, content in zip(items, data, strict=True)]
        found = measure_whole(
            small,
            histogram=self._wanted.histogram,
            labels=labels,
            provenance=self._provenance,
            steps=[item.step for item in items],
        )
        in_file = np.bincount(found.columns.tensors["file"].astype(np.intp), minlength=len(found.numbers))
        counts = dict(zip(found.numbers, in_file.tolist(), strict=True))
        files: list[Measured] = []
        rows: dict[int, Sequence[TensorRow]] = {}
        for number, (item, content) in enumerate(zip(items, data, strict=True)):
            size = 0 if content is None else memoryview(content).nbytes
            if number in counts:
                files.append(Measured(item.label, size, process=self._prefix))
                continue
            if number in found.rows:
                measured = _judged(item, _sorted_out(item.label, size, found.rows[number]))
            else:
                origin = origin_of(item.name, item.label, self._provenance, item.step)
                measured = self.measure_alone(item, origin)
            files.append(measured._replace(rows=(), process=self._prefix))
            if measured.rows:
                rows[number], counts[number] = measured.rows, len(measured.rows)
        tensors = self._wanted_of(found._replace(rows=rows))
        yield Batch(files, tensors, [counts.get(number, 0) for number in range(len(items))])

    def read_small(self, items: Sequence[Item]) -> Sequence[Buffer | None]:
        """Return the bytes of those *items* that are small, and None of the others."""
        raise NotImplementedError

    def measure_alone(self, item: Item, origin: TensorRow) -> Measured:
        """Return what is known of *item*, and why it is not all."""
        raise NotImplementedError

    def _wanted_of(self, found: MeasuredFiles) -> Tensors:
        conditions = self._wanted.conditions
        columns = found.columns.where(conditions)
        if not found.rows:
            return columns
        rows = {number: TensorRows(rows).where(conditions) for number, rows in found.rows.items()}
        by_file = found._replace(columns=columns, rows=rows).by_file()
        return TensorRows(row for number in sorted(by_file) for row in by_file[number])


def _measure(origin: TensorRow, content: Content, *, histogram: bool) -> Measured:
    if not content.copies:
        size = content.length()
        rows = whole_file(origin, content.read(0, size), histogram=histogram)
        return _sorted_out(origin.file, size, rows)
    statistics = begin_file(origin, histogram=histogram)
    size = 0
    for block in content.blocks(0, sys.maxsize):
        statistics.add(block)
        size += len(block)
    rows = statistics.finish()
    if not any(row.io for row in rows) and size <= _VERSION_1_BYTES:
        rows = whole_file(origin, content.read(0, size), histogram=histogram)
    return _sorted_out(origin.file, size, rows)


def _sorted_out(label: str, size: int, rows: Sequence[TensorRow]) -> Measured:
    """Return those of the *rows* of a file that are tensors, and a line for its first problem."""
    tensors = [row for row in rows if row.io is not None]
    problems = [f"{label}: {row.problem}" for row in rows if row.problem is not None]
    return Measured(label, size, tensors, problems[:1])


def _judged(item: Item, measured: Measured) -> Measured:
    """Return *measured*, or that *item* is not a dump file."""
    foreign = item.may_be_foreign and not measured.rows and parse_name(item.name).scheme is None
    return Measured(item.label, item.bytes, skipped=True) if foreign else measured


class Paths(_Files):
    """Files on the disk."""

    def read_small(self, items: Sequence[Item]) -> list[Buffer | None]:
        return [self._read_small(item.place) if item.bytes <= SMALL_BYTES else None for item in items]

    def _read_small(self, path: Path) -> Buffer | None:
        with suppress(OSError), closing(content_of_path(path)) as content:
            return None if content.copies else content.read(0, content.length())
        return None

    def measure_alone(self, item: Item, origin: TensorRow) -> Measured:
        try:
            with closing(content_of_path(item.place)) as content:
                return _judged(item, _measure(origin, content, histogram=self._wanted.histogram))
        except DumpFormatError as exc:
            return Measured(item.label, item.bytes, problems=[f"{item.label}: {exc}"])
        except OSError as exc:
            return Measured(item.label, problems=[f"{item.label}: cannot be read: {exc.strerror}"])


class StoredFiles(_Files):
    """Files of a capture that are measured from the bytes that are stored."""

    def __init__(self, stored: StoredCapture, wanted: Wanted, prefix: str, of: Provenance) -> None:
        super().__init__(wanted, prefix, of)
        self._stored = stored

    def read_small(self, items: Sequence[Item]) -> list[Buffer | None]:
        return read_small(self._stored, [item.place for item in items])

    def measure_alone(self, item: Item, origin: TensorRow) -> Measured:
        try:
            if item.place.not_stored is not None and not item.place.stored:
                return Measured(item.label, not_stored=True)
            if not has_start(item.place):
                return _sorted_out(item.label, 0, self._read_text(item.place, origin))
            content = content_of_stored(self._stored, StoredFile(item.name, [item.place]))
            return _judged(item, _measure(origin, content, histogram=self._wanted.histogram))
        except StoreError as exc:
            if exc.away:  # and so it is for all others
                raise
            return Measured(item.label, problems=[f"{item.label}: {exc}"])
        except (DumpstreamError, OSError) as exc:
            return Measured(item.label, problems=[f"{item.label}: {exc}"])

    def _read_text(self, row: FileRow, origin: TensorRow) -> list[TensorRow]:
        """Return what the statistics sink left as CANN's text."""
        paths = left_by_sink(row, CSV)
        if not paths:
            raise DumpstreamError("nothing is stored that statistics could be computed from")
        text = DeviceText(origin, source=HOST)
        with self._stored.open_stored(paths[0]).file as file:
            while not text.stopped and (block := file.read(_BLOCK_BYTES)):
                text.add(memoryview(block))
        return text.finish()


def has_start(row: FileRow) -> bool:
    """Whether the first bytes of the file can be read back."""
    return any(is_readable(part) and part.offset == 0 for part in row.stored)


def left_by_sink(row: FileRow, suffix: str) -> list[str]:
    """Return the paths that end with *suffix* among those where the statistics sink left something."""
    parts = [part for part in row.stored if part.sink == _SINK]
    return [part.path for part in parts if part.path is not None and part.path.endswith(suffix)]


def measures_files(capture: StoredCapture) -> bool:
    """Whether the statistics sink has left something of files of *capture*."""
    return capture.files.has_text(sink_beginning(_SINK).encode())


def table_text(path: str) -> bytes:
    """Return what is in the lines of files whose statistics are in the table at *path*."""
    return part_beginning(_SINK, path).encode()
