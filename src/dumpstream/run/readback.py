"""Reading back: the bytes of a finished file, from where the sinks of a running capture have stored them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import PartError
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.custody import Custody, Stage
from dumpstream.reading.stored import PartReader, open_place
from dumpstream.reading.storedfile import is_kept, parts_of
from dumpstream.sinks import Stored
from dumpstream.stages.feed import FileFeed
from dumpstream.stages.notices import Notices
from dumpstream.system.location import Prefix

#: How often a consumer that waits for the upload of a file looks whether the capture has ended.
_LOOK_S = 0.5


def reading_feed(notices: Notices, location: Path | Prefix) -> FileFeed:
    """Return a feed of files that can be read back from what is stored at *location*."""
    return FileFeed(notices, ReadBack(PartReader(open_place(location)), notices))


class ReadBack:
    """Finds what can be read back of the files of the capture that *reader* reads."""

    def __init__(self, reader: PartReader, notices: Notices) -> None:
        self._reader, self._notices = reader, notices

    def __call__(self, row: FileRow, results: Sequence[Stored]) -> Sequence[StoredContent] | None:
        """Return the parts of a file; None if not all of its bytes can be read back."""
        if not is_kept(row):
            return None
        custodies = [result.custody for result in results if result.custody is not None]
        return [StoredContent(part, self._reader, custodies, self._notices) for part in parts_of(row)]


@dataclass(frozen=True, slots=True)
class StoredContent:
    """A stored part of a file."""

    part: StoredPart
    reader: PartReader
    custodies: Sequence[Custody]
    notices: Notices

    @property
    def offset(self) -> int:
        return self.part.offset

    @property
    def size(self) -> int:
        return self.part.bytes

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        await self._wait_until_stored()
        blocks = self.reader.read_part(self.part)
        try:
            while (block := await run_sync(_next, blocks)) is not None:
                yield block
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(blocks.close)

    def release(self) -> None:
        """Do nothing: what is stored stays."""

    async def _wait_until_stored(self) -> None:
        """Wait until the part is where it belongs.

        Raises:
            PartError: it is lost, or the capture has ended and it still waits for its store.
        """
        for custody in self.custodies:
            stored = anyio.Event()
            custody.when(Stage.STORED, stored.set)
            while custody.stage < Stage.STORED and not self.notices.ended:
                with anyio.move_on_after(_LOOK_S):
                    await stored.wait()
            if custody.stage is not Stage.STORED:
                state = "is lost" if custody.stage is Stage.LOST else "still waits for its store"
                raise PartError(self.part.path or self.part.sink, f"{state}; see the report of the capture")


def _next(blocks: Iterator[memoryview]) -> bytes | None:
    block = next(blocks, None)
    return None if block is None else bytes(block)
