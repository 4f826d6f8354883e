from __future__ import annotations

import io
from typing import TYPE_CHECKING

import anyio.to_thread
import pytest

from dumpstream.codec import Codec
from dumpstream.codec.decoding import original_of_file
from dumpstream.names import clean_name, hashed_name
from dumpstream.sinks import SinkSettings, Stored, WholeFile, load_sink
from dumpstream.sinks.memory import MemorySink
from dumpstream.sinks.null import NullSink
from dumpstream.sinks.zstd import ZstdSink
from dumpstream.testing import check_sink

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from dumpstream import SinkError

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def read_parts(root: Path, name: str, suffix: str, besides: Collection[Path] = ()) -> list[bytes]:
    """Return what the zstd sink stored under *name*, *besides* others: in its place, or after a clash."""
    parts = []
    for stem in dict.fromkeys(("/".join(clean_name(name)), hashed_name(name))):
        for number in range(1, 10):
            path = root / (f"{stem}{suffix}" if number == 1 else f"{stem}.{number}{suffix}")
            if path.is_file() and path not in besides:
                with path.open("rb") as file:
                    parts.append(b"".join(map(bytes, original_of_file(file, path.name, 1 << 20))))
    return parts


def whereabouts(root: Path) -> set[tuple[str, ...]]:
    """Return the first two directories and the suffix of every file."""
    files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {(*path.parts[:-1][:2], path.suffix) for path in files}


@pytest.mark.parametrize(("workers", "codec"), [(1, Codec.AUTO), *((4, codec) for codec in Codec)])
async def test_zstd_sink_keeps_every_promise(tmp_path: Path, workers: int, codec: Codec) -> None:
    capture = tmp_path / "capture"
    settings = SinkSettings(pack=False, directory=capture, workers=workers, max_descriptors=20, codec=codec)

    async def read(name: str) -> list[bytes]:
        return await anyio.to_thread.run_sync(read_parts, capture / "files", name, codec.suffix)

    await check_sink(lambda: ZstdSink("", settings), read)

    assert whereabouts(tmp_path) == {("capture", "files", codec.suffix)}


class RecordingSink(ZstdSink):
    """Keeps what `put` said of each file, as a journal does."""

    def __init__(self, settings: SinkSettings, put: dict[str, list[Stored]]) -> None:
        super().__init__("", settings)
        self._put_before = put

    async def put(self, files: Sequence[WholeFile]) -> list[Stored | SinkError]:
        outcomes = await super().put(files)
        for file, outcome in zip(files, outcomes, strict=True):
            if isinstance(outcome, Stored):
                self._put_before.setdefault(file.name, []).append(outcome)
        return outcomes


def read_stored(capture: Path, stored: Stored) -> bytes:
    """Return the content of a file that is in a pack, or alone."""
    path = capture / (stored.path or "")
    data = path.read_bytes()[stored.start or 0 :][: stored.bytes]
    return b"".join(map(bytes, original_of_file(io.BytesIO(data), ".dsz", 1 << 20)))


@pytest.mark.parametrize("workers", [1, 4])
async def test_zstd_sink_keeps_every_promise_with_packs(tmp_path: Path, workers: int) -> None:
    capture = tmp_path / "capture"
    settings = SinkSettings(directory=capture, workers=workers, max_descriptors=20)
    put: dict[str, list[Stored]] = {}

    def read_both(name: str) -> list[bytes]:
        before = put.get(name, [])
        alone = {capture / (stored.path or "") for stored in before}
        found = [read_stored(capture, stored) for stored in before]
        return found + read_parts(capture / "files", name, ".dsz", alone)

    async def read(name: str) -> list[bytes]:
        return await anyio.to_thread.run_sync(read_both, name)

    await check_sink(lambda: RecordingSink(settings, put), read)

    assert whereabouts(tmp_path) == {("capture", "files", ".dsz"), ("capture", "packs", ".zip")}


async def test_memory_sink_keeps_every_promise() -> None:
    made: list[MemorySink] = []

    def make_sink() -> MemorySink:
        made.append(MemorySink())
        return made[-1]

    async def read(name: str) -> Sequence[bytes]:
        return made[-1].files.get(name, [])

    await check_sink(make_sink, read)


async def test_null_sink_counts_what_is_committed() -> None:
    sink = NullSink()
    file = await sink.open("committed")
    await file.write([b"abc", b"de"])
    await file.commit()
    file = await sink.open("aborted")
    await file.write([b"abc"])
    await file.abort()

    results = await sink.put([WholeFile("a", b"1234"), WholeFile("b", b"")])
    await sink.aclose()

    assert (sink.files, sink.bytes) == (3, 9)
    assert [result.path for result in results if not isinstance(result, Exception)] == [None, None]


def test_every_built_in_sink_loads_by_its_kind(tmp_path: Path) -> None:
    settings = SinkSettings(directory=tmp_path)

    sinks = {kind: load_sink(f"{kind}:", settings) for kind in ("zstd", "memory", "null")}

    assert {kind: type(sink) for kind, sink in sinks.items()} == {
        "zstd": ZstdSink,
        "memory": MemorySink,
        "null": NullSink,
    }


class ForgetfulFile:
    """Keeps the caller's buffers instead of copying them."""

    def __init__(self, sink: MemorySink, name: str) -> None:
        self._sink, self._name = sink, name
        self._pieces: list[Buffer] = []

    async def write(self, pieces: Sequence[Buffer]) -> None:
        self._pieces += [memoryview(piece) for piece in pieces]

    async def commit(self) -> Stored:
        return self._sink.add(self._name, b"".join(self._pieces))

    async def abort(self) -> None:
        self._pieces.clear()


class ForgetfulSink(MemorySink):
    async def open(self, name: str, *, offset: int = 0) -> ForgetfulFile:  # type: ignore[override]
        return ForgetfulFile(self, name)


async def test_a_sink_that_keeps_buffers_is_found_out() -> None:
    sink = ForgetfulSink()

    async def read(name: str) -> Sequence[bytes]:
        return sink.files.get(name, [])

    with pytest.raises(AssertionError, match="buffers are free for reuse"):
        await check_sink(lambda: sink, read)
