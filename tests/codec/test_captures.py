"""Captures with each codec: they come back whole, damage is found, and the manifest tells the codec."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from anyio.to_thread import run_sync

from dumpstream import RingOptions, RingSource, _native, open_capture
from dumpstream._native import hide_libzstd
from dumpstream.codec import Codec
from dumpstream.reading.content import content_of_stored
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.verification import verify
from dumpstream.simulation import Workload
from dumpstream.simulation.library import load_library

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

_DTYPES = "float32+float16+bfloat16+int32"


@pytest.fixture(scope="module", autouse=True)
def _simulated_library() -> None:
    """Load it before an event loop runs, which must not wait for the disk."""
    load_library()


def dump_files() -> dict[str, bytes]:
    """Return small and large dump files of several types, one without a header, and one without bytes."""
    found = {"text": b"no header\n" * 100, "empty": b""}
    for size in ("300", "70000", "3000000"):
        workload = Workload(models=1, ops=4, inputs=1, tensor_bytes=size, dtypes=_DTYPES)
        found |= {f"{size}/{number}": it.data for number, it in enumerate(workload.expected_files("/dump"))}
    return found


def push(name: str, data: bytes, step: int) -> None:
    """Send *data* in chunks of *step* bytes, which cut headers and elements."""
    view = (memoryview(bytearray(data)) if data else memoryview(bytearray(1)))[: len(data)]
    for start in range(0, len(data), step) if data else (0,):
        piece = bytearray(view[start : start + step])
        raw = _address(piece)
        _native.push(name.encode(), raw, len(piece), start + step >= len(data), -1, 0)


def _address(data: bytearray) -> int:
    import ctypes  # noqa: PLC0415 - only for an address

    return ctypes.addressof(ctypes.c_char.from_buffer(data)) if data else 0


async def capture(path: Path, files: dict[str, bytes], *, step: int = 1 << 30, **options: Any) -> None:
    source = RingSource(RingOptions(buffer_bytes=32 << 20))
    async with open_capture(path, source=source, own_process=False, **options):
        for name, data in files.items():
            await run_sync(push, name, data, step)


def read_all(path: Path) -> dict[str, bytes]:
    stored = StoredCapture.open(path)
    found = {}
    for file in stored.files:
        content = content_of_stored(stored, file)
        found[file.name] = bytes(content.read(0, file.bytes))
        content.close()
    return found


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("codec", Codec)
async def test_every_codec_gives_every_file_back(tmp_path: Path, codec: Codec, *, pack: bool) -> None:
    files = dump_files()

    await capture(tmp_path / "run", files, codec=codec, pack=pack)

    assert await run_sync(read_all, tmp_path / "run") == files
    assert (await run_sync(lambda: verify(StoredCapture.open(tmp_path / "run")))).whole
    suffixes = {path.suffix for path in (tmp_path / "run/files").rglob("*") if path.is_file()}
    assert suffixes == {codec.suffix}


@pytest.mark.parametrize("step", [7, 1001, 65_537])
async def test_chunks_that_cut_headers_and_elements_give_the_file_back(tmp_path: Path, step: int) -> None:
    files = {name: data for name, data in dump_files().items() if step > 1000 or len(data) < 2000}

    await capture(tmp_path / "run", files, step=step)

    assert await run_sync(read_all, tmp_path / "run") == files
    assert (await run_sync(lambda: verify(StoredCapture.open(tmp_path / "run")))).whole


async def test_tensors_are_found_although_chunks_cut_the_header(tmp_path: Path) -> None:
    (data,) = [
        it.data for it in Workload(models=1, ops=1, inputs=0, tensor_bytes="3000000").expected_files("/")
    ]

    await capture(tmp_path / "whole", {"a": data})
    await capture(tmp_path / "cut", {"a": data[:50], "b": data})
    source = RingSource(RingOptions(buffer_bytes=32 << 20))
    async with open_capture(tmp_path / "pieces", source=source, own_process=False):
        await run_sync(push, "a", data, 50_000)

    sizes = {name: (tmp_path / name / "files/a.dsz").stat().st_size for name in ("whole", "pieces")}
    assert sizes["pieces"] < sizes["whole"] * 1.1


@pytest.mark.parametrize("codec", Codec)
async def test_one_changed_byte_is_found_by_verify(tmp_path: Path, codec: Codec) -> None:
    files = {"a": dump_files()["70000/0"]}
    await capture(tmp_path / "run", files, codec=codec)
    path = tmp_path / f"run/files/a{codec.suffix}"
    stored = bytearray(path.read_bytes())
    stored[len(stored) // 2] ^= 4
    path.write_bytes(stored)

    result = await run_sync(lambda: verify(StoredCapture.open(tmp_path / "run")))

    assert [problem.kind for problem in result.problems] == ["damaged"]


@pytest.fixture
def without_libzstd() -> Iterator[None]:
    hide_libzstd(True)
    yield
    hide_libzstd(False)


def run_of(path: Path) -> dict[str, Any]:
    manifest = json.loads((path / "manifest.json").read_bytes())
    return {"format": manifest["format"], **manifest["runs"][-1]["codec"]}


async def test_the_manifest_tells_the_codec_and_the_format_that_it_needs(tmp_path: Path) -> None:
    for codec in Codec:
        await capture(tmp_path / codec, {"a": b"data"}, codec=codec)

        assert run_of(tmp_path / codec) == {
            "format": 1 if codec is Codec.ZSTD else 2,
            "name": codec.value,
            "libzstd": True,
        }


@pytest.mark.usefixtures("without_libzstd")
async def test_a_machine_without_libzstd_says_so_and_loses_nothing(tmp_path: Path) -> None:
    files = dump_files()

    await capture(tmp_path / "run", files)

    assert run_of(tmp_path / "run")["libzstd"] is False
    assert await run_sync(read_all, tmp_path / "run") == files
    hide_libzstd(False)
    assert (await run_sync(lambda: verify(StoredCapture.open(tmp_path / "run")))).whole


async def test_runs_with_different_codecs_are_one_capture(tmp_path: Path) -> None:
    for codec in Codec:
        await capture(
            tmp_path / "run", {f"{codec}": b"data" * 100}, codec=codec, append=codec is not Codec.AUTO
        )

    assert await run_sync(read_all, tmp_path / "run") == {f"{codec}": b"data" * 100 for codec in Codec}
