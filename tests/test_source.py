from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import stat
import struct
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from dumpstream import _native, source
from dumpstream._errors import CaptureInUseError, RingError
from dumpstream.source import Batch, Loss, OnFull, RingOptions, RingSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

RING_BYTES = 64 << 10
DROP = RingOptions(buffer_bytes=RING_BYTES, on_full=OnFull.DROP)
BLOCK = RingOptions(buffer_bytes=RING_BYTES)
#: Where the data lane begins in a ring's file, and the name's length in a record.
DATA_LANE, NAME_LENGTH = 4096 + (112 << 10), 32

callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(_native.callback_address())


def send(name: str, data: bytes = b"", *, offset: int = -1, last: bool = False, flag: int = 0) -> int:
    """Call the callback as CANN does; nonzero if the chunk was refused."""
    chunk = struct.pack("<4096sIIqi", os.fsencode(name), len(data), last, offset, flag) + data + bytes(4)
    result: int = callback(chunk, len(chunk))
    return result


def fill_ring() -> int:
    """Send chunks of files of their own until one is refused; return how many fitted."""
    count = 0
    while send("filler", bytes(1000), last=True) == 0:
        count += 1
    return count


async def receive_chunks(source: RingSource) -> list[tuple[str, bytes]]:
    """Receive everything to the end."""
    chunks = []
    async for batch in source:
        with batch:
            chunks += [(chunk.name, bytes(chunk)) for chunk in batch.chunks]
    return chunks


@pytest.fixture
async def dropping() -> AsyncIterator[RingSource]:
    async with RingSource(DROP) as source:
        yield source


