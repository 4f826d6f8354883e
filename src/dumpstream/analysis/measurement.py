"""Measurement: the statistics of files that are already stored, computed or read back, several at once."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import IO, TYPE_CHECKING, NamedTuple

from dumpstream._errors import DumpFormatError, DumpstreamError, PartError
from dumpstream.format.opname import parse_name
from dumpstream.reading.content import content_of_path, content_of_stored
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.storedfile import StoredFile, is_readable
from dumpstream.statistics.devicestats import DeviceText
from dumpstream.statistics.files import begin_file, origin_of, whole_file
from dumpstream.statistics.parquet import read_tensors
from dumpstream.statistics.table import HOST, TensorRow
from dumpstream.system.batches import run_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from dumpstream.archive.rows import FileRow
    from dumpstream.reading.content import Content
    from dumpstream.reading.inputs import Input
    from dumpstream.reading.stored import StoredCapture
    from dumpstream.system.location import Prefix

_PARQUET, _CSV = ".parquet", ".csv"
_SINK = "stats"
# The longest compressed file that is read again as a whole, in case it is one of version 1.
_VERSION_1_BYTES = 256 << 20


class Measured(NamedTuple):
    """What is known of one file, or of one table of statistics."""

    label: str
    bytes: int = 0  #: that were read
    rows: Sequence[TensorRow] = ()
    problems: Sequence[str] = ()  #: why not all of it could be read; each with the name of a file
    skipped: bool = False  #: whether it is not a dump file, and nobody said it was
    process: str = ""  #: what tells it from the other processes of a capture, as `Input.prefix`


class _Job(NamedTuple):
    run: Callable[[], Measured]
    bytes: int
    remote: bool = False


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
    return run_batches(
        _run,
        _jobs(find_inputs(paths, ranks), histogram=histogram),
        bytes_of=lambda job: job.bytes,
        workers=workers,
        is_remote=lambda job: job.remote,
    )


def _run(batch: Sequence[_Job]) -> list[Measured]:
    return [job.run() for job in batch]


def _jobs(inputs: Iterable[Input], *, histogram: bool) -> Iterator[_Job]:
    capture: _Capture | None = None
    for item in inputs:
        if item.capture is None or item.file is None:
            yield _Job(partial(_measure_path, item, histogram=histogram), item.bytes)
            continue
        if capture is None or capture.stored is not item.capture:
            capture = _Capture(item.capture, histogram=histogram)
        for row in item.file.rows:
            for job in capture.jobs(row):
                of_process = partial(_of_process, job, item.prefix, item.rank)
                yield job._replace(run=of_process if item.prefix else job.run, remote=item.remote)


def _of_process(job: _Job, prefix: str, rank: int | None) -> Measured:
    """Return what *job* gives, with the process told from the others of its capture."""
    measured = job.run()
    return measured._replace(
        label=prefix + measured.label,
        rows=[replace(row, file=prefix + row.file, rank=rank) for row in measured.rows],
        problems=[prefix + problem for problem in measured.problems],
        process=prefix,
    )


# Files on the disk


def _measure_path(item: Input, *, histogram: bool) -> Measured:
    path = item.path
    assert path is not None
    if path.suffix == _PARQUET:
        return _read_table(item.label, item.bytes, lambda: path.open("rb"))
    origin = replace(origin_of(item.full_name), file=item.label)
    try:
        with closing(content_of_path(path)) as content:
            measured = _measure(origin, content, histogram=histogram)
    except DumpFormatError as exc:
        return Measured(item.label, item.bytes, problems=[f"{item.label}: {exc}"])
    except OSError as exc:
        return Measured(item.label, problems=[f"{item.label}: cannot be read: {exc.strerror}"])
    foreign = not item.named and not measured.rows and parse_name(item.full_name).scheme is None
    return Measured(item.label, item.bytes, skipped=True) if foreign else measured


def _read_table(label: str, size: int, open_file: Callable[[], IO[bytes]]) -> Measured:
    try:
        with open_file() as file:
            return _sorted_out(label, size, read_tensors(file))
    except (DumpstreamError, OSError) as exc:
        return Measured(label, size, problems=[f"{label}: {exc}"])


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


# Captures


class _Capture:
    """The jobs of a capture: each table that the statistics sink left, once, and what is in none."""

    def __init__(self, stored: StoredCapture, *, histogram: bool) -> None:
        self.stored = stored
        self._histogram = histogram
        self._tables: dict[str, bool] = {}  #: whether a table is used, by its path

    def jobs(self, row: FileRow) -> Iterator[_Job]:
        """Yield what has to be done for *row*."""
        readable = any(is_readable(part) and part.offset == 0 for part in row.stored)
        left = [part.path for part in row.stored if part.sink == _SINK and part.path is not None]
        for path in left:
            if path.endswith(_PARQUET):
                wanted = not (readable and self._histogram)
                if path not in self._tables:
                    self._tables[path] = wanted and self._exists(path)
                    if self._tables[path]:
                        yield _Job(partial(self._read_table, path), 0)
                if self._tables[path]:
                    return
        if readable:
            yield _Job(partial(self._measure, row), row.bytes)
        else:
            yield _Job(partial(self._read_text, row, [path for path in left if path.endswith(_CSV)]), 0)

    def _exists(self, path: str) -> bool:
        try:
            self.stored.open_stored(path).file.close()
        except PartError:
            return False
        return True

    def _read_table(self, path: str) -> Measured:
        return _read_table(path, 0, lambda: self.stored.open_stored(path).file)

    def _measure(self, row: FileRow) -> Measured:
        content = content_of_stored(self.stored, StoredFile(row.name, [row]))
        try:
            measured = _measure(origin_of(row.name), content, histogram=self._histogram)
        except PartError as exc:
            return Measured(row.name, problems=[f"{row.name}: {exc}"])
        foreign = row.verdict.whole and not measured.rows and parse_name(row.name).scheme is None
        return Measured(row.name, row.bytes, skipped=True) if foreign else measured

    def _read_text(self, row: FileRow, paths: Sequence[str]) -> Measured:
        """Return what the statistics sink left as CANN's text."""
        for path in paths:
            text = DeviceText(origin_of(row.name), source=HOST)
            try:
                with self.stored.open_stored(path).file as file:
                    text.add(memoryview(file.read()))
            except (PartError, OSError) as exc:
                return Measured(row.name, problems=[f"{row.name}: {exc}"])
            return _sorted_out(row.name, 0, text.finish())
        problem = "nothing is stored that statistics could be computed from"
        return Measured(row.name, problems=[f"{row.name}: {problem}"])
