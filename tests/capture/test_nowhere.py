"""A capture that stores nothing: its files are its consumers', in memory or in a temporary file."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.to_thread import run_sync
from tests.conftest import LIMIT_S

from dumpstream import PartError, RingOptions, RingSource, SinkError, Verdict, open_capture
from dumpstream.simulation import SimulatedRuntime, Workload
from dumpstream.sinks.memory import MemorySink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from tests.capture.conftest import Rig

    from dumpstream import Capture

pytestmark = pytest.mark.anyio

_LARGE = bytes(range(256)) * (8 << 10)  # 2 MiB: written piece by piece


def captured(**options: Any) -> AbstractAsyncContextManager[Capture]:
    return open_capture(None, source=RingSource(RingOptions(buffer_bytes=32 << 20)), **options)


@pytest.fixture(autouse=True)
async def _leaves_nothing_behind() -> AsyncIterator[None]:
    """Expect that no file and no descriptor stays."""
    temporary = Path(tempfile.gettempdir())
    before = await run_sync(os.listdir, temporary), await run_sync(os.listdir, "/proc/self/fd")
    with anyio.fail_after(LIMIT_S):
        yield
        while len(await run_sync(os.listdir, "/proc/self/fd")) > len(before[1]):
            gc.collect()  # a failure keeps the ring in a cycle
            await asyncio.sleep(0.01)  # a thread closes the temporary file
    assert await run_sync(os.listdir, temporary) == before[0]


async def test_it_needs_no_directory_and_leaves_none(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o500)
    monkeypatch.chdir(empty)
    async with captured() as capture:
        files = capture.files()
        rig.push("file", b"1", last=True)
    data = {file.name: await file.read() async for file in files}

    assert data == {"file": b"1"}
    assert capture.path is None
    assert (capture.report.files, capture.report.whole) == (1, True)
    assert list(empty.iterdir()) == []


async def test_a_whole_workload_passes_through(rig: Rig) -> None:
    with SimulatedRuntime(Workload(steps=2)) as runtime:
        options: dict[str, Any] = {"acl_library": rig.library, "buffer_bytes": 4 << 20}
        async with open_capture(None, config=rig.config, **options) as capture:
            files = capture.files()
            await run_sync(runtime.run)
            seen = {}
            for _ in range(32):
                file = await anext(files)
                seen[file.name] = len(await file.read())

    assert len(seen) == capture.report.files == 32
    assert sum(seen.values()) == capture.report.bytes


async def test_without_a_consumer_everything_is_counted_and_nothing_kept(rig: Rig) -> None:
    async with captured() as capture:
        rig.push("small", b"1", last=True)
        rig.push("large", _LARGE)
        rig.push("large", _LARGE, last=True)

    assert capture.report.files == 2
    assert capture.report.bytes == 2 * len(_LARGE) + 1
    assert capture.report.stored_bytes == 0


@pytest.mark.parametrize("chunks", [1, 4])
async def test_a_file_larger_than_the_bound_comes_in_pieces(rig: Rig, chunks: int) -> None:
    async with captured() as capture:
        files = capture.files(max_bytes=1000)
        for number in range(chunks):
            rig.push("large", _LARGE, last=number == chunks - 1)
        file = await anext(files)
        with pytest.raises(ValueError, match=r"read it with pieces\(\)"):
            await file.read()
        pieces = [piece async for piece in file.pieces()]

    assert b"".join(piece.data for piece in pieces) == _LARGE * chunks
    assert max(len(piece.data) for piece in pieces) <= 1 << 20
    assert [piece.offset for piece in pieces] == [
        sum(len(it.data) for it in pieces[:number]) for number in range(len(pieces))
    ]


async def test_a_file_within_the_bound_is_read_at_once(rig: Rig) -> None:
    async with captured() as capture:
        files = capture.files()
        rig.push("large", _LARGE)
        rig.push("large", _LARGE, last=True)
    file = await anext(files)

    assert await file.read() == _LARGE * 2
    await files.aclose()


async def test_gaps_are_told_and_the_bytes_behind_them_come(rig: Rig) -> None:
    async with captured() as capture:
        files = capture.files()
        rig.push("gap", b"01", offset=0)
        rig.push("gap", _LARGE, offset=100, last=True)
    file = await anext(files)

    assert (file.verdict, file.size) == (Verdict.GAP, 2 + len(_LARGE))
    pieces = [piece async for piece in file.pieces()]
    assert pieces[0] == (0, b"01")
    assert pieces[1].offset == 100
    assert b"".join(piece.data for piece in pieces[1:]) == _LARGE
    await files.aclose()


async def test_pieces_that_wait_behind_a_gap_go_to_a_temporary_file(rig: Rig) -> None:
    async with captured(held_bytes=0) as capture:
        files = capture.files()
        rig.push("late", b"12", offset=1, last=True)
        rig.push("late", b"0", offset=0)
    file = await anext(files)

    assert (await file.read(), file.verdict) == (b"012", Verdict.UNPARSED)


async def test_bytes_are_gone_once_the_next_file_is_asked_for(rig: Rig) -> None:
    async with captured() as capture:
        files = capture.files()
        for name in ("small", "large", "last"):
            rig.push(name, b"" if name == "small" else _LARGE)
            rig.push(name, b"1", last=True)
    small, large = await anext(files), await anext(files)
    pieces = large.pieces()
    await anext(pieces)
    await anext(files)

    with pytest.raises(PartError, match="'small' is not in memory"):
        await small.read()
    with pytest.raises(PartError, match="'large' was read too late; read it before you ask for the next"):
        await anext(pieces)
    with pytest.raises(PartError, match="'large' was read too late"):
        await large.read()
    await files.aclose()


async def test_every_consumer_reads_the_same_bytes_from_the_spool(rig: Rig) -> None:
    async with captured() as capture:
        consumers = [capture.files(max_bytes=bound) for bound in (10, 10, 64 << 20)]
        for number in range(3):
            rig.push(str(number), _LARGE)
            rig.push(str(number), str(number).encode(), last=True)
        for number in range(3):
            for files in consumers:
                file = await anext(files)
                data = b"".join([piece.data async for piece in file.pieces()])
                assert (file.name, data) == (str(number), _LARGE + str(number).encode())


async def test_the_temporary_file_is_bounded_by_the_consumer(rig: Rig) -> None:
    async with captured() as capture:
        files = capture.files(max_bytes=len(_LARGE), on_slow="skip")
        for number in range(5):
            rig.push(str(number), _LARGE[:-1])
            rig.push(str(number), b"1", last=True)
        report = capture.report
        while report.files < 5:
            report = await capture.changed(report)

    assert [file.name async for file in files] == ["0"]
    assert capture.report.skipped_files == 4


async def test_a_consumer_that_comes_in_the_middle_of_a_file_is_told(rig: Rig) -> None:
    async with captured() as capture:
        rig.push("large", _LARGE)
        report = capture.report
        while not report.chunks:
            report = await capture.changed(report)
        files = capture.files()
        rig.push("large", b"1", last=True)
    file = await anext(files)

    assert file.size == len(_LARGE) + 1
    with pytest.raises(PartError, match=r"call files\(\) before the file begins"):
        await file.read()


async def test_sinks_of_ones_own_work_beside_the_consumers(rig: Rig) -> None:
    sink = MemorySink()
    async with captured(sinks=[sink]) as capture:
        files = capture.files()
        rig.push("file", b"1", last=True)

    assert sink.files == {"file": [b"1"]}
    assert await (await anext(files)).read() == b"1"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"append": True}, ValueError, "append, force and spill need a destination"),
        ({"force": True}, ValueError, "append, force and spill need a destination"),
        ({"spill": "here"}, ValueError, "append, force and spill need a destination"),
        (
            {"sinks": ["zstd:"]},
            SinkError,
            "zstd: needs a directory if the capture stores nothing; write zstd:DIR",
        ),
        (
            {"sinks": ["stats:?format=csv"]},
            SinkError,
            "stats: needs a directory if the capture stores nothing",
        ),
    ],
)
async def test_what_needs_a_destination_is_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        async with captured(**options):
            pytest.fail("entered")


async def test_a_full_disk_under_the_temporary_file_ends_the_capture(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        return open("/dev/full", "r+b", buffering=0)  # noqa: PTH123 - stands for the temporary file

    async with rig.raising(SinkError, "No space left", captured()) as capture:
        monkeypatch.setattr("dumpstream.system.heldbytes.TemporaryFile", full)
        monkeypatch.setattr("os.ftruncate", lambda *_: None)
        files = capture.files(max_bytes=10)
        rig.push("large", _LARGE, last=True)
        with pytest.raises(SinkError, match="No space left"):
            await anext(files)
