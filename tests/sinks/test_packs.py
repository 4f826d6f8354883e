from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import zstandard
from anyio.to_thread import run_sync
from obstore.store import MemoryStore
from tests.conftest import LIMIT_S
from xxhash import xxh3_64_hexdigest

from dumpstream import RingOptions, RingSource, SinkError, StoredCapture, Verdict, _native, open_capture
from dumpstream.codec import Codec
from dumpstream.custody import Stage
from dumpstream.reading.verification import verify
from dumpstream.sinks import Stored, WholeFile
from dumpstream.sinks._workers import Workers
from dumpstream.sinks.packs.growing import GrowingPacks
from dumpstream.sinks.packs.packedfile import PackedFile
from dumpstream.sinks.packs.packer import Packer, PackTarget
from dumpstream.system.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from typing_extensions import Buffer

pytestmark = pytest.mark.anyio


def compressed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def make_packer(shelf: dict[str, bytes], error: SinkError | None = None, **limits: Any) -> Packer:
    """Return a packer whose packs go to *shelf*, unless each of them fails with *error*."""

    async def open_target(name: str) -> PackTarget:
        async def store(data: Buffer) -> None:
            if error is not None:
                raise error
            shelf[f"packs/{name}"] = bytes(data)

        return PackTarget(f"packs/{name}", store)

    return Packer(Workers(2, Codec.ZSTD, 1, None), open_target, **limits)


async def add(packer: Packer, *files: bytes) -> list[Stored | SinkError]:
    return await packer.put(
        [WholeFile(f"file{index}", data) for index, data in enumerate(files)], put_nothing
    )


async def put_nothing(files: Sequence[WholeFile]) -> list[Stored | SinkError]:
    raise AssertionError(f"{len(files)} files are too large for a pack")


def stages(outcomes: list[Stored | SinkError]) -> list[Stage | None]:
    return [one.custody.stage if isinstance(one, Stored) and one.custody else None for one in outcomes]


async def test_files_are_in_custody_until_their_pack_is_stored() -> None:
    shelf: dict[str, bytes] = {}
    packer = make_packer(shelf)

    outcomes = await add(packer, b"one", b"two")
    before = stages(outcomes)
    await packer.aclose()

    assert before == [Stage.TAKEN] * 2
    assert stages(outcomes) == [Stage.STORED] * 2
    assert len(shelf) == 1


async def test_files_too_large_for_a_pack_go_elsewhere_and_keep_their_place() -> None:
    large = os.urandom((1 << 20) + 1)
    packer = make_packer({})

    async def put_large(files: Sequence[WholeFile]) -> list[Stored | SinkError]:
        return [Stored(f"elsewhere/{file.name}") for file in files]

    files = [WholeFile("a", large), WholeFile("b", b"small"), WholeFile("c", large), WholeFile("d", b"")]
    outcomes = await packer.put(files, put_large)
    await packer.aclose()

    assert [one.path for one in outcomes if isinstance(one, Stored)][::2] == ["elsewhere/a", "elsewhere/c"]
    assert [one.xxh3 for one in outcomes if isinstance(one, Stored)][1::2] == [
        xxh3_64_hexdigest(b"small"),
        xxh3_64_hexdigest(b""),
    ]


async def test_pack_of_tiny_files_is_stored_when_it_has_very_many() -> None:
    shelf: dict[str, bytes] = {}
    packer = make_packer(shelf)

    outcomes = await add(packer, *[b"tiny"] * 20_000)
    stored = Counter(one.path for one in outcomes if isinstance(one, Stored))
    await packer.aclose()

    assert sorted(stored.values()) == [20_000 - 2 * 8192, 8192, 8192]
    assert set(stored) == set(shelf)


async def test_pack_is_stored_when_it_is_large_enough() -> None:
    shelf: dict[str, bytes] = {}
    packer = make_packer(shelf, pack_bytes=3000)

    outcomes = await add(packer, *(os.urandom(1000) for _ in range(10)))
    await packer.aclose()

    assert 3 <= len(shelf) <= 4
    assert {one.path for one in outcomes if isinstance(one, Stored)} == set(shelf)


async def test_pack_is_stored_when_it_is_old_enough() -> None:
    packer = make_packer({}, pack_s=0.01)

    outcomes = await add(packer, b"one")
    with anyio.fail_after(LIMIT_S):
        while stages(outcomes) != [Stage.STORED]:  # noqa: ASYNC110 - what is tested is the time
            await anyio.sleep(0.002)

    await packer.aclose()


