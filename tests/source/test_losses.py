"""Losses come in their place, and are counted."""

from __future__ import annotations

import anyio
import anyio.to_thread
import pytest

from dumpstream import source
from dumpstream.chunk import Loss
from dumpstream.source import RingOptions, RingSource

from .conftest import RING_BYTES, fill_ring, send

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_loss_comes_after_older_and_before_newer_chunks(dropping: RingSource) -> None:
    fitted = fill_ring()
    send("lost", bytes(500))
    seen: list[str | Loss] = []
    (await dropping.receive()).release()
    send("newer", b"data")
    await dropping.stop()

    async for batch in dropping:
        with batch:
            seen += [*batch.losses, *(chunk.name for chunk in batch.chunks)]

    fillers = [name for name in seen if name == "filler"]
    assert 0 < len(fillers) < fitted
    assert seen[len(fillers) :] == [
        Loss("filler", "ring_full", 1000, ended=True),
        Loss("lost", "ring_full", 500, ended=False),
        "newer",
        Loss("lost", "after_loss", 0, ended=True),
    ]


async def test_loss_without_chunks_arrives_too(dropping: RingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_LONG_WAIT_S", 0.001)

    async def lose() -> None:
        send("bad", b"data", offset=-5, last=True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lose)
        batch = await dropping.receive()

    assert (batch.chunks, batch.losses) == ([], [Loss("bad", "bad_offset", 4, ended=True)])


async def test_rest_of_a_lost_file_is_reported_at_the_end(dropping: RingSource) -> None:
    fill_ring()
    send("lost", bytes(100))
    send("lost", bytes(11))
    send("lost", bytes(22))
    await dropping.stop()

    losses = [loss async for batch in dropping for loss in batch.losses]

    assert losses[-2:] == [
        Loss("lost", "ring_full", 100, ended=False),
        Loss("lost", "after_loss", 33, ended=True),
    ]
    assert dropping.statistics().losses["after_loss"] == (2, 33)


async def test_discarding_refuses_and_counts(dropping: RingSource) -> None:
    dropping.discard()

    assert send("file", b"data") != 0
    assert dropping.statistics().losses == {"discarded": (1, 4)}


async def test_chunk_beyond_the_largest_file_is_lost() -> None:
    options = RingOptions(buffer_bytes=RING_BYTES, max_file_bytes=100)
    async with RingSource(options) as source:
        assert send("file", bytes(50), offset=50) == 0
        assert send("file", bytes(50), offset=51) != 0

        assert source.statistics().losses == {"too_large": (1, 50)}


async def test_blocked_chunk_is_lost_at_the_time_limit() -> None:
    options = RingOptions(buffer_bytes=RING_BYTES, block_timeout=0.01)
    async with RingSource(options) as source:
        await anyio.to_thread.run_sync(fill_ring)

        assert source.statistics().losses == {"timeout": (1, 1000)}
