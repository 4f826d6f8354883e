"""TableSource: the tensors of a table of statistics, which need no bytes to be described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from dumpstream._errors import DumpstreamError
from dumpstream.analysis.sources import StoredTable
from dumpstream.comparison.elements import Elements
from dumpstream.comparison.sides.descriptor import STATISTICS
from dumpstream.comparison.sides.entry import Entry, packed_tensors
from dumpstream.comparison.sides.origin import origin_of_dump
from dumpstream.comparison.sides.source import open_dumped
from dumpstream.reading.collection import Member
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.stored import StoredCapture
from dumpstream.statistics.parquet import read_tensors
from dumpstream.statistics.table import COLUMNS
from dumpstream.system.location import Prefix

_ORIGIN = (
    "file",
    "rank",
    "iteration",
    "problem",
    "op_type",
    "op_name",
    "model",
    "device",
    "timestamp",
    "task",
)
_KEPT_CAPTURES = 64  #: of those that another process has named
_TENSOR = ("io", "index", "dtype", "format", "shape", "original_shape", "count", "size")
_ADDRESS = ("address",) if "address" in COLUMNS else ()
_READ = tuple(dict.fromkeys((*_ORIGIN, *_TENSOR, *_ADDRESS, *STATISTICS)))


class TableError(DumpstreamError):
    """The table at *path*, inside *capture* if there is one, cannot be read."""

    def __init__(self, message: str, capture: StoredCapture | None, path: str) -> None:
        super().__init__(message)
        self.capture, self.path = capture, path


class TableSource:
    """Tables of statistics, those of *capture* if they are inside one."""

    def __init__(
        self, number: int, capture: StoredCapture | None, member: Member | None, *, stored: bool
    ) -> None:
        self._number, self.capture = number, capture
        self._prefix, self._rank = ("", None) if member is None else (member.prefix, member.rank)
        self._stored = stored  # whether the bytes of its files are stored as well

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process opens the same files: it reads the journal itself."""
        capture = self.capture
        about = None if capture is None else (capture.path, capture.version)
        return _reopened, (self._number, about, self._prefix, self._rank, self._stored)

    def entries(self, items: Sequence[StoredTable]) -> Iterator[Entry | None]:
        """Yield an entry for each file that *items* have rows of.

        Raises:
            TableError: a table cannot be read.
        """
        for item in items:
            try:
                with item.open() as file:
                    for part in read_tensors(file, _READ, item.groups):
                        yield from self._entries(part.columns(_READ))
            except (DumpstreamError, OSError) as exc:
                raise TableError(f"{self._prefix}{item.label}: {exc}", self.capture, item.label) from exc

    def open(
        self, reference: str, io: str, index: int, *, order: str | None = None
    ) -> AbstractContextManager[Elements]:
        capture = self.capture
        assert capture is not None
        name = reference.removeprefix(self._prefix)
        return open_dumped(lambda: DumpFile.open(capture, name), io, index, order)

    def like(self, captures: Mapping[StoredCapture, Member]) -> TableSource:
        if self.capture is None:
            return self
        member = captures[self.capture]
        return TableSource(self._number, member.capture, member, stored=self._stored)

    def _entries(self, columns: dict[str, list[Any]]) -> Iterator[Entry]:
        origins = zip(*(columns[name] for name in _ORIGIN), strict=True)
        nothing = [None] * len(columns["file"])
        addresses = columns["address"] if _ADDRESS else nothing
        tensors = zip(
            *(columns[name] for name in _TENSOR),
            addresses,
            columns["hash"],
            columns["problem"],
            zip(*(columns[name] for name in STATISTICS), strict=True),
            strict=True,
        )
        rows = zip(origins, tensors, strict=True)
        for (file, rank), of in groupby(rows, key=lambda row: row[0][:2]):
            for some in _split([*of]):
                yield self._entry(file, self._rank if rank is None else rank, some)

    def _entry(self, file: str, rank: int | None, rows: list[tuple[Any, Any]]) -> Entry:
        (_, _, step, problem, op_type, op_name, model, device, time, task), _ = rows[0]
        origin = origin_of_dump(file, rank, step)
        if origin.op_name is None:  # the name of the file says nothing, or there is none
            origin = origin._replace(op_type=op_type, op_name=op_name, model=model, device=device)
            origin = origin._replace(time=time, task=task)
        found = [tensor for _, tensor in rows if tensor[0] is not None]
        reference = "" if self._stored and found else None
        label = self._prefix + file
        problem = None if found else problem
        return Entry(origin, label, self._number, reference, None, packed_tensors(found), problem)


@lru_cache(_KEPT_CAPTURES)
def _reopened(
    number: int,
    about: tuple[Path | Prefix, str] | None,
    prefix: str,
    rank: int | None,
    stored: bool,  # noqa: FBT001 - not for callers
) -> TableSource:
    source = TableSource(number, None if about is None else StoredCapture.open(about[0]), None, stored=stored)
    source._prefix, source._rank = prefix, rank  # noqa: SLF001 - of the same module
    return source


def _split(rows: list[tuple[Any, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    """Yield the *rows* of a name, apart if it came again."""
    tensors = [tensor[:2] for _, tensor in rows]
    start = 0
    if len(set(tensors)) < len(tensors):
        for place in range(1, len(tensors)):
            if tensors[place] in tensors[start:place]:
                yield rows[start:place]
                start = place
    yield rows[start:]
