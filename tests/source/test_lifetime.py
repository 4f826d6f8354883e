"""One source at a time, in memory or in a file, with valid options."""

from __future__ import annotations

import math
import resource
import stat
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from dumpstream import _native
from dumpstream._errors import CaptureInUseError, RingError
from dumpstream.source import OnFull, RingOptions, RingSource

from .conftest import BLOCK, DROP, RING_BYTES, fill_ring, receive_chunks, send

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

#: Where the data lane begins in a ring's file, and the name's length in a record.
DATA_LANE, NAME_LENGTH = 4096 + (112 << 10), 32


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
                "MiB of memory are available; take less, or keep the ring in a file",
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
