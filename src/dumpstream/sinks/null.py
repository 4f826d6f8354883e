"""The null sink: counts dump files and keeps nothing of them."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Buffer

from dumpstream._errors import SinkError
from dumpstream.sinks import SinkSettings, Stored, WholeFile

_NOTHING = Stored()


class NullSink:
    """Measures how fast the rest of the pipeline is, or how large a dump would be.

    Attributes:
        files: how many files were committed.
        bytes: how many bytes they had.
    """

    stores_bytes = False
    takes_repeated_names = True

    def __init__(self, location: str = "", settings: SinkSettings | None = None) -> None:  # noqa: ARG002 - every sink takes them
        self.files = 0
        self.bytes = 0

    async def open(self, name: str, *, offset: int = 0) -> NullFile:  # noqa: ARG002 - nothing is kept
        return NullFile(self)

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        self.add(len(files), sum(memoryview(file.data).nbytes for file in files))
        return [_NOTHING] * len(files)

    async def aclose(self) -> None:
        """Do nothing; the counts stay."""

    def add(self, files: int, size: int) -> None:
        """Count *files* more files, with *size* bytes together."""
        self.files += files
        self.bytes += size


class NullFile:
    """A file of which only the size is kept, for its sink."""

    def __init__(self, sink: NullSink) -> None:
        self._sink = sink
        self._bytes = 0

    async def write(self, pieces: Sequence[Buffer]) -> None:
        self._bytes += sum(memoryview(piece).nbytes for piece in pieces)

    async def commit(self) -> Stored:
        self._sink.add(1, self._bytes)
        return _NOTHING

    async def abort(self) -> None:
        """Do nothing; there is nothing to undo."""
