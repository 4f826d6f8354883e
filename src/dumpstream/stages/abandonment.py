"""Abandonment: what an abandoned capture does not store, written down by file."""

from collections.abc import Iterable
from contextlib import suppress

import anyio

from dumpstream._errors import DumpstreamError
from dumpstream.chunk import Chunk
from dumpstream.source import Source, receive_from
from dumpstream.stages.assembly import File
from dumpstream.stages.events import End, Event, Whole
from dumpstream.stages.tally import Tally
from dumpstream.system.timeslice import TimeSlice

#: When more names than this have come, their lines are written; a name that comes again gets another line.
_MOST_NAMES = 1 << 12


class Abandonment:
    """The chunks and bytes that an abandoned capture loses to *cause*, by the names of their files."""

    def __init__(self, tally: Tally, cause: str) -> None:
        self._tally, self._cause = tally, cause
        self._files: dict[str, tuple[int, int]] = {}
        self._slice = TimeSlice()

    def add_file(self, file: File) -> None:
        """Add all that came of *file*."""
        self._tally.count_own(file)
        self._add(file.name, file.chunks, file.bytes)

    async def add_events(self, events: Iterable[Event]) -> None:
        """Add the files that end with *events*."""
        for event in events:
            await self._slice.pause()
            if isinstance(event, Whole):
                self._add(event.chunk.name, 1, len(event.chunk))
            elif isinstance(event, End):
                self.add_file(event.file)

    def add_chunks(self, chunks: Iterable[Chunk]) -> None:
        """Add *chunks* that the reassembler has not seen."""
        for chunk in chunks:
            self._add(chunk.name, 0 if chunk.more else 1, len(chunk))

    async def drain(self, source: Source, *, patience: float) -> None:
        """Add what *source* still gives, until it ends or gives nothing for *patience* seconds."""
        with suppress(anyio.EndOfStream, TimeoutError, DumpstreamError):
            while True:
                with anyio.fail_after(patience):
                    batch = await receive_from(source)
                with batch:
                    self.add_chunks(batch.chunks)
                    for loss in batch.losses:
                        self._tally.record_refused(loss)
                if len(self._files) > _MOST_NAMES:
                    await self.record()

    async def record(self) -> None:
        """Record every file that was added since the last call."""
        files, self._files = self._files, {}
        for name, (chunks, size) in files.items():
            await self._slice.pause()
            self._tally.record_lost(name, chunks, size, self._cause)

    def _add(self, name: str, chunks: int, size: int) -> None:
        seen_chunks, seen_size = self._files.get(name, (0, 0))
        self._files[name] = seen_chunks + chunks, seen_size + size
