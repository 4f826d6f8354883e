"""Captures of what a test pushes, in its own process or by the command line."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from contextlib import asynccontextmanager
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any

import anyio
from anyio.to_thread import run_sync
from xxhash import xxh3_64_hexdigest

from dumpstream import RingOptions, RingSource, _native, open_capture
from dumpstream.archive.manifest import parse_manifest
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.codec import Codec
from dumpstream.codec.blocks import encode_whole
from dumpstream.codec.decoding import original_of_view
from dumpstream.format.verdict import Verdict
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.quota import Quota
from dumpstream.source import OnFull
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from anyio.abc import Process

    from dumpstream import Capture

    from .bucket import Bucket

_MIB = 1 << 20


def push(name: str, data: bytes, *, last: bool = True) -> None:
    """Do what the callback does for one chunk."""
    buffer = ctypes.create_string_buffer(data, len(data) or 1)
    assert _native.push(os.fsencode(name), ctypes.addressof(buffer), len(data), last, -1, 0) == 0


def push_all(files: dict[str, bytes]) -> None:
    for name, data in files.items():
        push(name, data)


def small_files(count: int, size: int = 400) -> dict[str, bytes]:
    return {f"dir{number % 7}/{number}": os.urandom(size) for number in range(count)}


@asynccontextmanager
async def capturing(destination: Any, **options: Any) -> AsyncIterator[Capture]:
    """Capture what the test pushes."""
    source = RingSource(RingOptions(buffer_bytes=32 * _MIB))
    async with open_capture(destination, source=source, **options) as capture:
        yield capture


def leave_behind(spill: Path, bucket: Bucket, files: dict[str, bytes]) -> None:
    """Leave what a run that was killed while its store was away leaves."""
    prefix = Prefix.parse(bucket.url)
    outbox = Outbox.make(spill, bucket.url, quota=Quota(1 << 20), on_full=OnFull.BLOCK)
    outbox.add_store(prefix)
    outbox.keep_manifest(parse_manifest(prefix, bucket.get("manifest.json")))
    lines = []
    for name, data in files.items():
        stored, path = encode_whole(Codec.AUTO, data), f"files/{name}.dsz"
        outbox.append(f"{bucket.url}/{path}", [stored], new=True)
        outbox.complete(f"{bucket.url}/{path}")
        part = StoredPart("zstd", path, 0, len(data), len(stored), xxh3_64_hexdigest(data))
        lines.append(FileRow(name, len(data), 1, Verdict.UNPARSED, [part]).to_line())
    outbox.journal_path.touch(mode=0o600)
    outbox.journal_path.write_text("".join(f"{line}\n" for line in lines))
    outbox.needed = True
    outbox.close()


def contents(bucket: Bucket) -> list[tuple[str, bytes]]:
    """Return every file in the journal, as often as it is there."""
    return sorted(
        (row["name"], b"".join(map(bytes, original_of_view(memoryview(bucket.get(part["path"]))))))
        for row in bucket.rows()
        if row["type"] == "file"
        for part in row["stored"]
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that has no event of its own."""
    with anyio.fail_after(120):
        while not await run_sync(condition):  # noqa: ASYNC110 - as it says
            await anyio.sleep(0.01)


def found(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


async def run_dumpstream(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "dumpstream", *map(str, arguments)]
    return await anyio.run_process(command, check=False)


@asynccontextmanager
async def running_dumpstream(*arguments: object) -> AsyncIterator[Process]:
    """Run it beside the test, and no longer than the block."""
    command = [sys.executable, "-m", "dumpstream", *map(str, arguments)]
    async with await anyio.open_process(command, stdout=DEVNULL, stderr=PIPE) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


async def said_by(process: Process, limit_s: float) -> str:
    """Return what *process* says until it ends, which is within *limit_s* seconds."""
    assert process.stderr is not None
    with anyio.fail_after(limit_s):
        said = b"".join([data async for data in process.stderr]).decode()
        await process.wait()
    return said


def finished_files(journal: Path) -> dict[str, str]:
    """Return the checksum of every file that the write-ahead journal has."""
    if not journal.exists():
        return {}
    rows = [json.loads(line) for line in journal.read_bytes().splitlines(keepends=True) if line[-1:] == b"\n"]
    return {row["name"]: row["stored"][0]["xxh3"] for row in rows if row["type"] == "file"}
