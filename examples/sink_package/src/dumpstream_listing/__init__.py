"""A sink that keeps a line for each dump file: its size, its verdict and its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync

from dumpstream import SinkError, Stored

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from dumpstream import SinkSettings, Verdict, WholeFile


class ListingSink:
    """Writes to the file *location*, by default ``listing.tsv`` in the directory of the capture.

    A line appears when its file is committed. Names are escaped as in Python, so that each is one line.
    """

    def __init__(self, location: str, settings: SinkSettings) -> None:
        self._path = Path(location) if location else settings.directory / "listing.tsv"
        self._writing = anyio.Lock()  # calls for different files may overlap

    async def open(self, name: str, *, offset: int = 0) -> ListedFile:
        """Begin a file; bytes behind a gap are a line of their own."""
        return ListedFile(self, name if not offset else f"{name} from byte {offset}")

    async def put(
        self, files: Sequence[WholeFile], *, verdicts: Sequence[Verdict | None] = ()
    ) -> Sequence[Stored | SinkError]:
        """List many files at once, with one write."""
        known = list(verdicts) or [None] * len(files)
        lines = [
            _line(file.name, memoryview(file.data).nbytes, verdict)
            for file, verdict in zip(files, known, strict=True)
        ]
        await self.append(lines)
        return [Stored(bytes=len(line)) for line in lines]

    async def aclose(self) -> None:
        """Do nothing; every line is written."""

    async def append(self, lines: Sequence[str]) -> None:
        """Write *lines*, in a thread, all of them or, if that fails, with the reason."""
        with anyio.CancelScope(shield=True):  # a line that was begun is finished
            async with self._writing:
                await run_sync(self._append, "".join(lines))

    def _append(self, text: str) -> None:
        try:
            with self._path.open("a", encoding="ascii") as file:
                file.write(text)
        except OSError as exc:
            raise SinkError(f"cannot write {self._path}: {exc.strerror}; write listing:FILE") from exc


class ListedFile:
    """A file of which only the size is kept."""

    def __init__(self, sink: ListingSink, name: str) -> None:
        self._sink, self._name = sink, name
        self._size = 0

    async def write(self, pieces: Sequence[Buffer]) -> None:
        """Count the bytes."""
        self._size += sum(memoryview(piece).nbytes for piece in pieces)

    async def commit(self, *, verdict: Verdict | None = None) -> Stored:
        """List the file."""
        line = _line(self._name, self._size, verdict)
        await self._sink.append([line])
        return Stored(bytes=len(line))

    async def abort(self) -> None:
        """Do nothing: nothing was written."""


def _line(name: str, size: int, verdict: Verdict | None) -> str:
    escaped = name.encode("unicode_escape", "surrogatepass").decode("ascii")
    return f"{size}\t{verdict or 'unknown'}\t{escaped}\n"
