"""Forwarding: the files that a companion has finished, on their way to the consumers in the program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio
from anyio.abc import TaskGroup

from dumpstream._native import SharedRing
from dumpstream.archive.rows import FileRow
from dumpstream.chunk import Batch
from dumpstream.custody import Custody, Stage
from dumpstream.processes.channel import Channel
from dumpstream.reading.storedfile import is_kept
from dumpstream.sharedsource import SharedSource
from dumpstream.sinks import Stored
from dumpstream.stages.feed import Ending, FileFeed, InHand, statistics_of
from dumpstream.stages.finished import FinishedFile
from dumpstream.stages.notices import Notices, Progress
from dumpstream.stages.report import Report
from dumpstream.statistics.table import TensorRow

#: What one message has at most, so that small files do not cost a message each.
_MOST_FILES = 256
_MOST_BYTES = 1 << 20
#: Messages that may be on their way to the consumers, so that the two processes do not wait by turns.
_MOST_MESSAGES = 8
#: Larger files are read where they are stored, if they can be: the program may not want their bytes.
_SENT_BYTES = 64 << 10
#: How often a capture that waits for the program looks whether it is to wait any longer.
_LOOK_S = 0.5


class SentFile(NamedTuple):
    """A finished file in a message."""

    row: FileRow
    statistics: Sequence[TensorRow] | None
    data: bytes | None  #: None if the program can only read it from where it is stored
    offset: int  #: of the data in the file
    custodies: Sequence[int]  #: numbers of those that have not stored it yet


class Forwarder:
    """In the companion: sends finished files to the program as long as it has consumers.

    The capture waits for consumers as it does without a companion; only a few messages are ahead of them.

    Args:
        channel: to the program.
        calls: an eventfd in which the program counts its consumers before it tells of them.
    """

    def __init__(self, channel: Channel, calls: int) -> None:
        self._channel, self._calls = channel, calls
        self._notices: Notices | None = None
        self._tasks: TaskGroup | None = None
        self._report: Callable[[], Report] | None = None
        self._called = self._heard = 0
        self._most_bytes: int | None = None
        self._turn = anyio.Lock()
        self._under_way = 0  # messages that the program has not taken yet
        self._changed = anyio.Event()
        self._custodies: dict[Custody, int] = {}
        self._numbers = 0
        self._settling = 0  # custodies that have ended, of which the program is being told

    def begin(self, notices: Notices, tasks: TaskGroup, report: Callable[[], Report]) -> None:
        """Serve the capture of *notices*, whose state is *report*; *tasks* run until `end`."""
        self._notices, self._tasks, self._report = notices, tasks, report

    @property
    def wanted(self) -> bool:
        """Whether `tell` is to be called: the program has consumers."""
        return self._most_bytes is not None

    def is_wanted(self) -> bool:
        """Return `wanted`."""
        return self.wanted

    def want(self, most_bytes: int) -> None:
        """Send files from now on, with their bytes if they have at most *most_bytes*."""
        self._heard += 1
        self._most_bytes = max(self._most_bytes or 0, most_bytes)
        self._wake()

    def go_on(self, *, wanted: bool) -> None:
        """Send what follows: the program has taken a message; not *wanted*: it has no consumers left."""
        if not wanted:
            self._most_bytes = None
        self._under_way -= 1
        self._wake()

    def close(self) -> None:
        """Send nothing more, and let the capture wait no longer: the program is gone."""
        self._calls = -1
        self._heard = self._called
        self._under_way = 0
        self._most_bytes = None
        self._wake()

    async def tell(self, endings: Iterable[Ending]) -> None:
        """Send *endings*, and wait if the program has not yet given enough of them to its consumers."""
        assert self._report is not None  # only a program whose capture has begun has consumers
        async with self._turn:
            for message in self._messages(endings):
                self._under_way += 1
                try:
                    # With the report: a consumer that has a file finds it counted.
                    await self._channel.send("files", (self._report(), message))
                except EOFError:
                    return self.close()
                # A capture that was abandoned waits for no consumer; the program hears of that, too.
                while self._under_way >= _MOST_MESSAGES and not self._is_abandoned():
                    with anyio.move_on_after(_LOOK_S):
                        await self._changed.wait()
        return None

    def _is_abandoned(self) -> bool:
        return self._notices is not None and self._notices.abandoned

    async def end(self) -> None:
        """Return when the program knows where all of its files are; called after the last of them."""
        while self._settling:
            await self._changed.wait()
        self._tasks = None

    async def hear_of_all(self) -> None:
        """Return when every consumer is known that the program has had until now."""
        if self._calls >= 0:
            with suppress(BlockingIOError):
                self._called += os.eventfd_read(self._calls)
        while self._heard < self._called:
            await self._changed.wait()

    def _messages(self, endings: Iterable[Ending]) -> Iterator[list[SentFile]]:
        files: list[SentFile] = []
        size = 0
        for ending in endings:
            files.append(self._pack(ending))
            size += len(files[-1].data or b"")
            if len(files) == _MOST_FILES or size >= _MOST_BYTES:
                yield files
                files, size = [], 0
        if files:
            yield files

    def _pack(self, ending: Ending) -> SentFile:
        pending = [it.custody for it in ending.results if it.custody and it.custody.stage < Stage.STORED]
        size, data = ending.row.bytes, ending.data
        most = _SENT_BYTES if is_kept(ending.row) and not pending else size
        inline = data is not None and size <= min(self._most_bytes or 0, most)
        return SentFile(
            ending.row,
            statistics_of(ending.results),
            bytes(data) if inline and data is not None else None,
            ending.parts[0].offset if ending.parts else 0,
            [self._number(custody) for custody in pending],
        )

    def _number(self, custody: Custody) -> int:
        """Return a number for *custody*; the program is told under it how the custody has ended."""
        if custody not in self._custodies:
            self._numbers += 1
            self._custodies[custody] = self._numbers
            custody.when(Stage.STORED, lambda: self._settle(custody))
        return self._custodies[custody]

    def _settle(self, custody: Custody) -> None:
        if self._tasks is not None:
            self._settling += 1
            self._tasks.start_soon(self._send_settled, self._custodies.pop(custody), custody.stage)

    async def _send_settled(self, number: int, stage: Stage) -> None:
        with suppress(EOFError):
            await self._channel.send("settled", (number, stage))
        self._settling -= 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class ForwardingSource(SharedSource):
    """The ring of a program whose consumers are known before its next chunks are taken."""

    def __init__(self, ring: SharedRing, forwarder: Forwarder) -> None:
        super().__init__(ring)
        self.forwarder = forwarder
        self._leased: Batch | None = None  # by a call of `receive` that was cancelled

    async def receive(self) -> Batch:
        """Return the next batch."""
        if self._leased is None:
            self._leased = await super().receive()
        await self.forwarder.hear_of_all()
        batch, self._leased = self._leased, None
        return batch


class Receiver:
    """In the program: gives the files that a companion sends to the consumers of *notices*, by *feed*."""

    def __init__(self, feed: FileFeed, notices: Notices, channel: Channel) -> None:
        self._feed, self._notices, self._channel = feed, notices, channel
        self._turn = anyio.Lock()
        self._custodies: dict[int, Custody] = {}

    async def take(self, files: Sequence[SentFile]) -> None:
        """Give *files* to every consumer, as their policies say, and let the companion go on."""
        with anyio.CancelScope(shield=True):  # a capture that is cancelled waits for no consumer
            async with self._turn:
                await self._feed.tell([self._unpack(file) for file in files])
                self._notices.offer(Progress())
                with suppress(EOFError):
                    await self._channel.send("taken", self._notices.wants(FinishedFile))

    async def finish(self) -> None:
        """Return when the consumers have what was sent."""
        async with self._turn:
            return

    async def end(self, error: Exception | None) -> None:
        """End the stream of notices, once the consumers have what was sent."""
        async with self._turn:
            self._notices.end(error)

    def settle(self, number: int, stage: Stage) -> None:
        """Let those who wait for the custody *number* know how it has ended."""
        if (custody := self._custodies.pop(number, None)) is not None:
            custody.advance(stage)

    def _unpack(self, file: SentFile) -> Ending:
        results = [Stored(custody=self._custodies.setdefault(it, Custody())) for it in file.custodies]
        if file.statistics is not None:
            results.append(Stored(rows=file.statistics))
        return Ending(file.row, results, [] if file.data is None else [InHand(file.offset, file.data)])
