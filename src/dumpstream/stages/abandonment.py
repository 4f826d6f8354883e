"""Abandonment: what an abandoned capture does not store, written down by file."""

from collections.abc import Iterable
from contextlib import suppress

import anyio

from dumpstream._errors import DumpstreamError
from dumpstream.chunk import Chunk
from dumpstream.source import Source
from dumpstream.stages.assembly import File
from dumpstream.stages.events import End, Event, Whole
from dumpstream.stages.tally import Tally


class Abandonment:
    """The chunks and bytes that are lost with an abandoned capture, by the names of their files."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._files: dict[str, tuple[int, int]] = {}

    def add_file(self, file: File) -> None:
        """Add all that came of *file*."""
        self._add(file.name, file.chunks, file.bytes)

    def add_events(self, events: Iterable[Event]) -> None:
        """Add the files that end with *events*."""
        for event in events:
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
                    batch = await source.receive()
                with batch:
                    self.add_chunks(batch.chunks)
                    for loss in batch.losses:
                        self._tally.record_refused(loss)

    def record(self, cause: str) -> None:
        """Record every file as lost to *cause*."""
        for name, (chunks, size) in self._files.items():
            self._tally.record_lost(name, chunks, size, cause)

    def _add(self, name: str, chunks: int, size: int) -> None:
        seen_chunks, seen_size = self._files.get(name, (0, 0))
        self._files[name] = seen_chunks + chunks, seen_size + size
