"""The spool: what a capture that stores nothing keeps of its files until their consumers have read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence

from typing_extensions import Buffer

from dumpstream._errors import PartError, SinkError
from dumpstream.sinks import Stored, WholeFile
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks.null import NullFile, NullSink
from dumpstream.system.heldbytes import Range, SpillFile

_NOTHING = Stored()
_GONE = "was read too late; read it before you ask for the next file"
_BLOCK_BYTES = 1 << 20


class Spool:
    """Keeps files that are too large for memory in a temporary file without a name.

    Files that the capture puts whole are not kept: the capture still has their bytes when it tells its
    consumers, and then calls `keep` for those that are too large. While *wanted* is false, nothing is kept.
    """

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._null = NullSink()
        self._file = SpillFile(None)
        self._kept = 0  # files
        self._closed = False

    async def open(self, name: str, *, offset: int = 0) -> SpooledPart | NullFile:
        return SpooledPart(self, name, offset) if self._wanted() else NullFile(self._null)

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        return [_NOTHING] * len(files)

    async def keep(self, name: str, offset: int, data: Buffer) -> SpooledPart:
        """Return *data*, the bytes at *offset* of the file *name*, kept; raises `SinkError`."""
        part = SpooledPart(self, name, offset)
        try:
            await part.write([data])
        except BaseException:
            part.free()
            raise
        return part

    async def aclose(self) -> None:
        """Keep nothing more; the temporary file goes when the last consumer has read what is in it."""
        self._closed = True
        if not self._kept:
            await self._file.aclose()

    def begin(self) -> None:
        """Count a part that is going to be kept."""
        self._kept += 1

    async def write(self, data: Buffer) -> Range:
        """Keep *data*, and return where."""
        return await self._file.write(data)

    async def read(self, taken: Range) -> bytearray:
        """Return what was kept in *taken*."""
        return await self._file.read(taken)

    def end(self, ranges: Sequence[Range]) -> None:
        """Forget a part that is in *ranges*."""
        for taken in ranges:
            self._file.free(taken)
        self._kept -= 1
        if self._closed and not self._kept:
            self._file.close_soon()


class SpooledPart:
    """A part of a file in the spool; also the open file of a sink."""

    def __init__(self, spool: Spool, name: str, offset: int) -> None:
        self.offset = offset
        self.size = 0
        self._spool, self._name = spool, name
        self._ranges: list[Range] = []
        self._holders = 1
        spool.begin()

    async def write(self, pieces: Sequence[Buffer]) -> None:
        few = bytearray()  # a hop to a thread takes as long as copying many small pieces
        for piece in pieces:
            if memoryview(piece).nbytes >= _BLOCK_BYTES:
                await self._write(few)
                few = bytearray()
                await self._write(piece)
            else:
                few += piece
                if len(few) >= _BLOCK_BYTES:
                    await self._write(few)
                    few = bytearray()
        await self._write(few)

    async def commit(self) -> Stored:
        return _NOTHING

    async def abort(self) -> None:
        self.free()

    def hold(self) -> None:
        """Keep it until one more call of `release`."""
        self._holders += 1

    def release(self) -> None:
        """Forget it, unless it is held otherwise."""
        self._holders -= 1
        if not self._holders:
            self.free()

    def free(self) -> None:
        """Forget it. Calling it again does nothing."""
        if self._holders >= 0:
            self._holders = -1
            self._spool.end(self._ranges)

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        """Yield its bytes; raises `PartError` if they are not kept any more."""
        for start, length in self._ranges:
            for at in range(0, length, _BLOCK_BYTES):
                yield await self._read(Range(start + at, min(_BLOCK_BYTES, length - at)))

    async def _write(self, data: Buffer) -> None:
        if not memoryview(data).nbytes:
            return
        try:
            taken = await self._spool.write(data)
        except OSError as exc:
            failure = sink_error(f"keep {self._name!r:.200} in a temporary file", exc)
        else:
            self._ranges.append(taken)
            self.size += taken.length
            return
        raise failure  # outside the handler: the original holds views of the caller's buffers

    async def _read(self, taken: Range) -> bytes:
        problem, data = _GONE, b""
        try:
            if self._holders > 0:
                data = bytes(await self._spool.read(taken))
        except (OSError, ValueError) as exc:
            problem = f"cannot be read from the temporary file: {exc}"
        if len(data) < taken.length or self._holders <= 0:  # also if it was forgotten while it was read
            raise PartError(repr(self._name), problem)
        return data
