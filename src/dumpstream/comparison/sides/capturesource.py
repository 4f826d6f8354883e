"""CaptureSource: the files of a capture, described by their headers, many small ones at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import Buffer

from dumpstream._errors import DumpFormatError, DumpstreamError, StoreError
from dumpstream.archive.rows import FileRow
from dumpstream.comparison.elements import Elements
from dumpstream.comparison.sides.descriptor import descriptors_of
from dumpstream.comparison.sides.entry import Entry, Packed, packed_file
from dumpstream.comparison.sides.origin import origin_of_dump
from dumpstream.comparison.sides.source import kept_open, open_dumped
from dumpstream.comparison.sides.statisticstext import entries_of_text
from dumpstream.format.header import DumpHeader, parse_header
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.format.verdict import Verdict
from dumpstream.reading.collection import Member
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.problem import problem_of_row
from dumpstream.reading.smallfiles import read_small
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile, not_stored_text, parts_of
from dumpstream.system.location import Prefix

_SMALL_BYTES = 64 << 10
_KEPT_CAPTURES = 64  #: of those that another process has named
_AGAIN = "\0"  #: is in no name
#: What such a file has is right as far as it goes.
_ENDS_EARLY = {Verdict.SHORT, Verdict.GAP, Verdict.NEVER_CLOSED}


class CapturedFile(NamedTuple):
    """A file of a capture that is to be described; one whose name came again is several."""

    row: FileRow
    reference: str
    content: str | None  #: as `content_of`
    packed: Packed | None = None  #: its tensors, if they are known

    @property
    def stored(self) -> StoredFile:
        """The file as a capture has it."""
        return StoredFile(self.row.name, [self.row])


def captured_files(files: Iterable[StoredFile]) -> Iterator[CapturedFile]:
    """Yield *files*, which are of a capture, each row by itself."""
    for file in files:
        rows = file.rows
        if len(rows) == 1:
            yield CapturedFile(rows[0], "", content_of(rows[0]))
        else:
            for number, row in enumerate(rows):
                yield CapturedFile(row, f"{_AGAIN}{number}{_AGAIN}{file.name}", content_of(row))


class CaptureSource:
    """Files of a capture, which are opened by their labels, or if there are several, by name and number."""

    def __init__(self, number: int, capture: StoredCapture, prefix: str, rank: int | None) -> None:
        self._number, self.capture = number, capture
        self._prefix, self._rank = prefix, rank
        self._small = kept_open(self._read_small)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process opens the same files: it reads the journal itself."""
        capture = self.capture
        return _reopened, (self._number, capture.path, capture.version, self._prefix, self._rank)

    def entries(self, items: Sequence[CapturedFile]) -> Iterator[Entry]:
        """Yield entries for *items*."""
        unknown = [item for item in items if item.packed is None]
        data = read_small(self.capture, [item.row for item in unknown]) if unknown else ()
        small = {id(item): content for item, content in zip(unknown, data, strict=True)}
        for item in items:
            if item.row.name.endswith(TEXT_SUFFIX):
                yield from self._texts(item, small.get(id(item)))
            else:
                yield self._entry(item, small.get(id(item)))

    def label(self, name: str) -> str:
        """Return what commands call the file *name*."""
        return self._prefix + name

    def open(
        self, reference: str, io: str, index: int, *, order: str | None = None
    ) -> AbstractContextManager[Elements]:
        return open_dumped(lambda: self._open(reference), io, index, order)

    def _open(self, reference: str) -> AbstractContextManager[DumpFile]:
        small = self._small(reference)
        return DumpFile.open(self.capture, self._find(reference)) if small is None else nullcontext(small)

    def _find(self, reference: str) -> StoredFile:
        number, name = 0, reference.removeprefix(self._prefix)
        if reference.startswith(_AGAIN):
            _, text, name = reference.split(_AGAIN, 2)
            number = int(text)
        file = self.capture.files.find(name)
        if file is None or number >= len(file.rows):
            raise DumpstreamError(f"{name} is not in the journal any more; compare again")
        return StoredFile(name, [file.rows[number]])

    def _read_small(self, reference: str) -> Buffer | None:
        row = self._find(reference).rows[0]
        return read_small(self.capture, [row])[0] if row.bytes <= _SMALL_BYTES else None

    def like(self, captures: Mapping[StoredCapture, Member]) -> CaptureSource:
        member = captures[self.capture]
        assert member.capture is not None
        return CaptureSource(self._number, member.capture, member.prefix, member.rank)

    def _entry(self, item: CapturedFile, data: Buffer | None) -> Entry:
        row = item.row
        origin = origin_of_dump(row.name, self._rank, row.step)
        label = self.label(row.name)
        if item.packed is not None:
            return Entry(origin, label, self._number, item.reference, item.content, item.packed)
        problem = None if row.verdict.whole else problem_of_row(row).detail
        if problem is None and data is not None and origin.op_name is not None:
            packed = packed_file(memoryview(data))
            if packed is not None:
                return Entry(origin, label, self._number, item.reference, item.content, packed)
        entry = Entry(origin, label, self._number, item.reference, item.content)
        try:
            header, length = self._header(item, data)
        except (DumpstreamError, OSError) as exc:
            return entry._replace(problem=problem or _told(exc))
        if origin.op_name is None and header.op_name:
            entry = entry._replace(origin=origin._replace(op_name=header.op_name))
        trusted = problem is None or row.verdict in _ENDS_EARLY
        return entry.describe(descriptors_of(header, length, None if trusted else problem))

    def _header(self, item: CapturedFile, data: Buffer | None) -> tuple[DumpHeader, int]:
        """Return the header of *item*, which is all in *data* if it is small, and its bytes."""
        if data is not None:
            size = memoryview(data).nbytes
            try:
                return parse_header(data, size), size
            except DumpFormatError:
                pass  # it may be one of version 1
        file = item.stored
        _check_stored(file)
        with DumpFile.open(self.capture, file) as dump:
            return dump.header, _contiguous_bytes(item.row)

    def _texts(self, item: CapturedFile, data: Buffer | None) -> Iterator[Entry]:
        row = item.row
        origin = origin_of_dump(row.name, self._rank, row.step)
        entry = Entry(origin, self.label(row.name), self._number, None)
        try:
            text = self._read(item.stored) if data is None else data
        except (DumpstreamError, OSError) as exc:
            problem = None if row.verdict.whole else problem_of_row(row).detail
            yield entry._replace(problem=problem or _told(exc))
        else:
            yield from entries_of_text(entry, row.name, text)

    def _read(self, file: StoredFile) -> bytes:
        _check_stored(file)
        return b"".join(bytes(block) for part in file.parts for block in self.capture.read_part(part))


