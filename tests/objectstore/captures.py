"""Captures of what a test pushes, in its own process or by the command line."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from anyio.to_thread import run_sync

from dumpstream import RingOptions, RingSource, _native, open_capture

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from dumpstream import Capture

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


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that has no event of its own."""
    with anyio.fail_after(30):
        while not await run_sync(condition):  # noqa: ASYNC110 - as it says
            await anyio.sleep(0.01)


def found(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


async def run_dumpstream(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "dumpstream", *map(str, arguments)]
    return await anyio.run_process(command, check=False)


def finished_files(journal: Path) -> dict[str, str]:
    """Return the checksum of every file that the write-ahead journal has."""
    if not journal.exists():
        return {}
    rows = [json.loads(line) for line in journal.read_bytes().splitlines(keepends=True) if line[-1:] == b"\n"]
    return {row["name"]: row["stored"][0]["xxh3"] for row in rows if row["type"] == "file"}
