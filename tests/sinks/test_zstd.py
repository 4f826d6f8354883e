from __future__ import annotations

import resource
import shutil
import tracemalloc
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

from dumpstream._native import sync_filesystem
from dumpstream.codec import Codec
from dumpstream.sinks import SinkSettings, Stored, WholeFile, _compressors
from dumpstream.sinks.zstd import ZstdSink
from dumpstream.system import tree
from dumpstream.system.durable import Fsync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from typing_extensions import Buffer


pytestmark = pytest.mark.anyio

LARGE = np.random.default_rng(1).standard_normal(1 << 20).astype("<f4").tobytes()  # 4 MiB


@asynccontextmanager
async def open_sink(settings: SinkSettings, location: str = "") -> AsyncIterator[ZstdSink]:
    sink = ZstdSink(location, settings)
    yield sink
    await sink.aclose()


@pytest.fixture
async def sink(tmp_path: Path) -> AsyncIterator[ZstdSink]:
    async with open_sink(SinkSettings(pack=False, codec=Codec.ZSTD, directory=tmp_path)) as sink:
        yield sink


async def read(path: Path) -> bytes:
    return await anyio.Path(path).read_bytes()


async def put_one(sink: ZstdSink, name: str, data: Buffer) -> Stored:
    (result,) = await sink.put([WholeFile(name, data)])
    assert isinstance(result, Stored)
    return result


async def write_one(sink: ZstdSink, name: str, *writes: list[bytes]) -> Stored:
    file = await sink.open(name)
    for pieces in writes:
        await file.write(pieces)
    return await file.commit()


