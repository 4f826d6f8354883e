"""The zstd sink when something fails, or is cancelled: what is left, and what is said."""

from __future__ import annotations

import errno
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
import pytest
import zstandard

from dumpstream import SinkError
from dumpstream.codec import Codec
from dumpstream.sinks import SinkSettings, Stored, WholeFile
from dumpstream.sinks.resources import Resources
from dumpstream.sinks.zstd import ZstdSink
from dumpstream.system.publishing import is_temporary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from dumpstream.sinks import SinkFile
pytestmark = pytest.mark.anyio


LARGE = np.random.default_rng(1).standard_normal(1 << 20).astype("<f4").tobytes()  # 4 MiB


FULL_DISK = """
import sys, anyio
from pathlib import Path
from dumpstream.codec import Codec
from dumpstream.sinks import SinkSettings, WholeFile
from dumpstream.sinks.zstd import ZstdSink

async def main() -> None:
    sink = ZstdSink("", SinkSettings(pack=False, codec=Codec.ZSTD, directory=Path(sys.argv[1])))
    data = Path("/dev/urandom").open("rb").read(3 << 20)
    for result in await sink.put([WholeFile("small", b"abc"), WholeFile("large", data)]):
        print(result if isinstance(result, Exception) else result.path)
    await sink.aclose()
    print(sorted(path.name for path in Path(sys.argv[1]).rglob("*")))

anyio.run(main)
"""


@pytest.fixture
async def sink(tmp_path: Path) -> AsyncIterator[ZstdSink]:
    sink = ZstdSink("", SinkSettings(pack=False, codec=Codec.ZSTD, directory=tmp_path))
    yield sink
    await sink.aclose()


async def read(path: Path) -> bytes:
    return await anyio.Path(path).read_bytes()


def decompress(stored: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(stored, read_across_frames=True).read()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*"))


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_one_file_that_fails_does_not_stop_the_others(sink: ZstdSink, tmp_path: Path) -> None:
    files = [WholeFile("a", b"abc"), WholeFile("large", LARGE * 2), WholeFile("z", b"xyz")]

    with file_size_limit(3 << 20):
        first, failed, last = await sink.put(files)

    assert isinstance(failed, SinkError)
    assert str(failed).startswith("cannot store 'large': File too large; ")
    assert [result.path for result in (first, last) if isinstance(result, Stored)] == [
        "files/a.zst",
        "files/z.zst",
    ]
    assert names(tmp_path) == ["a.zst", "files", "z.zst"]


async def test_an_error_holds_no_view_of_the_buffers(sink: ZstdSink) -> None:
    buffer = bytearray(LARGE * 2)

    with file_size_limit(3 << 20):
        (failed,) = await sink.put([WholeFile("name", buffer)])

    buffer.clear()  # raises BufferError while there is a view
    assert isinstance(failed, SinkError)
    assert isinstance(failed.__cause__, OSError)
    assert failed.__cause__.errno == errno.EFBIG


async def test_an_error_raised_holds_no_view_of_the_buffers(sink: ZstdSink) -> None:
    buffer = bytearray(LARGE * 2)
    file = await sink.open("name")

    with file_size_limit(3 << 20), pytest.raises(SinkError) as raised:
        await file.write([buffer])
    await file.abort()

    buffer.clear()  # raises BufferError while there is a view
    assert "File too large" in str(raised.value)


async def test_a_file_that_failed_cannot_be_committed(sink: ZstdSink, tmp_path: Path) -> None:
    file = await sink.open("name")
    with file_size_limit(3 << 20), pytest.raises(SinkError, match="File too large"):
        await file.write([LARGE * 2])

    with pytest.raises(SinkError, match="File too large"):
        await file.commit()
    await file.abort()

    assert names(tmp_path / "files") == []


async def test_a_finished_file_takes_no_more(sink: ZstdSink, tmp_path: Path) -> None:
    file = await sink.open("name")
    await file.write([b"abc"])
    stored = await file.commit()

    with pytest.raises(anyio.ClosedResourceError):
        await file.write([b"def"])
    await file.abort()

    assert decompress(await read(tmp_path / str(stored.path))) == b"abc"


def test_a_full_disk_is_told_with_the_remedy(tmp_path: Path) -> None:
    script = tmp_path / "full_disk.py"
    script.write_text(FULL_DISK)
    (tmp_path / "disk").mkdir()
    mount = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" "$3" "$1"'
    command = ["unshare", "-rm", "sh", "-c", mount, "sh", str(tmp_path / "disk"), sys.executable, str(script)]
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("this system does not let us mount a small file system")

    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    assert output == [
        "files/small.zst",
        "cannot store 'large': No space left on device; free some space or choose another destination",
        "['files', 'small.zst']",
    ]


async def begin(sink: ZstdSink) -> SinkFile:
    file = await sink.open("name")
    await file.write([LARGE])
    return file


async def test_a_cancelled_write_leaves_nothing_once_aborted(sink: ZstdSink, tmp_path: Path) -> None:
    file = await begin(sink)

    with anyio.CancelScope() as scope:
        scope.cancel()
        await file.write([LARGE * 4])

    assert scope.cancelled_caught
    with pytest.raises(SinkError, match="was cancelled; abort it"):
        await file.commit()
    assert list(map(is_temporary, names(tmp_path / "files"))) == [True]
    with anyio.CancelScope() as scope:
        scope.cancel()
        await file.abort()
    assert names(tmp_path / "files") == []


async def test_a_write_cancelled_on_its_way_leaves_nothing_once_aborted(
    sink: ZstdSink, tmp_path: Path
) -> None:
    file = await begin(sink)

    async with anyio.create_task_group() as group:
        group.start_soon(file.write, [LARGE * 8])
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    await file.abort()

    assert names(tmp_path / "files") == []


async def test_what_a_cancelled_put_or_commit_has_begun_is_finished_and_reported(sink: ZstdSink) -> None:
    file = await begin(sink)

    with anyio.CancelScope() as scope:
        scope.cancel()
        stored = await file.commit()
        results = await sink.put([WholeFile(str(number), LARGE) for number in range(5)])

    assert stored.path == "files/name.zst"
    assert [result.path for result in results if isinstance(result, Stored)] == [
        f"files/{number}.zst" for number in range(5)
    ]


async def test_captures_that_share_threads_take_turns(tmp_path: Path) -> None:
    threads = anyio.CapacityLimiter(1)
    resources = Resources(threads=threads)
    flooded, other = (
        ZstdSink("", SinkSettings(pack=False, codec=Codec.ZSTD, directory=tmp_path / name), resources)
        for name in ("flooded", "other")
    )
    stored: list[str] = []

    async def put(sink: ZstdSink, name: str, count: int) -> None:
        outcomes = await sink.put([WholeFile(f"{name} {number}", b"data") for number in range(count)])
        assert {type(outcome) for outcome in outcomes} == {Stored}
        stored.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(put, flooded, "flood", 4096)
        while not threads.borrowed_tokens:  # the flood has the thread
            await anyio.lowlevel.checkpoint()
        tasks.start_soon(put, other, "one", 1)

    assert stored == ["one", "flood"]
    await flooded.aclose()
    await other.aclose()