async def test_pack_that_cannot_be_stored_loses_its_files_and_is_told_of() -> None:
    packer = make_packer({}, SinkError("the disk is full"))

    outcomes = await add(packer, b"one", b"two")
    with pytest.raises(SinkError, match="the disk is full"):
        await packer.aclose()

    assert stages(outcomes) == [Stage.LOST] * 2


def make_tree(directory: Path, *, durable: bool = False) -> Tree:
    return Tree(directory, below=("packs",), suffix=".zip", base=directory, directories=1, durable=durable)


def packed_files(*contents: bytes) -> list[PackedFile]:
    """Return files with *contents* that are compressed."""
    files = [
        PackedFile(f"file{number}", memoryview(data), Codec.ZSTD) for number, data in enumerate(contents)
    ]
    for file in files:
        file.take(memoryview(compressed(bytes(file.data))))
    return files


def content_of(directory: Path, file: PackedFile) -> bytes:
    """Return what is stored of *file*."""
    assert isinstance(file.outcome, Stored)
    path, size, start = file.outcome.path, file.outcome.bytes, file.outcome.start
    assert path is not None
    assert start is not None
    frame = (directory / path).read_bytes()[start : start + size]
    return zstandard.ZstdDecompressor().decompress(frame, max_output_size=1 << 20)


class TestGrowing:
    def test_every_file_is_on_the_disk_when_it_has_its_outcome(self, tmp_path: Path) -> None:
        packs = GrowingPacks(make_tree(tmp_path))
        first, second = packed_files(b"one", b"two")

        packs.add([first])
        before = content_of(tmp_path, first)
        packs.add([second])

        assert before == b"one"
        assert [content_of(tmp_path, file) for file in (first, second)] == [b"one", b"two"]
        assert len(list(tmp_path.rglob("*.zip"))) == 1

    def test_pack_that_was_closed_is_a_container_that_others_open(self, tmp_path: Path) -> None:
        packs = GrowingPacks(make_tree(tmp_path))
        for number in range(3):
            packs.add(packed_files(*[bytes([number])] * 5))

        packs.close()

        (path,) = tmp_path.rglob("*.zip")
        with zipfile.ZipFile(path) as container:
            assert len(container.namelist()) == 15

    def test_pack_ends_when_it_is_large_enough_or_has_very_many_files(self, tmp_path: Path) -> None:
        packs = GrowingPacks(make_tree(tmp_path), pack_bytes=1 << 20)
        small = packed_files(*[b""] * 5000)
        large = packed_files(os.urandom(1 << 20), b"one more")

        packs.add(small)
        packs.add(packed_files(*[b""] * 5000))
        packs.add(large[:1])
        packs.add(large[1:])
        packs.close()

        counts = [len(zipfile.ZipFile(path).namelist()) for path in sorted(tmp_path.rglob("*.zip"))]
        assert counts == [5000, 5001, 1]

    def test_write_that_fails_leaves_the_pack_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        packs = GrowingPacks(make_tree(tmp_path))
        kept, lost, last = packed_files(b"kept", b"lost", b"last")
        packs.add([kept])
        (path,) = tmp_path.rglob("*.zip")
        size = path.stat().st_size

        def fail(fd: int, data: Buffer) -> int:
            os.write(fd, memoryview(data)[:10])
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("dumpstream.system.tree.write_all", fail)
            packs.add([lost])
        after = path.stat().st_size
        packs.add([last])
        packs.close()

        assert isinstance(lost.outcome, SinkError)
        assert after == size
        assert [content_of(tmp_path, file) for file in (kept, last)] == [b"kept", b"last"]
        with zipfile.ZipFile(path) as container:
            assert container.namelist() == ["file0", "file2"]

    def test_pack_whose_first_write_fails_is_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        packs = GrowingPacks(make_tree(tmp_path))

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("dumpstream.system.tree.write_all", fail)
        packs.add(packed_files(b"lost"))
        packs.close()

        assert list(tmp_path.rglob("*.zip")) == []

    def test_threads_that_add_at_once_keep_their_files_apart(self, tmp_path: Path) -> None:
        packs = GrowingPacks(make_tree(tmp_path), pack_bytes=20_000)
        files = packed_files(*(os.urandom(300) for _ in range(400)))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda at: packs.add(files[at : at + 5]), range(0, 400, 5)))
        packs.close()

        assert [content_of(tmp_path, file) for file in files] == [bytes(file.data) for file in files]


