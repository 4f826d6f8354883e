"""The memory sink: dump files as bytes objects, for tests and for programs that use a dump at once."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Buffer
from xxhash import xxh3_64_hexdigest

from dumpstream._errors import SinkError
from dumpstream.sinks import SinkSettings, Stored, WholeFile


class MemorySink:
    """Keeps every file in memory, without a bound.

    Attributes:
        files: for each name the parts that are committed, in order.
    """

    takes_repeated_names = True

    def __init__(self, location: str = "", settings: SinkSettings | None = None) -> None:  # noqa: ARG002 - every sink takes them
        self.files: dict[str, list[bytes]] = {}

    async def open(self, name: str, *, offset: int = 0) -> _MemoryFile:  # noqa: ARG002 - a part is a part
        return _MemoryFile(self, name)

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        return [self.add(file.name, bytes(file.data)) for file in files]

    async def aclose(self) -> None:
        """Do nothing; `files` stays."""

    def add(self, name: str, data: bytes) -> Stored:
        self.files.setdefault(name, []).append(data)
        return Stored(bytes=len(data), xxh3=xxh3_64_hexdigest(data))


class _MemoryFile:
    def __init__(self, sink: MemorySink, name: str) -> None:
        self._sink, self._name = sink, name
        self._data = bytearray()

    async def write(self, pieces: Sequence[Buffer]) -> None:
        for piece in pieces:
            self._data += piece

    async def commit(self) -> Stored:
        return self._sink.add(self._name, bytes(self._data))

    async def abort(self) -> None:
        self._data.clear()
