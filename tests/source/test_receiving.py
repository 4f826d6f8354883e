"""Chunks come as they were sent, and stay until they are released."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from dumpstream.source import RingSource

from .conftest import BLOCK, DROP, RING_BYTES, fill_ring, receive_chunks, send

if TYPE_CHECKING:
    from dumpstream.chunk import Batch

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class TestReceiving:
    async def test_every_field_of_a_chunk_arrives(self, dropping: RingSource) -> None:
        send("first", b"data", offset=5, last=True, flag=7)
        send("second/\udcff")

        batch = await dropping.receive()

        first, second = batch.chunks
        assert (first.name, bytes(first), first.offset, first.flag) == ("first", b"data", 5, 7)
        assert (first.is_last, first.more, first.sequence, len(first)) == (True, False, 0, 4)
        assert (second.name, bytes(second), second.offset) == ("second/\udcff", b"", -1)
        assert (second.is_last, second.sequence) == (False, 1)
        assert batch.losses == []

    @pytest.mark.usefixtures("only_wakeups")
    async def test_receive_wakes_on_a_chunk_then_ends_with_stop(self, dropping: RingSource) -> None:
        received: list[tuple[str, bytes]] = []

        async def receive() -> None:
            received.extend(await receive_chunks(dropping))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                for count in (1, 2):
                    await anyio.wait_all_tasks_blocked()
                    send("file", b"%d" % count)
                await anyio.wait_all_tasks_blocked()
                await dropping.stop()

        assert received == [("file", b"1"), ("file", b"2")]

    @pytest.mark.usefixtures("only_wakeups")
    async def test_cancelled_receive_takes_nothing(self, dropping: RingSource) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dropping.receive)
            await anyio.wait_all_tasks_blocked()
            send("file", b"data")
            tasks.cancel_scope.cancel()

        (chunk,) = (await dropping.receive()).chunks

        assert bytes(chunk) == b"data"

    async def test_chunks_sent_before_stop_are_received_after_it(self, dropping: RingSource) -> None:
        for index in range(3):
            send(f"file{index}", b"data")

        await dropping.stop()

        assert send("late") != 0
        assert await receive_chunks(dropping) == [(f"file{index}", b"data") for index in range(3)]
        with pytest.raises(anyio.EndOfStream):
            await dropping.receive()

    async def test_other_tasks_run_between_batches(
        self, dropping: RingSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dropping, "_batch_chunks", 1)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await checkpoint()

        for _ in range(50):
            send("file")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            for _ in range(50):
                await dropping.receive()
            tasks.cancel_scope.cancel()

        assert ticks >= 49

    async def test_counters_stay_readable_after_the_end(self) -> None:
        async with RingSource(DROP) as source:
            send("whole", b"data")
            send("bad", b"data", offset=-2)
        send("late")

        statistics = source.statistics()

        assert (statistics.size, statistics.callbacks) == (RING_BYTES, 2)
        assert statistics.losses == {"bad_offset": (1, 4)}


class TestLeases:
    async def test_held_view_is_never_overwritten(self, dropping: RingSource) -> None:
        send("held", b"h" * 1000)
        batch = await dropping.receive()
        view = batch.chunks[0].data[:500]
        batch.release()

        for _ in range(3):
            fill_ring()
            (await dropping.receive()).release()

        assert send("no space", bytes(1000)) != 0
        assert view == b"h" * 500
        view.release()
        gc.collect()
        assert send("space again", bytes(1000)) == 0

    async def test_chunk_cannot_be_read_after_release(self, dropping: RingSource) -> None:
        send("file", b"data")
        batch = await dropping.receive()
        batch.release()

        with pytest.raises(ValueError, match="released"):
            bytes(batch.chunks[0])

        assert batch.chunks[0].name == "file"

    async def test_space_is_freed_in_order_whatever_the_order_of_release(self, dropping: RingSource) -> None:
        batches: list[Batch] = []
        for _ in range(3):
            send("file", bytes(1000))
            batches.append(await dropping.receive())
        third = dropping.statistics().fill // 3

        fills = []
        for index in (2, 0, 1):
            batches[index].release()
            fills.append(dropping.statistics().fill)

        assert fills == [3 * third, 2 * third, 0]

    async def test_forgotten_batch_is_released(self, dropping: RingSource) -> None:
        send("file", b"data")

        await dropping.receive()
        gc.collect()

        assert dropping.statistics().fill == 0

    async def test_view_outlives_the_source(self) -> None:
        async with RingSource(DROP) as source:
            send("file", b"data")
            view = (await source.receive()).chunks[0].data

        assert bytes(view) == b"data"


class TestLargeChunks:
    @pytest.mark.parametrize("offset", [-1, 0, 1 << 33])
    async def test_chunk_larger_than_the_ring_arrives_in_order(self, offset: int) -> None:
        data = os.urandom(5 * RING_BYTES)
        received: list[tuple[int, bytes, bool, bool, int]] = []

        async with RingSource(BLOCK) as source:
            send("before")

            async def receive() -> None:
                async for batch in source:
                    with batch:
                        received.extend(
                            (chunk.offset, bytes(chunk), chunk.more, chunk.is_last, chunk.sequence)
                            for chunk in batch.chunks
                        )

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                await anyio.to_thread.run_sync(lambda: send("large", data, offset=offset, last=True))
                await source.stop()
            statistics = source.statistics()

        _, *parts = received
        expected = offset
        for at, part, *_ in parts:
            assert at == expected
            expected += len(part) if offset >= 0 else 0
        assert b"".join(part for _, part, *_ in parts) == data
        assert [(more, last) for _, _, more, last, _ in parts] == [
            *[(True, False)] * (len(parts) - 1),
            (False, True),
        ]
        assert {sequence for *_, sequence in parts} == {1}
        assert (statistics.callbacks, statistics.losses) == (2, {})
