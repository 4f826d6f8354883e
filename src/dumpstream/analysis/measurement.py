"""Measurement: the statistics of files that are already stored, computed or read back, several at once."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from dumpstream._errors import DumpFormatError, DumpstreamError, PartError
from dumpstream.format.opname import parse_name
from dumpstream.reading.content import content_of_path, content_of_stored
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.smallfiles import read_small
from dumpstream.reading.storedfile import StoredFile, is_readable
from dumpstream.statistics.devicestats import DeviceText
from dumpstream.statistics.engine import SMALL_BYTES, measure_whole
from dumpstream.statistics.files import begin_file, origin_of, whole_file
from dumpstream.statistics.parquet import read_tensors
from dumpstream.statistics.table import COLUMNS, HOST, TensorRows, rows_of
from dumpstream.system.batches import run_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from dumpstream.archive.rows import FileRow
    from dumpstream.reading.content import Content
    from dumpstream.reading.inputs import Input
    from dumpstream.reading.stored import StoredCapture
    from dumpstream.statistics.engine import MeasuredFiles
    from dumpstream.statistics.table import Condition, TensorRow, Tensors
    from dumpstream.system.location import Prefix

_PARQUET, _CSV = ".parquet", ".csv"
_SINK = "stats"
# The longest compressed file that is read again as a whole, in case it is one of version 1.
_VERSION_1_BYTES = 256 << 20
_BATCH_FILES = 256


class Measured(NamedTuple):
    """What is known of one file, or of one table of statistics."""

    label: str
    bytes: int = 0  #: that were read
    rows: Sequence[TensorRow] = ()
    problems: Sequence[str] = ()  #: why not all of it could be read; each with the name of a file
    skipped: bool = False  #: whether it is not a dump file, and the caller did not name it
    process: str = ""  #: what tells it from the other processes of a capture, as `Input.prefix`


class Batch(NamedTuple):
    """What is known of some files, or of one table of statistics."""

    files: Sequence[Measured]  #: without rows
    tensors: Tensors  #: of all files, in order, as far as they are wanted
    counts: Sequence[int]  #: how many tensors each file has


class Wanted(NamedTuple):
    """What is wanted of all that is known."""

    conditions: Sequence[Condition] = ()
    columns: Sequence[str] = tuple(COLUMNS)
    histogram: bool = False


def measure(
    paths: Iterable[Path | Prefix],
    *,
    ranks: Sequence[int] = (),
    histogram: bool = False,
    workers: int | None = None,
) -> Iterator[Measured]:
    """Yield the statistics of everything that *paths* and *ranks* stand for, as `find_inputs` finds it.

    What the statistics sink left in a capture is read; what it left out, or lost in a part that a kill cut
    short, is computed from the stored bytes. So is everything, where there are bytes, if a *histogram* is
    wanted. A Parquet file is a table that was written before.

    Raises:
        DumpstreamError: there is nothing at a path, or it cannot be read.
    """
    for batch in measure_batches(paths, Wanted(histogram=histogram), ranks=ranks, workers=workers):
        rows = iter(rows_of(batch.tensors))
        for file, count in zip(batch.files, batch.counts, strict=True):
            yield file._replace(rows=[*islice(rows, count)])


def measure_batches(
    paths: Iterable[Path | Prefix],
    wanted: Wanted,
    *,
    ranks: Sequence[int] = (),
    workers: int | None = None,
) -> Iterator[Batch]:
    """Yield what `measure` does, many files at once, and of the tensors only what is *wanted*."""
    return run_batches(
        _run,
        _tasks(find_inputs(paths, ranks), wanted),
        bytes_of=lambda task: task.bytes,
        most_items=_BATCH_FILES,
        workers=workers,
        is_remote=lambda task: task.remote,
    )


class _Source(Protocol):
    """What tasks are taken from."""

    def measure(self, items: Sequence[Any]) -> Iterator[Batch]:
        """Yield what is known of *items*, in order."""


class _Task(NamedTuple):
    source: _Source
    item: Any
    bytes: int = 0
    remote: bool = False


def _run(tasks: Sequence[_Task]) -> list[Batch]:
    groups = groupby(tasks, key=lambda task: task.source)
    return [batch for source, of in groups for batch in source.measure([task.item for task in of])]


def _tasks(inputs: Iterable[Input], wanted: Wanted) -> Iterator[_Task]:
    paths, tables = _Paths(wanted), _Tables(wanted)
    capture: _Capture | None = None
    for item in inputs:
        if item.path is not None:
            if item.path.suffix == _PARQUET:
                table = _Table(item.label, partial(_open_file, item.path), item.bytes)
                yield _Task(tables, table, item.bytes)
            else:
                yield _Task(paths, item, item.bytes)
        elif item.capture is not None and item.file is not None:
            if capture is None or capture.stored is not item.capture:
                capture = _Capture(item.capture, wanted, item.prefix, item.rank)
            yield from filter(None, map(capture.task, item.file.rows))


# Tables


def _open_file(path: Path) -> IO[bytes]:
    return path.open("rb")


class _Table(NamedTuple):
    label: str
    open: Callable[[], IO[bytes]]
    bytes: int = 0


class _Tables:
    """Tables that were written before."""

    def __init__(self, wanted: Wanted, prefix: str = "", rank: int | None = None) -> None:
        self._conditions, self._prefix, self._rank = wanted.conditions, prefix, rank
        compared = [condition.column for condition in wanted.conditions]
        self._columns = {"file", "io", "problem", *wanted.columns, *compared}

    def measure(self, items: Sequence[_Table]) -> Iterator[Batch]:
        for item in items:
            measured = Measured(self._prefix + item.label, item.bytes, process=self._prefix)
            problems: dict[str, str] = {}
            try:
                tensors = self._read(item, problems)
            except (DumpstreamError, OSError) as exc:
                problem = f"{self._prefix}{item.label}: {exc}"
                yield Batch([measured._replace(problems=[problem])], TensorRows(), [0])
            else:
                told = [f"{file}: {problem}" for file, problem in problems.items()]
                yield Batch([measured._replace(problems=told)], tensors, [sys.maxsize])

    def _read(self, item: _Table, problems: dict[str, str]) -> Tensors:
        """Return the tensors that are wanted; the first problem of each file is added to *problems*."""
        parts = []
        with item.open() as file:
            for part in read_tensors(file, self._columns):
                tensors, faulty = part._replace(prefix=self._prefix, rank=self._rank).sorted_out()
                parts.append(tensors.where(self._conditions))
                for name, problem in faulty:
                    problems.setdefault(name, problem)
        return parts[0].join(parts[1:]) if parts else TensorRows()


# Files


class _Files:
    """Files that are measured together; those that are not small, each by itself."""

    def __init__(self, wanted: Wanted, prefix: str = "", rank: int | None = None) -> None:
        self._wanted, self._prefix, self._rank = wanted, prefix, rank

    def measure(self, items: Sequence[Any]) -> Iterator[Batch]:
        data = self.read_small(items)
        names = [self.names(item) for item in items]
        found = measure_whole(
            [(name, content) for (name, _), content in zip(names, data, strict=True)],
            histogram=self._wanted.histogram,
            labels=[label for _, label in names],
        )
        in_file = np.bincount(found.columns.tensors["file"].astype(np.intp), minlength=len(found.numbers))
        counts = dict(zip(found.numbers, in_file.tolist(), strict=True))
        files: list[Measured] = []
        rows: dict[int, Sequence[TensorRow]] = {}
        for number, (item, (_, label), content) in enumerate(zip(items, names, data, strict=True)):
            size = 0 if content is None else memoryview(content).nbytes
            if number in counts:
                measured = Measured(label, size)
            elif number in found.rows:
                measured = self.judged(item, _sorted_out(label, size, found.rows[number]))
            else:
                measured = self.measure_alone(item)
            files.append(self._of_process(measured))
            if measured.rows:
                rows[number], counts[number] = self._rows_of_process(measured.rows), len(measured.rows)
        columns = found.columns
        if self._prefix:
            columns = columns._replace(names=[self._prefix + name for name in columns.names], rank=self._rank)
        tensors = self._tensors(found._replace(columns=columns, rows=rows))
        yield Batch(files, tensors, [counts.get(number, 0) for number in range(len(items))])

    def names(self, item: Any) -> tuple[str, str]:
        """Return the name of *item*, and what to call it."""
        raise NotImplementedError

    def read_small(self, items: Sequence[Any]) -> Sequence[Buffer | None]:
        """Return the bytes of those *items* that are small, and None of the others."""
        return [None] * len(items)

    def measure_alone(self, item: Any) -> Measured:
        """Return what is known of *item*, and why it is not all."""
        raise NotImplementedError

    def judged(self, item: Any, measured: Measured) -> Measured:
        """Return *measured*, or that *item* is not a dump file."""
        raise NotImplementedError

    def _tensors(self, found: MeasuredFiles) -> Tensors:
        conditions = self._wanted.conditions
        columns = found.columns.where(conditions)
        if not found.rows:
            return columns
        rows = {number: TensorRows(rows).where(conditions) for number, rows in found.rows.items()}
        by_file = found._replace(columns=columns, rows=rows).by_file()
        return TensorRows(row for number in sorted(by_file) for row in by_file[number])

    def _of_process(self, measured: Measured) -> Measured:
        if not self._prefix:
            return measured._replace(rows=()) if measured.rows else measured
        return measured._replace(
            label=self._prefix + measured.label,
            rows=(),
            problems=[self._prefix + problem for problem in measured.problems],
            process=self._prefix,
        )

    def _rows_of_process(self, rows: Sequence[TensorRow]) -> list[TensorRow]:
        if not self._prefix:
            return [*rows]
        return [replace(row, file=self._prefix + row.file, rank=self._rank) for row in rows]


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


def _sorted_out(label: str, size: int, rows: Iterable[TensorRow]) -> Measured:
    """Return those of *rows* that are tensors, and a line for each file with a problem."""
    tensors: list[TensorRow] = []
    problems: dict[str, str] = {}
    for row in rows:
        if row.problem is not None:
            problems.setdefault(row.file, row.problem)
        if row.io is not None:
            tensors.append(row)
    return Measured(label, size, tensors, [f"{file}: {problem}" for file, problem in problems.items()])


class _Paths(_Files):
    """Files on the disk."""

    def names(self, item: Input) -> tuple[str, str]:
        return item.full_name, item.label

    def read_small(self, items: Sequence[Input]) -> list[Buffer | None]:
        return [self._read_small(item) if item.bytes <= SMALL_BYTES else None for item in items]

    def _read_small(self, item: Input) -> Buffer | None:
        assert item.path is not None
        try:
            with closing(content_of_path(item.path)) as content:
                return None if content.copies else content.read(0, content.length())
        except OSError:
            return None

    def measure_alone(self, item: Input) -> Measured:
        assert item.path is not None
        origin = replace(origin_of(item.full_name), file=item.label)
        try:
            with closing(content_of_path(item.path)) as content:
                return self.judged(item, _measure(origin, content, histogram=self._wanted.histogram))
        except DumpFormatError as exc:
            return Measured(item.label, item.bytes, problems=[f"{item.label}: {exc}"])
        except OSError as exc:
            return Measured(item.label, problems=[f"{item.label}: cannot be read: {exc.strerror}"])

    def judged(self, item: Input, measured: Measured) -> Measured:
        foreign = not item.named and not measured.rows and parse_name(item.full_name).scheme is None
        return Measured(item.label, item.bytes, skipped=True) if foreign else measured


# Captures


class _StoredFiles(_Files):
    """Files of a capture that are measured from the bytes that are stored."""

    def __init__(self, stored: StoredCapture, wanted: Wanted, prefix: str, rank: int | None) -> None:
        super().__init__(wanted, prefix, rank)
        self._stored = stored

    def names(self, item: FileRow) -> tuple[str, str]:
        return item.name, item.name

    def read_small(self, items: Sequence[FileRow]) -> list[Buffer | None]:
        return read_small(self._stored, items)

    def measure_alone(self, item: FileRow) -> Measured:
        content = content_of_stored(self._stored, StoredFile(item.name, [item]))
        try:
            measured = _measure(origin_of(item.name), content, histogram=self._wanted.histogram)
        except PartError as exc:
            return Measured(item.name, problems=[f"{item.name}: {exc}"])
        return self.judged(item, measured)

    def judged(self, item: FileRow, measured: Measured) -> Measured:
        foreign = item.verdict.whole and not measured.rows and parse_name(item.name).scheme is None
        return Measured(item.name, item.bytes, skipped=True) if foreign else measured


class _StoredTexts(_StoredFiles):
    """Files of a capture of which the statistics sink left CANN's text."""

    def read_small(self, items: Sequence[FileRow]) -> list[Buffer | None]:
        return [None] * len(items)

    def measure_alone(self, item: FileRow) -> Measured:
        for path in _left(item, _CSV):
            text = DeviceText(origin_of(item.name), source=HOST)
            try:
                with self._stored.open_stored(path).file as file:
                    text.add(memoryview(file.read()))
            except (PartError, OSError) as exc:
                return Measured(item.name, problems=[f"{item.name}: {exc}"])
            return _sorted_out(item.name, 0, text.finish())
        problem = "nothing is stored that statistics could be computed from"
        return Measured(item.name, problems=[f"{item.name}: {problem}"])