@pytest.fixture
def only_wakeups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but a wake-up end a wait."""
    monkeypatch.setattr(source, "_SHORT_WAITS", 0)
    monkeypatch.setattr(source, "_LONG_WAIT_S", 1000)


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
        monkeypatch.setattr(source, "_BATCH_CHUNKS", 1)
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


class TestLosses:
    async def test_loss_comes_after_older_and_before_newer_chunks(self, dropping: RingSource) -> None:
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

    async def test_loss_without_chunks_arrives_too(
        self, dropping: RingSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(source, "_LONG_WAIT_S", 0.001)

        async def lose() -> None:
            send("bad", b"data", offset=-5, last=True)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lose)
            batch = await dropping.receive()

        assert (batch.chunks, batch.losses) == ([], [Loss("bad", "bad_offset", 4, ended=True)])

    async def test_rest_of_a_lost_file_is_reported_at_the_end(self, dropping: RingSource) -> None:
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

    async def test_discarding_refuses_and_counts(self, dropping: RingSource) -> None:
        dropping.discard()

        assert send("file", b"data") != 0
        assert dropping.statistics().losses == {"discarded": (1, 4)}

    async def test_chunk_beyond_the_largest_file_is_lost(self) -> None:
        options = RingOptions(buffer_bytes=RING_BYTES, max_file_bytes=100)
        async with RingSource(options) as source:
            assert send("file", bytes(50), offset=50) == 0
            assert send("file", bytes(50), offset=51) != 0

            assert source.statistics().losses == {"too_large": (1, 50)}

    async def test_blocked_chunk_is_lost_at_the_time_limit(self) -> None:
        options = RingOptions(buffer_bytes=RING_BYTES, block_timeout=0.01)
        async with RingSource(options) as source:
            await anyio.to_thread.run_sync(fill_ring)

            assert source.statistics().losses == {"timeout": (1, 1000)}


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


class TestLifetime:
    async def test_second_source_is_an_error_while_the_first_is_open(self, dropping: RingSource) -> None:
        with pytest.raises(CaptureInUseError, match="one at a time"):
            await RingSource(DROP).__aenter__()

        assert send("file") == 0
        assert len((await dropping.receive()).chunks) == 1

    async def test_sources_may_follow_one_another(self) -> None:
        for index in range(3):
            async with RingSource(DROP) as source:
                send(f"file{index}")
                await source.stop()

                assert await receive_chunks(source) == [(f"file{index}", b"")]

    async def test_callback_refuses_before_and_after_a_source(self) -> None:
        late = _native.late_calls()
        assert send("early") != 0

        async with RingSource(BLOCK):
            pass

        assert send("late") != 0
        assert _native.late_calls() == late + 2

    async def test_blocked_callback_returns_when_the_source_is_left(self) -> None:
        results: list[int] = []

        def send_until_refused() -> None:
            fill_ring()
            results.append(1)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks, RingSource(BLOCK) as source:
                tasks.start_soon(anyio.to_thread.run_sync, send_until_refused)
                while source.statistics().fill < RING_BYTES - 2000:
                    await checkpoint()

        assert results == [1]
        assert source.statistics().losses["discarded"][0] == 1

    async def test_closed_source_cannot_be_received_from(self) -> None:
        async with RingSource(DROP) as source:
            pass

        with pytest.raises(anyio.ClosedResourceError):
            await source.receive()


class TestBufferFile:
    async def test_file_is_private_preallocated_and_removed_at_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "ring"
        options = RingOptions(buffer_bytes=1 << 20, buffer_file=path)

        async with RingSource(options) as source:
            status = path.stat()
            send("file", b"data")
            await source.stop()
            chunks = await receive_chunks(source)

        assert stat.S_IMODE(status.st_mode) == 0o600
        assert status.st_size > 1 << 20
        assert status.st_blocks * 512 >= status.st_size
        assert chunks == [("file", b"data")]
        assert not path.exists()

    async def test_existing_file_is_an_error_and_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "ring"
        path.write_bytes(b"precious")

        with pytest.raises(RingError, match=r"ring exists; remove it or give buffer_file"):
            await RingSource(RingOptions(buffer_file=path)).__aenter__()

        assert path.read_bytes() == b"precious"

    async def test_file_without_room_is_an_error_and_leaves_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "ring"
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))

        try:
            with pytest.raises(RingError, match=r"cannot be made in .*ring: .*; take a smaller buffer_bytes"):
                await RingSource(RingOptions(buffer_bytes=2 << 20, buffer_file=path)).__aenter__()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

        assert not path.exists()

    async def test_file_in_no_directory_is_an_error(self, tmp_path: Path) -> None:
        options = RingOptions(buffer_bytes=RING_BYTES, buffer_file=tmp_path / "missing" / "ring")

        with pytest.raises(RingError, match="No such file or directory"):
            await RingSource(options).__aenter__()

    async def test_damaged_record_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "ring"
        async with RingSource(RingOptions(buffer_bytes=RING_BYTES, buffer_file=path)) as source:
            send("file", b"data")
            with path.open("r+b") as ring:
                ring.seek(DATA_LANE + NAME_LENGTH)
                assert ring.read(4) == b"\4\0\0\0"
                ring.seek(DATA_LANE + NAME_LENGTH)
                ring.write(b"\4\4\0\0")

            with pytest.raises(RingError, match="damaged"):
                await source.receive()


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"buffer_bytes": 0}, r"buffer_bytes must be at least 65536 \(64 KiB\), not 0"),
            ({"buffer_bytes": -5}, "not -5"),
            (
                {"buffer_bytes": 1 << 60},
                "bytes of memory are available; take less, or keep the ring in a file",
            ),
            ({"block_timeout": -0.5}, "block_timeout must be 0 to"),
            ({"block_timeout": math.inf}, "block_timeout must be 0 to"),
            ({"block_timeout": math.nan}, "block_timeout must be 0 to"),
            ({"max_file_bytes": 0}, "max_file_bytes must be from 1"),
            ({"max_file_bytes": 1 << 63}, "max_file_bytes must be from 1"),
            ({"on_full": "explode"}, "explode"),
        ],
    )
    def test_value_out_of_range_is_refused(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            RingOptions(**options)

    def test_texts_are_taken_for_values(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"on_full": "drop", "buffer_file": str(tmp_path / "ring")}

        made = RingOptions(**options)

        assert made.on_full is OnFull.DROP
        assert made.buffer_file == tmp_path / "ring"

    def test_file_may_be_larger_than_memory(self, tmp_path: Path) -> None:
        options = RingOptions(buffer_bytes=1 << 60, buffer_file=tmp_path / "ring")

        assert options.buffer_bytes == 1 << 60
