"""Feed: every file that ends becomes a notice for the consumers of the capture, with its bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, Self

import anyio
from typing_extensions import Buffer

from dumpstream.archive.rows import FileRow
from dumpstream.sinks import SinkFile, Stored
from dumpstream.sinks._spool import Spool, SpooledPart
from dumpstream.stages.finished import Content, FinishedFile
from dumpstream.stages.notices import Notices, Subscription
from dumpstream.statistics.table import TensorRow
from dumpstream.system.timeslice import TimeSlice


class InHand(NamedTuple):
    """A part of a file that has ended, as long as its plan is not released."""

    offset: int
    data: Buffer | None  #: its bytes; None if they have been written piece by piece
    files: Sequence[SinkFile] = ()  #: to which they have been written


class Ending(NamedTuple):
    """A file that has ended, and where its bytes are."""

    row: FileRow
    results: Sequence[Stored] = ()  #: what the sinks said of its parts
    parts: Sequence[InHand] = ()  #: none if it is lost

    @property
    def data(self) -> Buffer | None:
        """Its bytes, if all of them are in hand and without a gap."""
        return self.parts[0].data if len(self.parts) == 1 else None


#: Returns what the parts of a file can be read from once its plan is released, if all of them can.
ReadBack = Callable[[FileRow, Sequence[Stored]], Sequence[Content] | None]


class Feed(Protocol):
    """Takes the files of a capture that have ended to its consumers."""

    @property
    def wanted(self) -> bool:
        """Whether `tell` is to be called."""

    async def tell(self, endings: Iterable[Ending]) -> None:
        """Give each of *endings* to every consumer; waits for slow ones as they have asked."""


class FileFeed:
    """Tells the subscribers to *notices* of every file.

    Args:
        notices: of the capture.
        read_back: finds what the sinks have stored of a file.
        spool: keeps the bytes instead, if the capture stores nothing.
    """

    def __init__(
        self, notices: Notices, read_back: ReadBack | None = None, spool: Spool | None = None
    ) -> None:
        self._notices = notices
        self._read_back = read_back
        self._spool = spool
        self._slice = TimeSlice()

    @property
    def wanted(self) -> bool:
        """Whether `tell` is to be called: there are consumers, or parts in the spool that it must free."""
        return self._spool is not None or self._notices.wants(FinishedFile)

    async def tell(self, endings: Iterable[Ending]) -> None:
        """Give each of *endings* to every consumer; waits for slow ones as they have asked.

        Raises:
            SinkError: the temporary file of the spool cannot be written.
        """
        rest = iter(endings)
        try:
            for ending in rest:
                with _Telling(ending, self._spool, self._read_back) as telling:
                    for subscription in self._notices.to(FinishedFile):
                        await telling.tell(subscription)
                await self._slice.pause()
        finally:
            for ending in rest:  # the spool has parts of them
                with _Telling(ending, self._spool, None):
                    pass


class _Telling:
    """One file on its way to the consumers: its bytes are copied, or put into the spool, at most once."""

    def __init__(self, ending: Ending, spool: Spool | None, read_back: ReadBack | None) -> None:
        self._ending, self._spool = ending, spool
        self._data: bytes | None = None
        self._statistics = statistics_of(ending.results)
        self._stored = None if read_back is None else read_back(ending.row, ending.results)
        #: In the order of the parts; None for a part that is in hand, or is not kept.
        self._spooled = [_find_spooled(part.files) for part in ending.parts]

    async def tell(self, subscription: Subscription[FinishedFile]) -> None:
        """Give the file to one consumer, or let the consumer miss it."""
        ending = self._ending
        size, most = ending.row.bytes, subscription.most_bytes
        in_memory = ending.data is not None and size <= most
        # What is stored has no weight unless memory has room for it, too.
        weight = size if self._stored is None and (in_memory or self._spool is not None) else 0
        if not await subscription.reserve(weight):
            return
        if self._stored is not None:
            in_memory = in_memory and subscription.grow(size)
            weight = size if in_memory else 0
        try:
            data = self._copy() if in_memory else None
            contents = self._stored or (() if in_memory else await self._keep())
        except BaseException:
            subscription.give_back(weight)
            raise
        for content in contents:
            if isinstance(content, SpooledPart):
                content.hold()
        subscription.add(
            FinishedFile(
                ending.row,
                data=data,
                contents=contents,
                statistics=self._statistics,
                weight=weight,
                most_bytes=most,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Forget what is in the spool, unless a consumer is going to read it."""
        for part in self._spooled:
            if part is not None:
                part.release()

    def _copy(self) -> bytes:
        if self._data is None:
            assert self._ending.data is not None
            self._data = bytes(self._ending.data)
        return self._data

    async def _keep(self) -> Sequence[Content]:
        """Return the parts of the file in the spool, in order; none if one of them is not kept."""
        spool = self._spool
        if spool is None:
            return ()
        for number, part in enumerate(self._ending.parts):
            if self._spooled[number] is None and part.data is not None:
                self._spooled[number] = await spool.keep(self._ending.row.name, part.offset, part.data)
        kept = [part for part in self._spooled if part is not None]
        return kept if len(kept) == len(self._spooled) else ()


class Files:
    """The files of a capture as they finish, for one consumer: an async iterator.

    Several tasks may share one, and then each file goes to one of them. A consumer that stops before the
    capture ends leaves the iterator to be garbage collected, or closes it with `aclose`.
    """

    def __init__(self, subscription: Subscription[FinishedFile]) -> None:
        self._subscription = subscription
        self._loop = asyncio.get_running_loop()

    @property
    def skipped(self) -> int:
        """How many files this consumer was too slow for."""
        return self._subscription.skipped

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FinishedFile:
        """Return the next file that has finished; raises what ended the capture, once no file is left."""
        try:
            return await self._subscription.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Want no more files; the capture does not wait for this consumer any longer."""
        self._subscription.close()

    def __del__(self) -> None:
        # Garbage may be collected in any thread, and after the event loop has ended.
        with suppress(AttributeError, RuntimeError):
            self._loop.call_soon_threadsafe(self._subscription.close)


def _find_spooled(files: Iterable[SinkFile]) -> SpooledPart | None:
    return next((file for file in files if isinstance(file, SpooledPart)), None)


def statistics_of(results: Iterable[Stored]) -> list[TensorRow] | None:
    """Return the rows of all tensors of a file; None if no sink has computed them."""
    rows = [result.rows for result in results if result.rows is not None]
    return [row for some in rows for row in some] if rows else None
