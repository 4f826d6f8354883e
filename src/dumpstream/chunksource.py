"""ChunkSource: chunks from anywhere, as a source: a recorded stream, a socket, a test."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from itertools import chain, islice

import anyio
from anyio.lowlevel import checkpoint
from anyio.to_thread import run_sync

from dumpstream.chunk import Batch, Chunk, Loss
from dumpstream.source import NO_STATISTICS, RingStatistics, Source

#: One hop to a thread takes so many chunks, or so many bytes.
_BATCH_CHUNKS = 256
_BATCH_BYTES = 4 << 20

_Item = Chunk | Loss


class ChunkSource(Source):
    """Gives a capture the chunks of any iterable, with losses among them.

    An ordinary iterable is read in a worker thread, and to its end: leaving the capture waits for that. An
    async iterable, such as an async generator that reads a socket, is read until it ends or the capture is
    left; then it is cancelled while it waits, and closed.

    Args:
        chunks: the iterable; read once.
        cut_off: why the producer may not have sent all that it began, if so.
    """

    def __init__(self, chunks: Iterable[_Item] | AsyncIterable[_Item], *, cut_off: str | None = None) -> None:
        self.cut_off = cut_off
        self._live: AsyncIterator[_Item] | None = None
        self._recorded: Iterator[_Item] = iter(())
        if isinstance(chunks, AsyncIterable):
            self._live = aiter(chunks)
        else:
            self._recorded = iter(chunks)
        # A task of its own: a cancelled receive must not lose what it was about to return.
        self._pulling: asyncio.Task[list[_Item]] | None = None
        self._stopped = False
        self._discarding = False
        self._discarded = [0, 0]  # chunks and bytes

    async def receive(self) -> Batch:
        if self._pulling is None:
            if self._stopped and self._live is not None:
                await checkpoint()
                raise anyio.EndOfStream
            self._pulling = asyncio.get_running_loop().create_task(self._pull())
        await asyncio.wait([self._pulling])
        pulled, self._pulling = self._pulling, None
        if pulled.cancelled():
            raise anyio.EndOfStream
        items = pulled.result()
        if not items:
            self._stopped, self._recorded = True, iter(())
            raise anyio.EndOfStream
        return self._batch(items)

    async def stop(self) -> None:
        """Cancel an async iterable while it waits; an ordinary one is read to its end."""
        self._stopped = True
        if self._live is not None and self._pulling is not None and not self._pulling.done():
            self._pulling.cancel()
            await asyncio.wait([self._pulling])

    def discard(self) -> None:
        """Count everything that still comes as discarded; an ordinary iterable is not read any further."""
        self._discarding = True

    def statistics(self) -> RingStatistics:
        chunks, size = self._discarded
        losses = {"discarded": (chunks, size)} if chunks else {}
        return NO_STATISTICS._replace(losses=losses)

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.stop()
            if self._pulling is not None:
                await asyncio.wait([self._pulling])
            close = getattr(self._live, "aclose", None)
            if close is not None:
                await close()

    async def _pull(self) -> list[_Item]:
        """Return the next items; none at the end."""
        if self._live is None:
            return await run_sync(self._take)
        try:
            return [await anext(self._live)]
        except StopAsyncIteration:
            return []

    def _take(self) -> list[_Item]:
        """Return losses and then chunks; a loss behind a chunk belongs to the next batch."""
        items: list[_Item] = []
        size = 0
        for item in islice(self._recorded, 0 if self._discarding else _BATCH_CHUNKS):
            if isinstance(item, Chunk):
                size += len(item)
            elif items and isinstance(items[-1], Chunk):
                self._recorded = chain([item], self._recorded)
                break
            items.append(item)
            if size >= _BATCH_BYTES:
                break
        return items

    def _batch(self, items: list[_Item]) -> Batch:
        losses = [item for item in items if isinstance(item, Loss)]
        chunks = [item for item in items if isinstance(item, Chunk)]
        if len(losses) + len(chunks) != len(items):
            raise TypeError("a ChunkSource takes chunks and losses one by one")
        if self._discarding:
            self._discarded[0] += len(chunks)
            self._discarded[1] += sum(map(len, chunks))
            chunks = []
        return Batch(chunks, losses)
