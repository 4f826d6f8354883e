"""The test that every source must pass."""

from collections.abc import Callable, Sequence

import anyio
from anyio.lowlevel import checkpoint

from dumpstream.chunk import Batch, Chunk, Loss
from dumpstream.source import RingStatistics, Source

#: Makes a source that gives these chunks, in this order, once it is entered.
MakeSource = Callable[[Sequence[Chunk]], Source]

#: What must come or end by then, whatever the source waits for.
_LIMIT_S = 60.0
_CHUNKS = [Chunk(f"file {number % 3}", b"%d " % number * 10, is_last=number >= 27) for number in range(30)]  # noqa: PLR2004


async def check_source(make_source: MakeSource) -> None:
    """Check that the sources *make_source* returns keep every promise of `Source`.

    Args:
        make_source: returns a new source that gives the chunks it is called with, in their order; called
            once for each promise. The source may end by itself behind the last one, or wait for `stop`.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    for check in (_check_order, _check_cancelled_receive, _check_end, _check_discard, _check_unread):
        await check(make_source)


async def _check_order(make_source: MakeSource) -> None:
    async with make_source(_CHUNKS) as source:
        found = await _receive(source, len(_CHUNKS))
        await source.stop()
        found += await _rest(source, "receive raises EndOfStream after stop")

    expected = [(chunk.name, bytes(chunk), chunk.is_last) for chunk in _CHUNKS]
    _expect(found == expected, "every chunk comes once, in order")


async def _check_cancelled_receive(make_source: MakeSource) -> None:
    found: list[tuple[str, bytes, bool]] = []
    async with make_source(_CHUNKS) as source:
        for turn in range(10 * len(_CHUNKS)):
            if len(found) < len(_CHUNKS):
                found += await _receive_interrupted(source, after=turn % 5)
        await source.stop()
        found += await _rest(source, "receive raises EndOfStream after stop")

    expected = [(chunk.name, bytes(chunk), chunk.is_last) for chunk in _CHUNKS]
    _expect(found == expected, "a receive that is cancelled loses nothing")


async def _check_end(make_source: MakeSource) -> None:
    async with make_source(_CHUNKS[:1]) as source:
        await source.stop()
        await source.stop()  # a second time, which does nothing
        await _rest(source, "receive raises EndOfStream after stop")
        await _rest(source, "receive raises EndOfStream again and again")
        _expect(isinstance(source.cut_off, str | None), "cut_off is a cause, or None")
        _expect_statistics(source)
    _expect_statistics(source)


async def _check_discard(make_source: MakeSource) -> None:
    async with make_source(_CHUNKS) as source:
        await _receive(source, 1)
        source.discard()
        source.discard()
        await source.stop()
        await _rest(source, "receive raises EndOfStream after discard and stop")


async def _check_unread(make_source: MakeSource) -> None:
    with anyio.move_on_after(_LIMIT_S) as scope:
        async with make_source(_CHUNKS):
            pass
    _expect(not scope.cancelled_caught, "a source may be left without a receive")


async def _receive(source: Source, least: int) -> list[tuple[str, bytes, bool]]:
    """Return *least* chunks or more; fewer if the source ends."""
    found: list[tuple[str, bytes, bool]] = []
    with anyio.move_on_after(_LIMIT_S) as scope:
        while len(found) < least:
            try:
                batch = await source.receive()
            except anyio.EndOfStream:
                break
            found += _read(batch)
    _expect(not scope.cancelled_caught, "receive returns the chunks that came")
    return found


async def _receive_interrupted(source: Source, *, after: int) -> list[tuple[str, bytes, bool]]:
    """Return a batch, unless a receive that is cancelled *after* so many turns of the event loop has none."""
    found: list[tuple[str, bytes, bool]] = []

    async def cancel() -> None:
        for _ in range(after):
            await checkpoint()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(cancel)
        found += await _receive(source, 1)
    return found


async def _rest(source: Source, promise: str) -> list[tuple[str, bytes, bool]]:
    found: list[tuple[str, bytes, bool]] = []
    with anyio.move_on_after(_LIMIT_S):
        while True:
            try:
                found += _read(await source.receive())
            except anyio.EndOfStream:
                return found
    raise AssertionError(promise)


def _read(batch: Batch) -> list[tuple[str, bytes, bool]]:
    _expect(isinstance(batch, Batch), f"receive returns a Batch, not {batch!r:.80}")
    _expect(all(isinstance(chunk, Chunk) for chunk in batch.chunks), "the chunks of a batch are Chunks")
    _expect(all(isinstance(loss, Loss) for loss in batch.losses), "the losses of a batch are Losses")
    with batch:
        found = [(chunk.name, bytes(chunk), chunk.is_last) for chunk in batch.chunks]
    batch.release()  # a second time, which does nothing
    return found


def _expect_statistics(source: Source) -> None:
    _expect(isinstance(source.statistics(), RingStatistics), "statistics returns RingStatistics at any time")


def _expect(fact: bool, promise: str) -> None:  # noqa: FBT001 - the fact is what is expected
    if not fact:
        raise AssertionError(promise)