def decompress(stored: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(stored, read_across_frames=True).read()


def frames(stored: bytes) -> list[bytes]:
    """Return the content of each frame of *stored*."""
    contents = []
    while stored:
        frame = zstandard.ZstdDecompressor().decompressobj()
        contents.append(frame.decompress(stored))
        stored = frame.unused_data
    return contents


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*"))


def open_descriptors() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/fd").iterdir()}


# What is stored


@pytest.mark.parametrize("data", [b"", b"abc", LARGE, LARGE[:-1] * 2], ids=len)
async def test_the_zstd_tool_gives_back_the_exact_bytes(sink: ZstdSink, tmp_path: Path, data: bytes) -> None:
    if shutil.which("zstd") is None:
        pytest.skip("the zstd tool is not installed")
    whole = await put_one(sink, "whole", data)
    pieces = await write_one(sink, "pieces", [data[:10], data[10:]], [b"", b"end"])

    for stored, original in ((whole, data), (pieces, data + b"end")):
        tool = await anyio.run_process(["zstd", "-dc", str(tmp_path / str(stored.path))])

        assert tool.stdout == original


async def test_a_result_tells_path_size_and_checksum(sink: ZstdSink, tmp_path: Path) -> None:
    for stored in (await put_one(sink, "/a//put", LARGE), await write_one(sink, "/a//written", [LARGE])):
        assert stored.path in ("files/a/put.zst", "files/a/written.zst")
        assert stored.bytes == len(await read(tmp_path / stored.path))
        assert stored.xxh3 == xxh3_64_hexdigest(LARGE)


@pytest.mark.parametrize("many_at_once", [True, False])
async def test_every_frame_carries_checksum_and_size(
    sink: ZstdSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, many_at_once: bool
) -> None:
    monkeypatch.setattr(_compressors, "_MANY_AT_ONCE", many_at_once)
    contents = [b"abc", b"", b"de" * 1000, LARGE[: 300 << 10], b"f"]

    results = await sink.put([WholeFile(str(number), data) for number, data in enumerate(contents)])

    for data, result in zip(contents, results, strict=True):
        assert isinstance(result, Stored)
        stored = await read(tmp_path / str(result.path))
        frame = zstandard.get_frame_parameters(stored)
        assert (frame.has_checksum, frame.content_size) == (True, len(data))
        assert decompress(stored) == data


async def test_an_empty_file_is_one_empty_frame(sink: ZstdSink, tmp_path: Path) -> None:
    for stored in (await put_one(sink, "put", b""), await write_one(sink, "written", [], [b""])):
        assert frames(await read(tmp_path / str(stored.path))) == [b""]
        assert stored.xxh3 == xxh3_64_hexdigest(b"")


async def test_small_pieces_of_a_write_share_a_frame(sink: ZstdSink, tmp_path: Path) -> None:
    pieces = [b"%d," % number for number in range(1000)]

    stored = await write_one(sink, "name", pieces, [b"end"])

    assert frames(await read(tmp_path / str(stored.path))) == [b"".join(pieces), b"end"]


async def test_large_pieces_are_cut_into_frames_in_order(sink: ZstdSink, tmp_path: Path) -> None:
    stored = await write_one(sink, "name", [b"head", LARGE * 3, b"tail"])

    found = frames(await read(tmp_path / str(stored.path)))
    assert b"".join(found) == b"head" + LARGE * 3 + b"tail"
    assert max(map(len, found)) <= 2 << 20
    assert min(map(len, found[1:-1])) > 1 << 20


async def test_arrays_are_stored_as_their_bytes(sink: ZstdSink, tmp_path: Path) -> None:
    array = np.arange(12, dtype="<f4").reshape(3, 4)

    whole = await put_one(sink, "array", array.data)
    empty = await put_one(sink, "no rows", array[:0].data)

    assert decompress(await read(tmp_path / str(whole.path))) == array.tobytes()
    assert decompress(await read(tmp_path / str(empty.path))) == b""


@settings(deadline=None, max_examples=40)
@given(
    writes=st.lists(st.lists(st.sampled_from([0, 1, 300, 4096, 262_143, 262_144, 2_097_153]), max_size=4)),
    workers=st.integers(1, 3),
)
def test_any_split_of_a_file_gives_its_bytes_back(
    tmp_path_factory: pytest.TempPathFactory, writes: list[list[int]], workers: int
) -> None:
    directory = tmp_path_factory.mktemp("capture")
    content = memoryview(LARGE * (1 + sum(map(sum, writes)) // len(LARGE)))
    expected = bytes(content[: sum(map(sum, writes))])

    async def main() -> Stored:
        async with open_sink(
            SinkSettings(pack=False, codec=Codec.ZSTD, directory=directory, workers=workers)
        ) as sink:
            file = await sink.open("name")
            position = 0
            for sizes in writes:
                pieces = []
                for size in sizes:
                    pieces.append(content[position : position + size])
                    position += size
                await file.write(pieces)
            return await file.commit()

    stored = anyio.run(main)

    assert decompress((directory / str(stored.path)).read_bytes()) == expected
    assert stored.xxh3 == xxh3_64_hexdigest(expected)


# Where it goes


async def test_a_location_outside_the_capture_gives_absolute_paths(tmp_path: Path) -> None:
    settings = SinkSettings(pack=False, codec=Codec.ZSTD, directory=tmp_path / "capture")

    async with open_sink(settings, str(tmp_path / "elsewhere/deep")) as sink:
        stored = await put_one(sink, "a/name", b"abc")

    assert stored.path == str(tmp_path / "elsewhere/deep/a/name.zst")
    assert decompress(await read(tmp_path / "elsewhere/deep/a/name.zst")) == b"abc"


async def test_a_link_in_the_place_of_the_data_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "capture").mkdir()
    (tmp_path / "capture/files").symlink_to(tmp_path / "outside")

    async with open_sink(SinkSettings(pack=False, codec=Codec.ZSTD, directory=tmp_path / "capture")) as sink:
        (result,) = await sink.put([WholeFile("name", b"abc")])

    assert "Not a directory; remove what is in the place of a directory" in str(result)
    assert names(tmp_path / "outside") == []


async def test_a_piece_behind_a_gap_leaves_the_first_place_free(sink: ZstdSink) -> None:
    file = await sink.open("name", offset=100)
    behind = await file.commit()
    first = await put_one(sink, "name", b"abc")

    assert (behind.path, first.path) == ("files/name.2.zst", "files/name.zst")


async def test_a_second_run_adds_to_the_first(tmp_path: Path) -> None:
    paths = []
    for _ in range(3):
        async with open_sink(SinkSettings(pack=False, codec=Codec.ZSTD, directory=tmp_path)) as sink:
            paths.append((await put_one(sink, "name", b"abc")).path)

    assert paths == ["files/name.zst", "files/name.2.zst", "files/name.3.zst"]


# What it holds


async def test_open_files_hold_no_descriptor(sink: ZstdSink) -> None:
    await put_one(sink, "first", b"abc")
    before = open_descriptors()

    files = [await sink.open(str(number)) for number in range(50)]
    for file in files:
        await file.write([LARGE[: 300 << 10]])

    assert open_descriptors() == before
    for file in files:
        await file.abort()


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.AUTO])
async def test_open_files_hold_nothing_between_two_writes(tmp_path: Path, codec: Codec) -> None:
    async with open_sink(SinkSettings(codec=codec, directory=tmp_path)) as sink:
        files = [await sink.open(str(number)) for number in range(50)]
        for file in files:  # the first write of each takes what it needs until it is closed
            await file.write([LARGE[:1000]])
        tracemalloc.start()
        try:
            for file in files:
                await file.write([LARGE[: 60 << 10], LARGE[: 100 << 10]])
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        for file in files:
            await file.abort()

    assert held < (50 * 160 << 10) / 10


