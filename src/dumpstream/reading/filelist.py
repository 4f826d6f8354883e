"""FileList: the files of a capture, read from its journal whenever they are asked for, and never all kept."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from json.encoder import encode_basestring_ascii
from typing import NamedTuple, overload

from dumpstream.archive.journalfile import NAME_START, VERDICTS
from dumpstream.archive.rows import FileRow, parse_line
from dumpstream.reading.index import Index
from dumpstream.reading.storedfile import StoredFile

_WORDS = tuple(map(str, VERDICTS))
_WILDCARDS = re.compile(r"[*?]")


class FileSummary(NamedTuple):
    """What a list shows of a file."""

    name: str
    verdict: str  #: the word, which is shown faster than a `Verdict`
    bytes: int
    stored_bytes: int
    chunks: int
    parts: int

    @classmethod
    def of(cls, file: StoredFile) -> FileSummary:
        """Return that of *file*."""
        numbers = (file.bytes, file.stored_bytes, file.chunks, len(file.parts))
        return cls(file.name, str(file.verdict), *numbers)


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
        repeated = self._index.repeated()
        upcoming = next(repeated, None)
        for offset, row in self._rows():
            if upcoming is None or offset != upcoming[0]:
                yield StoredFile(row.name, (row,))
                continue
            if upcoming[1] == offset:
                yield self._file_at(offset)
            upcoming = next(repeated, None)

    def rows(self) -> Iterator[FileRow]:
        """Yield the rows of all files, in the order of the journal."""
        return (row for _, row in self._rows())

    def summaries(self) -> Iterator[list[FileSummary]]:
        """Yield what a list shows, in the order of the files, many at a time: far faster than the files."""
        repeated = self._index.repeated()
        upcoming = next(repeated, None)
        for offset, block in self._journal.blocks():
            if upcoming is None or upcoming[0] >= offset + len(block):
                yield [*self._summaries_of_block(block)]
                continue
            found = []
            for at, row in self._journal.file_rows(offset, block):
                if upcoming is None or at != upcoming[0]:
                    found.append(FileSummary.of(StoredFile(row.name, (row,))))
                    continue
                if upcoming[1] == at:
                    found.append(FileSummary.of(self._file_at(at)))
                upcoming = next(repeated, None)
            yield found

    def _summaries_of_block(self, block: bytes) -> Iterator[FileSummary]:
        """Yield what a list shows of the files in *block*, whose names come once."""
        text = block.decode("latin-1")  # names in common lines are ASCII, and a slice of text is text
        new = tuple.__new__
        for record in self._journal.records(block, self._index.key):
            start, length, _, size, chunks, stored_bytes, name_length, stored, verdict, is_common, _ = record
            if is_common:
                name = text[start + NAME_START : start + NAME_START + name_length]
                parts = 1 if stored else 0
                yield new(FileSummary, (name, _WORDS[verdict], size, stored_bytes, chunks, parts))
            else:
                row = parse_line(block[start : start + length])
                if isinstance(row, FileRow):
                    yield FileSummary.of(StoredFile(row.name, (row,)))

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
        rows = [row for row in map(self._index.row_at, self._index.find(name)) if row.name == name]
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

    def _rows(self) -> Iterator[tuple[int, FileRow]]:
        for offset, block in self._journal.blocks():
            yield from self._journal.file_rows(offset, block)

    def _file_at(self, first: int) -> StoredFile:
        rows = [self._index.row_at(offset) for offset in self._index.lines_of(first)]
        return StoredFile(rows[0].name, rows)


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
