"""WriteAheadJournal: every line on the local disk at once, and where it belongs when it has come true."""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError, StoreError
from dumpstream.archive.journal import Journal
from dumpstream.archive.rows import is_finished_file
from dumpstream.custody import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from dumpstream.archive.manifest import Manifest
    from dumpstream.custody import Custody
    from dumpstream.remote.outbox import Outbox
    from dumpstream.remote.segments import SegmentJournal
    from dumpstream.system.durable import Fsync
    from dumpstream.system.location import Prefix


class _Line(NamedTuple):
    text: str
    custodies: Sequence[Custody]

    @property
    def true(self) -> bool:
        """Whether everything that it says is stored is."""
        return all(custody.stage >= Stage.STORED for custody in self.custodies)


class Final(Protocol):
    """The journal that readers see."""

    @property
    def waiting(self) -> int:
        """The lines that are on their way."""

    @property
    def waiting_files(self) -> int:
        """The finished files among them."""

    def add(self, line: str) -> None:
        """Append *line*."""


class WriteAheadJournal:
    """Lines go to *ahead* at once, and to *final* in the same order, each when it is true.

    So what *final* has is a prefix of what *ahead* has. *finish* is called at the end, when no more lines
    come; it closes *final*, and is told whether it has got all of them.
    """

    def __init__(self, ahead: Journal, final: Final, finish: Callable[[bool], Awaitable[None]]) -> None:
        self._ahead, self._final, self._finish = ahead, final, finish
        self._lines: deque[_Line] = deque()
        self._files = 0  # in those lines
        self._closed = False

    @property
    def full(self) -> bool:
        return self._ahead.full

    @property
    def waiting(self) -> int:
        return len(self._lines) + self._final.waiting

    @property
    def waiting_files(self) -> int:
        return self._files + self._final.waiting_files

    def add(self, line: str, custodies: Sequence[Custody] = ()) -> None:
        self._ahead.add(line)
        self._lines.append(_Line(line, custodies))
        self._files += is_finished_file(line)
        for custody in custodies:
            custody.when(Stage.STORED, self._pass_on)
        self._pass_on()

    async def drain(self) -> None:
        await self._ahead.drain()

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            with anyio.CancelScope(shield=True):
                complete = False
                try:
                    await self._ahead.aclose()
                    complete = not self._lines
                finally:
                    await self._finish(complete)

    def _pass_on(self) -> None:
        while self._lines and self._lines[0].true:
            line = self._lines.popleft().text
            self._files -= is_finished_file(line)
            self._final.add(line)


@asynccontextmanager
async def open_local_journal(
    outbox: Outbox, path: Path, manifest: Manifest, fsync: Fsync
) -> AsyncIterator[WriteAheadJournal]:
    """Open the journal at *path* for the capture of *manifest*, some of whose files may wait in *outbox*."""
    await run_sync(outbox.keep_manifest, manifest)
    async with (
        Journal.open(outbox.journal_path, fsync=fsync) as ahead,
        Journal.open(path, fsync=fsync) as final,
    ):

        async def finish(all_passed: bool) -> None:  # noqa: FBT001 - see WriteAheadJournal
            await final.aclose()
            outbox.needed = not all_passed

        outbox.needed = True
        journal = WriteAheadJournal(ahead, final, finish)
        try:
            yield journal
        finally:
            await journal.aclose()


@asynccontextmanager
async def open_remote_journal(
    outbox: Outbox, prefix: Prefix, segments: SegmentJournal, fsync: Fsync
) -> AsyncIterator[WriteAheadJournal]:
    """Open the journal in *segments*, at *prefix*, with the lines of this run in *outbox* first."""

    async def finish(all_passed: bool) -> None:  # noqa: FBT001 - see WriteAheadJournal
        try:
            if await segments.stop() and all_passed:
                await segments.merge(outbox.journal_path)
                outbox.needed = False
            elif segments.error is not None:
                raise segments.error
        except StoreError as exc:
            if not exc.away:
                raise DestinationError(
                    prefix,
                    f"has not got the whole journal ({exc}); then run: dumpstream upload {outbox.path}",
                ) from None

    async with Journal.open(outbox.journal_path, fsync=fsync) as ahead:
        outbox.needed = True
        journal = WriteAheadJournal(ahead, segments, finish)
        try:
            yield journal
        finally:
            await journal.aclose()
