"""FinishedFile: a file as the consumers of a capture get it, when nothing more of it will come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from dumpstream._errors import PartError
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.format.verdict import Verdict
from dumpstream.stages.notices import Notice
from dumpstream.statistics.table import TensorRow

_PIECE_BYTES = 1 << 20


class FilePiece(NamedTuple):
    """Contiguous bytes of a file."""

    offset: int  #: where they begin in the file
    data: bytes


class Content(Protocol):
    """Where the bytes of one part of a file can be read, other than in memory."""

    @property
    def offset(self) -> int:
        """Where the part begins in its file."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    def blocks(self) -> AsyncGenerator[bytes, None]:
        """Yield its bytes; raises `PartError` if they cannot be read, or not any more."""

    def release(self) -> None:
        """Expect no further call; also called if blocks are still being read."""


class FinishedFile(Notice):
    """A file of which nothing more will come, and its bytes.

    The bytes are in memory until the consumer asks for the next file. From then on they are read from where
    the capture stores them; if it stores nothing, they are gone.
    """

    __slots__ = ("_contents", "_data", "_most_bytes", "_row", "statistics", "weight")

    def __init__(
        self,
        row: FileRow,
        *,
        data: bytes | None = None,
        contents: Sequence[Content] = (),
        statistics: Sequence[TensorRow] | None = None,
        weight: int = 0,
        most_bytes: int,
    ) -> None:
        self._row = row
        self._data = data
        self._contents = contents
        self._most_bytes = most_bytes
        self.weight = weight
        #: A row for each tensor, if a statistics sink runs.
        self.statistics = None if statistics is None else tuple(statistics)

    @property
    def name(self) -> str:
        """The name that the runtime gave."""
        return self._row.name

    @property
    def verdict(self) -> Verdict:
        """Whether it is whole, and if not, why."""
        return self._row.verdict

    @property
    def size(self) -> int:
        """How many bytes of it came."""
        return self._row.bytes

    @property
    def chunks(self) -> int:
        """How many callbacks delivered it."""
        return self._row.chunks

    @property
    def parts(self) -> tuple[StoredPart, ...]:
        """What sinks have stored of it, and where, as in the journal."""
        return tuple(self._row.stored)

    @property
    def not_stored(self) -> str | None:
        """Why its bytes were not to be stored: ``filtered``, if the option *only* left them out."""
        return self._row.not_stored

    @property
    def step(self) -> int | None:
        """The step that was marked when it began; None if its name has one, or none was marked."""
        return self._row.step

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """Start and end of the ranges that never came."""
        return tuple(self._row.missing)

    @property
    def cause(self) -> str | None:
        """Why it is not whole, as far as that is known."""
        return self._row.cause

    def __repr__(self) -> str:
        return f"<FinishedFile {self.name!r} {self.verdict} {self.size} bytes>"

    async def read(self) -> bytes:
        """Return its bytes, up to its first gap.

        Raises:
            ValueError: it is larger than the *max_bytes* of `files`; read it with `pieces`.
            PartError: its bytes are gone, or are damaged where they are stored.
        """
        if self._data is not None:
            return self._data
        if self.size > self._most_bytes:
            raise ValueError(
                f"{self.name!r:.200} has {self.size} bytes, more than the {self._most_bytes} that may be in "
                "memory; read it with pieces(), or pass a larger max_bytes to files()"
            )
        data = bytearray()
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                if piece.offset != len(data):
                    break
                data += piece.data
        return bytes(data)

    async def pieces(self) -> AsyncGenerator[FilePiece, None]:
        """Yield its bytes in order, about a megabyte at a time, also those behind gaps.

        Raises:
            PartError: its bytes are gone, or are damaged where they are stored.
        """
        data = self._data
        if data is not None:
            for start in range(0, len(data), _PIECE_BYTES):
                yield FilePiece(start, data[start : start + _PIECE_BYTES])
            return
        if self.size and not self._contents:
            raise PartError(repr(self.name), _GONE if self.not_stored is None else _FILTERED)
        for content in self._contents:
            offset = content.offset
            async with aclosing(content.blocks()) as blocks:
                async for block in blocks:
                    yield FilePiece(offset, block)
                    offset += len(block)

    def release(self) -> None:
        """Give its memory back."""
        self._data = None
        for content in self._contents:
            content.release()


_FILTERED = (
    "is not in memory, and only= left it out of what is stored; read it before you ask for the next file, "
    "pass a larger max_bytes to files(), or add it to the patterns"
)
_GONE = (
    "is not in memory, and no sink of the capture can give it back; read it before you ask for the next "
    "file, call files() before the file begins, or add a sink such as zstd:"
)
