"""Copies: whether captures are copies of others, and how many tensors those have, without a look at each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dumpstream._errors import DumpstreamError
from dumpstream._native import count_tensors
from dumpstream.analysis.sources import StoredTable
from dumpstream.comparison.sides.capturesource import CapturedFile, captured_files
from dumpstream.comparison.sides.capturetables import CaptureTables
from dumpstream.reading.collection import Member
from dumpstream.reading.smallfiles import read_small
from dumpstream.reading.stored import StoredCapture
from dumpstream.statistics.parquet import read_tensors
from dumpstream.system.batches import run_batches

_BATCH_FILES = 256
_KNOWN = ("io", "hash")  #: what a row of a tensor that is whole has


class _CloserLookError(Exception):
    """What a file has is not known so easily."""


def find_copies(
    members: Sequence[Member], originals: Sequence[Member]
) -> Mapping[StoredCapture, Member] | None:
    """Return *members* by the capture among *originals* that each is a copy of; None if one is not.

    Copies have the same journal, and so the same hashes.
    """
    if len(members) != len(originals):
        return None
    found: dict[StoredCapture, Member] = {}
    for copy, original in zip(members, originals, strict=True):
        if copy.capture is None or original.capture is None or copy.capture.running:
            return None
        if (copy.prefix, copy.rank) != (original.prefix, original.rank):
            return None
        if copy.capture.files.digest() != original.capture.files.digest():
            return None
        found[original.capture] = copy
    return found


def count_whole(captures: Sequence[StoredCapture], tell: Callable[[int], None]) -> int | None:
    """Return how many tensors *captures* have; *tell* is called with how many were counted so far.

    None if that is not known without a closer look: a file is not whole, or has no hash, or only its
    statistics are known.
    """
    count = 0
    try:
        for capture in captures:
            for some in _counts(capture):
                count += some
                tell(count)
    except (_CloserLookError, DumpstreamError, OSError):  # which the closer look tells
        return None
    return count


def _counts(capture: StoredCapture) -> Iterator[int]:
    tables = CaptureTables(capture)
    uncovered = (it for it in captured_files(capture.files.without(tables.lines)) if not tables.cover(it.row))
    yield from run_batches(
        lambda files: [_count_files(capture, files)],
        uncovered,
        bytes_of=lambda file: file.row.bytes,
        most_items=_BATCH_FILES,
    )
    for table in tables.take_new():
        if not table.stored:
            raise _CloserLookError
        yield from map(_count_rows, table.portions)


def _count_files(capture: StoredCapture, files: Sequence[CapturedFile]) -> int:
    if None in [file.content for file in files]:
        raise _CloserLookError
    data = [it for it in read_small(capture, [file.row for file in files]) if it is not None]
    counts = count_tensors(data)
    if len(data) < len(files) or 0 in counts:
        raise _CloserLookError
    return sum(counts)


def _count_rows(table: StoredTable) -> int:
    count = 0
    with table.open() as file:
        for part in read_tensors(file, (*_KNOWN, "problem"), table.groups):
            columns = part.columns((*_KNOWN, "problem"))
            rows = len(columns["io"])
            if columns["problem"].count(None) < rows or any(None in columns[name] for name in _KNOWN):
                raise _CloserLookError
            count += rows
    return count
