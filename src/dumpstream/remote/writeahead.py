"""WriteAheadJournal: a line goes to the local disk at once, and to readers when what it says is true."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError, StoreError
from dumpstream.archive.journal import Journal
from dumpstream.archive.manifest import Manifest
from dumpstream.archive.rows import is_finished_file
from dumpstream.custody import Custody, Stage
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.segments import SegmentJournal
from dumpstream.system.durable import Fsync
from dumpstream.system.location import Prefix


class WriteAheadJournal:
    """Lines go to *ahead* at once, and to *final* in the same order, each when it is true.

    So *final* always has a prefix of *ahead*. At the end *finish* is awaited, which closes *final*; its
    argument says whether *final* has all lines.
    """

    def __init__(
        self, ahead: Journal, final: Journal | SegmentJournal, finish: Callable[[bool], Awaitable[None]]
    ) -> None:
        self._ahead, self._final, self._finish = ahead, final, finish
        self._lines: deque[tuple[str, Sequence[Custody]]] = deque()  # that are not true yet
        self._files = 0  # in those lines
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        outbox: Outbox,
        final: Journal | SegmentJournal,
        finish: Callable[[bool], Awaitable[None]],
        fsync: Fsync,
    ) -> AsyncIterator[WriteAheadJournal]:
        """Open the journal whose lines go to *outbox* first, and close it at the end of the block."""
        async with Journal.open(outbox.journal_path, fsync=fsync) as ahead:
            outbox.needed = True
            journal = cls(ahead, final, finish)
            try:
                yield journal
            finally:
                await journal.aclose()

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
        self._lines.append((line, custodies))
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
        """Pass on the lines of which the store has everything that they name."""
        while self._lines and all(custody.stage >= Stage.STORED for custody in self._lines[0][1]):
            line, _ = self._lines.popleft()
            self._files -= is_finished_file(line)
            self._final.add(line)


@asynccontextmanager
async def open_local_journal(
    outbox: Outbox, path: Path, manifest: Manifest, fsync: Fsync
) -> AsyncIterator[WriteAheadJournal]:
    """Open the journal at *path* for the capture of *manifest*, some of whose files may wait in *outbox*."""
    await run_sync(outbox.keep_manifest, manifest)
    async with Journal.open(path, fsync=fsync) as final:

        async def finish(all_passed: bool) -> None:  # noqa: FBT001 - see WriteAheadJournal
            await final.aclose()
            outbox.needed = not all_passed

        async with WriteAheadJournal.open(outbox, final, finish, fsync) as journal:
            yield journal


@asynccontextmanager
async def open_remote_journal(
    outbox: Outbox, prefix: Prefix, segments: SegmentJournal, fsync: Fsync
) -> AsyncIterator[WriteAheadJournal]:
    """Open the journal in *segments*, at *prefix*; the lines of this run go to *outbox* first."""

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

    try:
        async with WriteAheadJournal.open(outbox, segments, finish, fsync) as journal:
            yield journal
    finally:
        with anyio.CancelScope(shield=True):
            await segments.stop()  # if the journal could not be opened