async def test_small_files_of_a_killed_capture_are_there_if_the_journal_has_them(tmp_path: Path) -> None:
    code = (
        "import asyncio, ctypes, os, signal, sys\n"
        "from dumpstream import RingOptions, RingSource, _native, open_capture\n"
        "async def main():\n"
        "    source = RingSource(RingOptions(buffer_bytes=1 << 20))\n"
        "    async with open_capture(sys.argv[1], source=source) as capture:\n"
        "        files = capture.files()\n"
        "        for number in range(500):\n"
        "            data = ctypes.create_string_buffer(b'x' * number, number or 1)\n"
        "            name = b'file%d' % number\n"
        "            assert _native.push(name, ctypes.addressof(data), number, True, -1, 0) == 0\n"
        "            await anext(files)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    killed = await run_sync(lambda: subprocess.run(command, check=False, timeout=LIMIT_S))

    stored = await run_sync(StoredCapture.open, tmp_path / "run")
    read = {
        file.name: await run_sync(lambda: b"".join(map(bytes, stored.read_part(file.parts[0]))))  # noqa: B023 - at once
        for file in await run_sync(list, stored.files)
    }
    assert killed.returncode == -signal.SIGKILL
    assert all(data == b"x" * int(name.removeprefix("file")) for name, data in read.items())
    assert len(stored_in(tmp_path / "run")) == 1
    assert len(read) > 0


def push(name: str, data: bytes) -> None:
    buffer = ctypes.create_string_buffer(data, len(data) or 1)
    assert _native.push(os.fsencode(name), ctypes.addressof(buffer), len(data), True, -1, 0) == 0


def stored_in(run: Path) -> list[Path]:
    """Return the packs and files of the capture *run*."""
    return sorted(run.glob("*/*"), key=lambda path: path.suffix)


async def capture_packed(destination: Any, files: dict[str, bytes], **options: Any) -> Any:
    source = RingSource(RingOptions(buffer_bytes=16 << 20))
    async with open_capture(destination, source=source, pack=True, **options) as capture:
        for name, data in files.items():
            await run_sync(push, name, data)
    return capture.report


async def test_packed_capture_in_a_directory_is_whole(tmp_path: Path) -> None:
    files = {f"file{number}": os.urandom(number) for number in range(300)} | {"large": os.urandom(3 << 20)}

    report = await capture_packed(tmp_path / "run", files)

    stored = await run_sync(StoredCapture.open, tmp_path / "run")
    read = {
        file.name: await run_sync(lambda: b"".join(map(bytes, stored.read_part(file.parts[0]))))  # noqa: B023 - at once
        for file in await run_sync(list, stored.files)
    }
    assert report.whole
    assert read == files
    assert (await run_sync(verify, stored)).whole
    assert [path.suffix for path in stored_in(tmp_path / "run")] == [".dsz", ".zip"]


async def test_second_packed_run_adds_packs_and_force_deletes_them(tmp_path: Path) -> None:
    await capture_packed(tmp_path / "run", {"a": b"one"})
    await capture_packed(tmp_path / "run", {"a": b"two"}, append=True)
    both = stored_in(tmp_path / "run")
    await capture_packed(tmp_path / "run", {"a": b"three"}, force=True)

    assert len(both) == 2
    assert len(stored_in(tmp_path / "run")) == 1


async def test_pack_cut_short_is_found_by_verify(tmp_path: Path) -> None:
    await capture_packed(tmp_path / "run", {"a": os.urandom(1000)})
    (pack,) = stored_in(tmp_path / "run")
    os.truncate(pack, 500)

    result = await run_sync(lambda: verify(StoredCapture.open(tmp_path / "run")))

    assert [problem.kind for problem in result.problems] == ["damaged"]


async def test_files_of_a_pack_that_fails_at_the_end_are_journalled_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dumpstream.system.tree.write_all", fail)

    with pytest.raises(SinkError, match="No space left"):
        await capture_packed(tmp_path / "run", {"a": b"one", "b": b"two"})

    stored = await run_sync(StoredCapture.open, tmp_path / "run")
    assert {file.name: (file.verdict, file.cause) for file in await run_sync(list, stored.files)} == {
        "a": (Verdict.LOST, "sink_failed"),
        "b": (Verdict.LOST, "sink_failed"),
    }
    assert [loss.cause for loss in stored.losses] == ["sink_failed"]


async def test_packed_capture_in_a_store_has_one_object_for_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = MemoryStore()

    report = await capture_packed(store, {f"file{number}": os.urandom(50) for number in range(200)})

    assert report.verdicts == {"unparsed": 200}
    keys = [meta["path"] for page in store.list() for meta in page]
    assert sorted(key.partition("/")[0] for key in keys) == ["journal.jsonl", "manifest.json", "packs"]
