"""Sources that are not the ring: chunks of any iterable, classes of others, and their contract test."""

from __future__ import annotations

import asyncio
import ctypes
import os
from typing import TYPE_CHECKING, Any, Self, cast

import anyio
import pytest
from tests.conftest import LIMIT_S

from dumpstream import (
    Batch,
    Chunk,
    ChunkSource,
    Loss,
    RingOptions,
    RingSource,
    Source,
    SourceError,
    _native,
    open_capture,
)
from dumpstream.testing import check_source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.anyio


class ListSource(Source):
    """The shortest source: what a class needs that inherits from `Source`."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = list(chunks)

    async def receive(self) -> Batch:
        await anyio.lowlevel.checkpoint()
        if not self._chunks:
            raise anyio.EndOfStream
        return Batch([self._chunks.pop(0)], [])

    async def stop(self) -> None:
        pass


class PushedSource(RingSource):
    """The ring, with chunks in it."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(RingOptions(buffer_bytes=1 << 16))
        self._chunks = chunks

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        for chunk in self._chunks:
            data = ctypes.create_string_buffer(bytes(chunk), len(chunk))
            address = ctypes.addressof(data)
            _native.push(os.fsencode(chunk.name), address, len(chunk), chunk.is_last, chunk.offset, 0)
        return self


async def live(chunks: Sequence[Chunk | Loss], *, endless: bool = False) -> AsyncIterator[Chunk | Loss]:
    for chunk in chunks:
        await asyncio.sleep(0)
        yield chunk
    if endless:
        await asyncio.sleep(LIMIT_S)


@pytest.mark.both_loops
@pytest.mark.parametrize(
    "make_source",
    [
        ListSource,
        PushedSource,
        ChunkSource,
        lambda chunks: ChunkSource(iter(chunks)),
        lambda chunks: ChunkSource(live(chunks)),
        lambda chunks: ChunkSource(live(chunks, endless=True)),
    ],
    ids=["inherited", "ring", "list", "iterator", "async", "endless"],
)
async def test_sources_keep_the_contract(make_source: Callable[[Sequence[Chunk]], Source]) -> None:
    await check_source(make_source)


class Forgetful(ListSource):
    async def receive(self) -> Batch:
        batch = await super().receive()
        await anyio.lowlevel.checkpoint()  # where a cancellation loses the batch
        return batch


class Reversed(ListSource):
    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(chunks[::-1])


class Endless(ListSource):
    async def receive(self) -> Batch:
        try:
            return await super().receive()
        except anyio.EndOfStream:
            return Batch([], [])


class Wrong(ListSource):
    async def receive(self) -> Batch:
        return cast("Batch", [await super().receive()])


class Uncounted(ListSource):
    def statistics(self) -> Any:
        return {}


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Forgetful, "a receive that is cancelled loses nothing"),
        (Reversed, "every chunk comes once, in order"),
        (Endless, "receive raises EndOfStream after stop"),
        (Wrong, "receive returns a Batch"),
        (Uncounted, "statistics returns RingStatistics"),
    ],
)
async def test_broken_promises_are_found(
    kind: type[ListSource], promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpstream.testing.sources._LIMIT_S", 0.5)

    with pytest.raises(AssertionError, match=promise):
        await check_source(kind)


async def test_a_recorded_stream_is_captured_to_its_end(tmp_path: Path) -> None:
    recorded = [Chunk(str(number), b"1", is_last=True) for number in range(1000)]

    async with open_capture(tmp_path / "run", source=ChunkSource(recorded)) as capture:
        pass  # leaving reads it to its end

    assert capture.report.files == 1000
    assert capture.report.whole


async def test_two_captures_with_sources_of_their_own_run_side_by_side() -> None:
    async def consume(name: str) -> list[str]:
        source = ChunkSource([Chunk(f"{name}{number}", b"1", is_last=True) for number in range(300)])
        async with open_capture(None, source=source) as capture:
            files = capture.files()
            return [(await anext(files)).name for _ in range(300)]

    first, second = await asyncio.gather(consume("a"), consume("b"))

    assert first == [f"a{number}" for number in range(300)]
    assert second == [f"b{number}" for number in range(300)]


async def test_losses_of_a_source_keep_their_place_among_the_chunks() -> None:
    items: list[Chunk | Loss] = [
        Chunk("a", b"1"),
        Chunk("b", b"1", is_last=True),
        Loss("a", "ring_full", 10, ended=True),
        Chunk("a", b"2", is_last=True),
    ]
    async with open_capture(None, source=ChunkSource(items)) as capture:
        files = capture.files()
        found = [
            (file.name, str(file.verdict), await file.read()) async for file in files
        ]  # it ends by itself

    assert sorted(found) == [("a", "lost", b"1"), ("a", "unparsed", b"2"), ("b", "unparsed", b"1")]


async def test_a_live_source_is_stopped_and_closed_when_the_capture_is_left() -> None:
    closed = []

    async def endless() -> AsyncIterator[Chunk]:
        try:
            yield Chunk("a", b"1", is_last=True)
            await asyncio.sleep(LIMIT_S)
        finally:
            closed.append(True)

    with anyio.fail_after(LIMIT_S / 2):
        async with open_capture(None, source=ChunkSource(endless())) as capture:
            await anext(capture.files())

    assert closed == [True]
    assert capture.report.whole


def broken() -> Iterator[Chunk]:
    yield Chunk("a", b"1", is_last=True)
    yield Chunk("open", b"1")
    raise ConnectionResetError("the recorder is gone")


async def broken_live() -> AsyncIterator[Chunk]:
    for chunk in broken():
        yield chunk


@pytest.mark.parametrize("make_chunks", [broken, broken_live])
async def test_a_source_that_fails_ends_the_capture_with_its_error(
    tmp_path: Path, make_chunks: Callable[[], Any]
) -> None:
    async def run() -> None:
        async with open_capture(tmp_path / "run", source=ChunkSource(make_chunks())) as capture:
            reports.append(capture)
            files = capture.files()
            with pytest.raises(SourceError, match="the recorder is gone"):
                [file async for file in files]

    reports: list[Any] = []
    with pytest.raises(SourceError, match=r"the source ChunkSource failed: ConnectionResetError\("):
        await run()

    assert not reports[0].report.whole


async def test_a_source_that_returns_something_else_is_an_error() -> None:
    async def run() -> None:
        async with open_capture(None, source=Wrong([Chunk("a", b"")])) as capture:
            await capture.wait()

    with pytest.raises(SourceError, match=r"the source Wrong returned .* it must be a Batch"):
        await run()


async def test_what_is_not_a_chunk_is_refused() -> None:
    async def run() -> None:
        async with open_capture(None, source=ChunkSource([cast("Chunk", b"bytes")])) as capture:
            await capture.wait()

    with pytest.raises(SourceError, match="takes chunks and losses one by one"):
        await run()