def _left(row: FileRow, suffix: str) -> list[str]:
    """Return the paths that end with *suffix* among those where the statistics sink left something."""
    paths = [part.path for part in row.stored if part.sink == _SINK]
    return [path for path in paths if path is not None and path.endswith(suffix)]


class _Capture:
    """The tasks of a capture: each table that the statistics sink left, once, and what is in none."""

    def __init__(self, stored: StoredCapture, wanted: Wanted, prefix: str, rank: int | None) -> None:
        self.stored = stored
        self._histogram = wanted.histogram
        self._tables = _Tables(wanted, prefix, rank)
        self._files = _StoredFiles(stored, wanted, prefix, rank)
        self._texts = _StoredTexts(stored, wanted, prefix, rank)
        self._is_used: dict[str, bool] = {}  #: whether a table is, by its path

    def task(self, row: FileRow) -> _Task | None:
        """Return what has to be done for *row*; None if its table is read already."""
        remote = self.stored.remote
        readable = any(is_readable(part) and part.offset == 0 for part in row.stored)
        for path in _left(row, _PARQUET):
            if self._is_used.get(path):
                return None
            if path not in self._is_used:
                self._is_used[path] = not (readable and self._histogram) and self._exists(path)
                if self._is_used[path]:
                    return _Task(self._tables, _Table(path, partial(self._open, path)), remote=remote)
        source = self._files if readable else self._texts
        return _Task(source, row, row.bytes if readable else 0, remote)

    def _exists(self, path: str) -> bool:
        try:
            self._open(path).close()
        except PartError:
            return False
        return True

    def _open(self, path: str) -> IO[bytes]:
        return self.stored.open_stored(path).file