@pytest.mark.parametrize("pack", [{}, {"pack": False}], ids=["packs", "files"])
@pytest.mark.parametrize("allowed", [4, 7, 16])
async def test_the_limit_of_descriptors_holds(tmp_path: Path, allowed: int, pack: dict[str, Any]) -> None:
    stems = [f"{number % 40}/{number}" for number in range(400)]
    settings = SinkSettings(codec=Codec.ZSTD, directory=tmp_path, workers=4, max_descriptors=allowed, **pack)
    async with open_sink(settings) as sink:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = open_descriptors() - {max(open_descriptors())}
        free = (number for number in range(soft) if number not in used)
        limit = [next(free) for _ in range(allowed)][-1] + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            results = await sink.put(
                [
                    WholeFile(name, LARGE[: (30 + 40 * (number % 2)) << 10])
                    for number, name in enumerate(stems)
                ]
            )
            large = await sink.put([WholeFile("large", LARGE * 3)])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    outcomes = [result.path if isinstance(result, Stored) else result for result in (*results, *large)]
    in_packs = [result for result in results if isinstance(result, Stored) and result.start is not None]
    expected = [f"files/{name}.zst" for name in (*stems, "large")]
    assert [path for path in outcomes if not str(path).startswith("packs/")] == (
        expected[1::2] + expected[-1:] if in_packs else expected
    )
    assert bool(in_packs) == (not pack and allowed == 16)


async def test_closing_leaves_nothing_open(tmp_path: Path) -> None:
    before = open_descriptors()

    async with open_sink(SinkSettings(pack=False, codec=Codec.ZSTD, directory=tmp_path)) as sink:
        await sink.put([WholeFile(f"{number}/name", b"abc") for number in range(20)])

    assert open_descriptors() == before
    with pytest.raises(anyio.ClosedResourceError):
        await sink.put([])
    with pytest.raises(anyio.ClosedResourceError):
        await sink.open("name")


@pytest.mark.parametrize("level", [-5, 0, 22])
async def test_every_level_zstd_has_will_do(tmp_path: Path, level: int) -> None:
    async with open_sink(SinkSettings(pack=False, codec=Codec.ZSTD, directory=tmp_path, level=level)) as sink:
        stored = await put_one(sink, "name", LARGE[:100_000])

    assert decompress(await read(tmp_path / str(stored.path))) == LARGE[:100_000]


@pytest.mark.parametrize(("fsync", "syncs"), [(Fsync.NONE, 0), (Fsync.FILE, 0), (Fsync.CAPTURE, 1)])
async def test_the_file_system_is_synced_once_at_the_end_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: Fsync, syncs: int
) -> None:
    calls = []

    def sync(fd: int) -> None:
        calls.append(fd)
        sync_filesystem(fd)

    monkeypatch.setattr(tree, "sync_filesystem", sync)

    async with open_sink(SinkSettings(pack=False, codec=Codec.ZSTD, directory=tmp_path, fsync=fsync)) as sink:
        await put_one(sink, "name", b"abc")
        before = len(calls)

    assert (before, len(calls)) == (0, syncs)
