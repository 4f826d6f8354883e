"""Content: the original bytes of a dump file, wherever and however they are kept."""

import errno
import mmap
import os
from collections.abc import Callable, Generator, Iterator
from typing import Protocol

from dumpstream._errors import DumpFormatError, PartError
from dumpstream.archive.rows import StoredPart
from dumpstream.codec import RAW_SUFFIX
from dumpstream.codec.blocks import DecodingError
from dumpstream.codec.decoding import is_compressed, original_of_view
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile, not_stored_text, parts_of
from dumpstream.system.memory import KEPT_BYTES, forget
from dumpstream.system.nofollow import open_regular

_BLOCK_BYTES = 1 << 20
_SMALL_BYTES = 64 << 10  #: fewer are read faster than they are mapped


class Content(Protocol):
    """The bytes of a file, read by range; a range that reaches beyond the end gives what is there."""

    #: Whether reading takes memory for what is read.
    copies: bool

    def length(self) -> int:
        """Return how many bytes there are; may have to read them all."""

    def read(self, start: int, stop: int) -> memoryview:
        """Return the bytes from *start* to *stop*, read-only."""

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield the same in blocks; each is valid until the next read."""

    def forget(self) -> None:
        """Let the system take back the memory of a mapped file; what is used again is read again."""

    def close(self) -> None:
        """Release the file; bytes that `read` returned stay valid."""


class PlainContent:
    """Bytes in memory, or of a file that was mapped for this.

    Of a mapped file, little stays in memory behind the block that `blocks` yields.
    """

    copies = False

    def __init__(self, view: memoryview, mapping: mmap.mmap | None = None) -> None:
        self._view, self._mapping = view.toreadonly(), mapping

    def length(self) -> int:
        return len(self._view)

    def read(self, start: int, stop: int) -> memoryview:
        return self._view[start:stop]

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        kept = start
        for position in range(start, min(stop, len(self._view)), _BLOCK_BYTES):
            if position - kept >= KEPT_BYTES and self._mapping is not None:
                forget(self._mapping, kept, position)
                kept = position
            yield self._view[position : min(stop, position + _BLOCK_BYTES)]

    def forget(self) -> None:
        if self._mapping is not None:
            forget(self._mapping)

    def close(self) -> None:
        self._view, self._mapping = memoryview(b""), None


class StreamedContent:
    """Bytes that can only be read from the first to the last, block by block.

    Continues where the last read stopped, so reading forward costs one pass; reading backward starts again.
    For one thread at a time.

    Args:
        begin: starts a pass; a block that it yields is valid until the next one.
        length: how many bytes there are, if that is known.
    """

    copies = True

    def __init__(
        self, begin: Callable[[], Generator[memoryview, None, None]], length: int | None = None
    ) -> None:
        self._begin, self._length = begin, length
        self._blocks = begin()
        self._block = memoryview(b"")
        self._position = 0  # of the block

    def length(self) -> int:
        if self._length is None:
            while self._advance():
                pass
            self._length = self._position + len(self._block)
        return self._length

    def read(self, start: int, stop: int) -> memoryview:
        # Grows with the bytes that are read: a length from the header may be wrong.
        data = bytearray()
        for block in self.blocks(start, stop):
            data += block
        return memoryview(data).toreadonly()

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        while start < stop:
            if start < self._position:
                self._rewind()
            if start < self._position + len(self._block):
                block = self._block[start - self._position : stop - self._position]
                start += len(block)
                yield block
            elif not self._advance():
                return

    def forget(self) -> None:
        pass  # a block is all there is

    def close(self) -> None:
        self._rewind()

    def _advance(self) -> bool:
        """Read the next block; return false at the end."""
        try:
            block = next(self._blocks, None)
        except BaseException:
            self._rewind()
            raise
        if block is None:
            return False
        self._position += len(self._block)
        self._block = block
        return True

    def _rewind(self) -> None:
        self._blocks.close()
        self._blocks = self._begin()
        self._block = memoryview(b"")
        self._position = 0


def content_of_bytes(data: memoryview, mapping: mmap.mmap | None = None) -> Content:
    """Return the content of *data*, which may be compressed, and is all of *mapping* if that is given."""
    if is_compressed(data):
        return StreamedContent(lambda: _decompressed(data))
    return PlainContent(data, mapping)


def content_of_path(path: str | os.PathLike[str]) -> Content:
    """Return the content of the file *path*, which may be compressed; raises `OSError`.

    A file that is not small is mapped: if it is shortened while it is read, this process is killed.
    """
    try:
        fd = open_regular(os.fspath(path), os.O_RDONLY)
    except OSError as exc:
        if exc.errno != errno.ELOOP:
            raise
        fd = open_regular(os.path.realpath(path), os.O_RDONLY)  # a user may name a link
    try:
        # What was stored without compression is not compressed, whatever it begins with.
        content_of = PlainContent if os.fspath(path).endswith(RAW_SUFFIX) else content_of_bytes
        start = os.read(fd, _SMALL_BYTES)
        if len(start) < _SMALL_BYTES:
            return content_of(memoryview(start))
        mapping = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        return content_of(memoryview(mapping), mapping)
    finally:
        os.close(fd)


def content_of_stored(capture: StoredCapture, file: StoredFile) -> Content:
    """Return the content of *file* of *capture*, up to the first gap.

    Reading raises `PartError` if a part is missing, damaged, or in a sink that cannot be read back, or if the
    bytes were not to be stored.
    """
    if file.not_stored is not None and not file.readable:
        raise PartError(file.name, not_stored_text(file.not_stored))
    parts = list(_contiguous(file))
    return StreamedContent(lambda: _stored(capture, parts), sum(part.bytes for part in parts))


def _contiguous(file: StoredFile) -> Iterator[StoredPart]:
    end = 0
    for row in file.rows:
        base = end
        for part in parts_of(row):
            if base + part.offset != end:
                return
            yield part
            end += part.bytes


def _stored(capture: StoredCapture, parts: list[StoredPart]) -> Generator[memoryview, None, None]:
    for part in parts:
        yield from capture.read_part(part)


def _decompressed(data: memoryview) -> Generator[memoryview, None, None]:
    position = 0
    try:
        for block in original_of_view(data):
            yield block
            position += len(block)
    except DecodingError as exc:
        raise DumpFormatError(f"cannot be decompressed: {exc}; restore it from a copy", position) from exc
