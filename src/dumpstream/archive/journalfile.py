"""JournalFile: a journal, read as it was when it was opened, in blocks of whole lines."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from struct import Struct
from tempfile import TemporaryFile
from typing import NamedTuple

from dumpstream._errors import DumpstreamError
from dumpstream._native import scan_journal, summarise_journal
from dumpstream.archive.rows import FileRow, Row, parse_line, read_rows
from dumpstream.format.verdict import Verdict
from dumpstream.system.nofollow import open_regular

#: The verdicts, by the numbers that a `JournalLine` has for them.
VERDICTS = tuple(Verdict)

_WORDS = tuple(map(str, VERDICTS))
_BLOCK_BYTES = 1 << 20
_LINE_BYTES = 4 << 10
# A longer line is unreadable: no file has so many parts.
_LONGEST_LINE = 64 << 20
_LAYOUT = Struct("=7Q3I4B")

#: What a list shows of a file: name, verdict, bytes, stored bytes, chunks, parts, why its bytes were not to
#: be stored, if so, and the step that was marked. It is a plain tuple, and the verdict a word: a million of
#: them are made and shown.
FileSummary = tuple[str, str, int, int, int, int, str | None, int | None]


class JournalLine(NamedTuple):
    """A line; what is behind *length* is known of a common line only, which is that of a file."""

    start: int  #: in its block
    length: int  #: with the newline
    hash: int  #: of the name
    bytes: int
    chunks: int
    stored_bytes: int  #: in all sinks together
    step: int  #: if `has_step`
    name_length: int
    stored: int  #: parts, in all sinks together; all of them begin at offset 0
    verdict: int  #: a number in `VERDICTS`
    is_common: int
    at_url: int  #: whether a part may be in an object store
    is_filtered: int  #: whether its bytes were not to be stored
    has_step: int  #: whether a step was marked


class JournalFile:
    """The journal that is open as *fd*, which this object closes; lines that are added later are not seen."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)
        self.status = os.fstat(fd)
        self.size = self.status.st_size

    @classmethod
    def open(cls, path: Path) -> JournalFile:
        """Open the journal at *path*; raises `OSError`, also if it is a symbolic link."""
        return cls(open_regular(path, os.O_RDONLY))

    @classmethod
    def empty(cls) -> JournalFile:
        """Return a journal without lines."""
        return cls(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    @classmethod
    def copy(cls, lines: Iterable[bytes]) -> JournalFile:
        """Return the journal that consists of *lines*, in a file that disappears with it."""
        with TemporaryFile() as file:
            file.writelines(lines)
            file.flush()
            return cls(os.dup(file.fileno()))

    def blocks(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield all from the line that begins at *start* on, with the offset of each block.

        Blocks end with a newline, except the last if its line is unfinished. Of a line that is too long, only
        the beginning comes.

        Raises:
            DumpstreamError: the journal was cut off after it was opened.
        """
        while start < self.size:
            block = self._read(start, _BLOCK_BYTES)
            if not block:
                raise DumpstreamError("the journal was cut off while it was read; run the command again")
            end = block.rfind(b"\n") + 1
            if not end and start + len(block) < self.size:
                block, end = self._read_long(start)
                yield start, block
            else:
                block = block[:end] if end and start + end < self.size else block
                end = len(block)
                yield start, block
            start += end

    def lines(self, block: bytes, key: bytes, needle: bytes = b"") -> Iterator[JournalLine]:
        """Yield the lines of *block*, or those that contain *needle*; names are hashed with *key*."""
        return map(JournalLine._make, self.records(block, key, needle))

    def records(self, block: bytes, key: bytes, needle: bytes = b"") -> Iterator[tuple[int, ...]]:
        """Yield the same as tuples, in a third of the time."""
        return _LAYOUT.iter_unpack(scan_journal(block, key, _WORDS, needle))

    def summaries(self, block: bytes) -> tuple[list[FileSummary], list[tuple[int, int, int]]]:
        """Return what a list shows of the common lines of *block*, and where the other lines are.

        Of these: how many common ones are before it, where it starts in the block, and its length.
        """
        return summarise_journal(block, _WORDS)

    def rows(self) -> Iterator[Row]:
        """Yield all rows, as `read_rows` does."""
        return read_rows(line for _, block in self.blocks() for line in BytesIO(block))

    def file_rows(self, offset: int, block: bytes) -> Iterator[tuple[int, FileRow]]:
        """Yield the rows of files in the *block* at *offset*, with the offsets of their lines."""
        for line in BytesIO(block):
            row = parse_line(line)
            if isinstance(row, FileRow):
                yield offset, row
            offset += len(line)

    def rows_at(self, offsets: Iterable[int]) -> Iterator[FileRow]:
        """Yield the rows of the files whose lines begin at *offsets*, which ascend.

        Lines that are close to each other are read together.

        Raises:
            ValueError: a line is that of something else; its argument is the offset.
        """
        start, block, size = 0, b"", _LINE_BYTES
        for offset in offsets:
            end = block.find(b"\n", offset - start) + 1 if offset >= start else 0
            if not end:
                near = 0 <= offset - start <= 2 * len(block)
                size = min(2 * size, _BLOCK_BYTES) if near else _LINE_BYTES
                start, block = offset, self._read(offset, size)
                end = block.find(b"\n") + 1
            line = block[offset - start : end] if end else self._line_at(offset)
            row = parse_line(line)
            if not isinstance(row, FileRow):
                raise ValueError(offset)  # noqa: TRY004 - the value is wrong, whatever its type
            yield row

    def _line_at(self, offset: int) -> bytes:
        size = _LINE_BYTES
        while True:
            data = self._read(offset, size)
            end = data.find(b"\n") + 1
            if end or len(data) < size:
                return data[:end] if end else data
            size *= 8

    def _read_long(self, start: int) -> tuple[bytes, int]:
        """Return the line that begins at *start*, or its beginning, and its length."""
        line = bytearray()
        length = 0
        while block := self._read(start + length, _BLOCK_BYTES):
            end = block.find(b"\n") + 1 or len(block)
            if length < _LONGEST_LINE:
                line += block[:end]
            length += end
            if block[end - 1 : end] == b"\n":
                break
        return bytes(line[:_BLOCK_BYTES] if length > _LONGEST_LINE else line), length

    def _read(self, start: int, size: int) -> bytes:
        return os.pread(self._fd, max(min(size, self.size - start), 0), start)