@lru_cache(_KEPT_CAPTURES)
def _reopened(
    number: int,
    path: Path | Prefix,
    version: str,  # noqa: ARG001 - one that has changed is not the same
    prefix: str,
    rank: int | None,
) -> CaptureSource:
    return CaptureSource(number, StoredCapture.open(path), prefix, rank)


def _check_stored(file: StoredFile) -> None:
    if file.not_stored is not None and not file.readable:
        raise DumpstreamError(not_stored_text(file.not_stored))


def _told(exc: DumpstreamError | OSError) -> str:
    if isinstance(exc, StoreError) and exc.away:  # and so it is for all other files
        raise exc
    return exc.detail if isinstance(exc, DumpFormatError) else str(exc)


def content_of(row: FileRow) -> str | None:
    """Return what files with the same bytes have in common.

    None if the journal has no checksums, or if the bytes are not to be trusted or not those of tensors.
    """
    if not row.verdict.whole or row.name.endswith(TEXT_SUFFIX):
        return None
    parts = row.stored if len(row.stored) == 1 else parts_of(row)
    if not parts or None in [part.xxh3 for part in parts]:
        return None
    return ",".join([f"{part.bytes}:{part.xxh3}" for part in parts])


def _contiguous_bytes(row: FileRow) -> int:
    end = 0
    for part in parts_of(row):
        if part.offset != end:
            break
        end += part.bytes
    return end
