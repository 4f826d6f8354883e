"""FileList: the files of a capture, read from its journal whenever they are asked for, and never all kept."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from io import BytesIO
from itertools import islice
from json.encoder import encode_basestring_ascii
from typing import NamedTuple, overload

import xxhash

from dumpstream.archive.journalfile import FileSummary
from dumpstream.archive.rows import FileRow, parse_line
from dumpstream.reading.index import Index
from dumpstream.reading.storedfile import StoredFile

_WILDCARDS = re.compile(r"[*?]")


class Slice(NamedTuple):
    """The Kth of several stretches of a journal, which have about as many bytes each."""

    number: int  #: counted from 1
    of: int

    def span(self, size: int) -> range:
        """Return where the lines begin that are in it, in a journal of *size* bytes."""
        start, stop = (size * number // self.of for number in (self.number - 1, self.number))
        return range(start, stop)


def summary_of(file: StoredFile) -> FileSummary:
    """Return what a list shows of *file*."""
    numbers = (file.bytes, file.stored_bytes, file.chunks, len(file.parts))
    return file.name, str(file.verdict), *numbers, file.not_stored, file.step


class FileList(Sequence[StoredFile]):
    """The files in the order in which their names first came.

    A name that comes again later is one file with several rows. Iterating reads the journal from the
    beginning to where it ended when the capture was opened.
    """

    def __init__(self, index: Index) -> None:
        self._index, self._journal = index, index.journal

    def __len__(self) -> int:
        return self._index.totals.files

    @overload
    def __getitem__(self, index: int) -> StoredFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredFile]: ...
    def __getitem__(self, index: int | slice) -> StoredFile | Sequence[StoredFile]:
        if isinstance(index, slice):
            numbers = range(*index.indices(len(self)))
            files = islice(self, max(numbers, default=-1) + 1)
            chosen = {number: file for number, file in enumerate(files) if number in numbers}
            return [chosen[number] for number in numbers]
        return self._file_at(self._index.first_at(index if index >= 0 else len(self) + index))

    def __iter__(self) -> Iterator[StoredFile]:
        return self.without(())

    def without(self, texts: Sequence[bytes], within: Slice | None = None) -> Iterator[StoredFile]:
        """Yield the files, but none whose only line contains one of *texts*, which may grow meanwhile.

        Such lines are not parsed, and take a tenth of the time. With *within*, only those files come whose
        first lines are in that slice.
        """
        for offset, block, repeated in self._blocks(self._span(within)):
            yield from self._files_of_block(offset, block, repeated, texts)

    def rows(self, within: Slice | None = None) -> Iterator[FileRow]:
        """Yield the rows of all files, in the order of the journal; with *within*, of that slice of it."""
        for offset, block in self._lines_in(self._span(within)):
            yield from (row for _, row in self._journal.file_rows(offset, block))

    def has_text(self, text: bytes) -> bool:
        """Whether a line contains *text*."""
        key = self._index.key
        lines = (self._journal.records(block, key, text) for _, block in self._journal.blocks())
        return any(True for of_block in lines for _ in of_block)

    def summaries(self) -> Iterator[list[FileSummary]]:
        """Yield what a list shows, in the order of the files, many at a time: far faster than the files."""
        for offset, block, repeated in self._blocks():
            if repeated:
                yield [*map(summary_of, self._files_of_block(offset, block, repeated))]
            else:
                yield self._summaries_of_block(block)

    def _summaries_of_block(self, block: bytes) -> list[FileSummary]:
        """Return what a list shows of the files in *block*, whose names come once."""
        found, others = self._journal.summaries(block)
        for position, start, length in reversed(others):
            row = parse_line(block[start : start + length])
            if isinstance(row, FileRow):
                found.insert(position, summary_of(StoredFile(row.name, (row,))))
        return found

    def _blocks(self, span: range | None = None) -> Iterator[tuple[int, bytes, dict[int, int]]]:
        """Yield the blocks of the journal with their offsets, and the lines in them of names that come again.

        These are by their offsets, each with the offset of the first line of its name.
        """
        repeated = self._index.repeated()
        upcoming = next(repeated, None)
        for offset, block in self._lines_in(span):
            inside: dict[int, int] = {}
            while upcoming is not None and upcoming[0] < offset + len(block):
                inside[upcoming[0]] = upcoming[1]
                upcoming = next(repeated, None)
            yield offset, block, inside

    def _span(self, within: Slice | None) -> range | None:
        return None if within is None else within.span(self._journal.size)

    def _lines_in(self, span: range | None) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of the lines that begin in *span*, with their offsets; by default of all lines."""
        for offset, block in self._journal.blocks():
            if span is None:
                yield offset, block
            elif offset >= span.stop:
                return
            elif offset + len(block) > span.start:
                start = _line_from(block, span.start - offset)
                stop = _line_from(block, span.stop - offset)
                if start < stop:
                    yield offset + start, block[start:stop]

    def _files_of_block(
        self, offset: int, block: bytes, repeated: Mapping[int, int], without: Sequence[bytes] = ()
    ) -> Iterator[StoredFile]:
        """Yield the files whose first lines are in the *block* at *offset*."""
        behind = offset
        for line in BytesIO(block):
            at, behind = behind, behind + len(line)
            if at in repeated:
                if repeated[at] == at:
                    yield self._file_at(at)
            elif not (without and (without[0] in line or any(text in line for text in without))):
                row = parse_line(line)
                if isinstance(row, FileRow):
                    yield StoredFile(row.name, (row,))

    def digest(self) -> str:
        """Return a hash of all lines; captures that have it in common have the same files."""
        digest = xxhash.xxh3_128()
        for _, block in self._journal.blocks():
            digest.update(block)
        return digest.hexdigest()

    def names(self) -> Iterator[str]:
        """Yield the names, each once, in order."""
        return (name for block in self.summaries() for name, *_ in block)

    def names_with(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield the names that may contain one of *texts*, each once, in order; reads only their lines."""
        found = heapq.merge(*(self._lines_with(_as_written(text)) for text in texts))
        previous = -1
        for offset, row in found:
            if offset != previous and self._index.first_of(offset) == offset:
                yield row.name
            previous = offset

    def find(self, name: str) -> StoredFile | None:
        """Return the file that is called *name*, if there is one."""
        rows = [row for row in self._index.rows_at(self._index.find(name)) if row.name == name]
        return StoredFile(name, rows) if rows else None

    def matching(self, pattern: str, prefix: str = "") -> Iterator[StoredFile]:
        """Yield the files whose names, behind *prefix*, match *pattern* as `fnmatch` understands it.

        Reads only the lines that have the longest text without a wildcard, which is far less than all.
        """
        for offset, row in self._lines_with(_needle(pattern, prefix)):
            if fnmatchcase(prefix + row.name, pattern) and self._index.first_of(offset) == offset:
                yield self._file_at(offset)

    def _lines_with(self, needle: bytes) -> Iterator[tuple[int, FileRow]]:
        for offset, block in self._journal.blocks():
            for line in self._journal.lines(block, self._index.key, needle):
                row = parse_line(block[line.start : line.start + line.length])
                if isinstance(row, FileRow):
                    yield offset + line.start, row

    def _file_at(self, first: int) -> StoredFile:
        rows = [*self._index.rows_at(self._index.lines_of(first))]
        return StoredFile(rows[0].name, rows)


def _line_from(block: bytes, position: int) -> int:
    """Return where the first line begins that begins at *position* or behind it; the end if none does."""
    if position <= 0:
        return 0
    return block.find(b"\n", position - 1) + 1 or len(block)


def _needle(pattern: str, prefix: str) -> bytes:
    """Return text, as a journal has it, that is in every name which matches *pattern* behind *prefix*."""
    literal = pattern.partition("[")[0]
    if prefix and literal.startswith(prefix):
        literal, prefix = literal.removeprefix(prefix), ""
    # Behind a prefix, which ends with a slash, text without a slash is in the prefix or in the name.
    certain = [
        text for text in _WILDCARDS.split(literal) if not prefix or ("/" not in text and text not in prefix)
    ]
    return _as_written(max(certain, key=len, default=""))


def _as_written(text: str) -> bytes:
    """Return *text* as a journal has it."""
    return encode_basestring_ascii(text)[1:-1].encode()
