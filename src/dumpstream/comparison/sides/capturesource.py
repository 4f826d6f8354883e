"""CaptureSource: the files of a capture, described by their headers, many small ones at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from typing_extensions import Buffer

from dumpstream._errors import DumpFormatError, DumpstreamError, StoreError
from dumpstream.comparison.elements import Elements
from dumpstream.comparison.sides.descriptor import descriptors_of
from dumpstream.comparison.sides.entry import Entry, Packed
from dumpstream.comparison.sides.origin import origin_of_dump
from dumpstream.comparison.sides.source import open_dumped
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

_AGAIN = "\0"  #: is in no name
#: What such a file has is right as far as it goes.
_ENDS_EARLY = {Verdict.SHORT, Verdict.GAP, Verdict.NEVER_CLOSED}


class CapturedFile(NamedTuple):
    """A file of a capture that is to be described; one whose name came again is several."""

    file: StoredFile  #: with one row
    reference: str
    content: str | None  #: as `content_of`
    packed: Packed | None = None  #: its tensors, if they are known


def captured_files(files: Iterable[StoredFile]) -> Iterator[CapturedFile]:
    """Yield *files*, which are of a capture, each row by itself."""
    for file in files:
        if len(file.rows) == 1:
            yield CapturedFile(file, file.name, content_of(file))
        else:
            for number, row in enumerate(file.rows):
                only = StoredFile(file.name, [row])
                yield CapturedFile(only, f"{_AGAIN}{number}{_AGAIN}{file.name}", content_of(only))


class CaptureSource:
    """Files of a capture; a reference is the name of one, with the number of its row if there are several."""

    def __init__(self, number: int, capture: StoredCapture, prefix: str, rank: int | None) -> None:
        self._number, self.capture = number, capture
        self._prefix, self._rank = prefix, rank

    def entries(self, items: Sequence[CapturedFile]) -> Iterator[Entry]:
        """Yield entries for *items*."""
        unknown = [item for item in items if item.packed is None]
        data = read_small(self.capture, [item.file.rows[0] for item in unknown]) if unknown else ()
        small = {id(item): content for item, content in zip(unknown, data, strict=True)}
        for item in items:
            if item.file.name.endswith(TEXT_SUFFIX):
                yield from self._texts(item.file, small.get(id(item)))
            else:
                yield self._entry(item, small.get(id(item)))

    def label(self, file: StoredFile) -> str:
        """Return what commands call *file*."""
        return self._prefix + file.name

    def open(self, reference: str, io: str, index: int) -> AbstractContextManager[Elements]:
        return open_dumped(lambda: self._open(reference), io, index)

    def _open(self, reference: str) -> DumpFile:
        if not reference.startswith(_AGAIN):
            return DumpFile.open(self.capture, reference)
        _, number, name = reference.split(_AGAIN, 2)
        file = self.capture.files.find(name)
        if file is None:
            raise DumpstreamError(f"{name} is not in the journal any more; compare again")
        return DumpFile.open(self.capture, StoredFile(name, [file.rows[int(number)]]))

    def like(self, captures: Mapping[StoredCapture, Member]) -> CaptureSource:
        member = captures[self.capture]
        assert member.capture is not None
        return CaptureSource(self._number, member.capture, member.prefix, member.rank)

    def _entry(self, item: CapturedFile, data: Buffer | None) -> Entry:
        file = item.file
        origin = origin_of_dump(file.name, self._rank, file.step)
        entry = Entry(origin, self.label(file), self._number, item.reference, item.content)
        if item.packed is not None:
            return entry._replace(packed=item.packed)
        problem = _problem_of(file)
        try:
            header, length = self._header(file, data)
        except (DumpstreamError, OSError) as exc:
            return entry._replace(problem=problem or _told(exc))
        if origin.op_name is None and header.op_name:
            entry = entry._replace(origin=origin._replace(op_name=header.op_name))
        trusted = problem is None or file.verdict in _ENDS_EARLY
        return entry.describe(descriptors_of(header, length, None if trusted else problem))

    def _header(self, file: StoredFile, data: Buffer | None) -> tuple[DumpHeader, int]:
        """Return the header of *file*, which is all in *data* if it is small, and its bytes."""
        if data is not None:
            size = memoryview(data).nbytes
            try:
                return parse_header(data, size), size
            except DumpFormatError:
                pass  # it may be one of version 1
        _check_stored(file)
        with DumpFile.open(self.capture, file) as dump:
            return dump.header, _contiguous_bytes(file)

    def _texts(self, file: StoredFile, data: Buffer | None) -> Iterator[Entry]:
        origin = origin_of_dump(file.name, self._rank, file.step)
        entry = Entry(origin, self.label(file), self._number, None)
        try:
            text = self._read(file) if data is None else data
        except (DumpstreamError, OSError) as exc:
            yield entry._replace(problem=_problem_of(file) or _told(exc))
        else:
            yield from entries_of_text(entry, file.name, text)

    def _read(self, file: StoredFile) -> bytes:
        _check_stored(file)
        return b"".join(bytes(block) for part in file.parts for block in self.capture.read_part(part))


def _problem_of(file: StoredFile) -> str | None:
    """Return why *file* is not whole, if so."""
    if file.verdict.whole:
        return None
    return problem_of_row(next(row for row in file.rows if row.verdict is file.verdict)).detail


def _check_stored(file: StoredFile) -> None:
    if file.not_stored is not None and not file.readable:
        raise DumpstreamError(not_stored_text(file.not_stored))


def _told(exc: DumpstreamError | OSError) -> str:
    if isinstance(exc, StoreError) and exc.away:  # and so it is for all other files
        raise exc
    return exc.detail if isinstance(exc, DumpFormatError) else str(exc)


def content_of(file: StoredFile) -> str | None:
    """Return what files with the same bytes have in common.

    None if the journal has no checksums, or if the bytes are not to be trusted or not those of tensors.
    """
    if not file.verdict.whole or file.name.endswith(TEXT_SUFFIX):
        return None
    parts = file.parts
    if not parts or any(part.xxh3 is None for part in parts):
        return None
    return ",".join([f"{part.bytes}:{part.xxh3}" for part in parts])


def _contiguous_bytes(file: StoredFile) -> int:
    end = 0
    for row in file.rows:
        base = end
        for part in parts_of(row):
            if base + part.offset != end:
                return end
            end += part.bytes
    return end
