"""What a large file on its way to a real S3 server costs in memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
import pytest

if TYPE_CHECKING:
    from .bucket import Bucket

pytestmark = [pytest.mark.anyio, pytest.mark.stores]

_MIB = 1 << 20

# Captures one file of so many MiB, pushed as fast as the ring takes it; prints the peak of its memory.
_CAPTURE = """
import asyncio, ctypes, os, resource, sys
from dumpstream import RingOptions, RingSource, _native, open_capture

async def main(url, mib):
    data = os.urandom(1 << 20)
    buffer = ctypes.create_string_buffer(data, len(data))
    def push_all():
        for number in range(1, mib + 1):
            _native.push(b"large", ctypes.addressof(buffer), len(data), number == mib, -1, 0)
    source = RingSource(RingOptions(buffer_bytes=32 << 20))
    async with open_capture(url, source=source) as capture:
        await asyncio.to_thread(push_all)
    assert capture.report.whole
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def peak_of_capturing(url: str, mib: int) -> int:
    done = await anyio.run_process([sys.executable, "-c", _CAPTURE, url, str(mib)], stderr=None)
    return int(done.stdout)


async def test_memory_does_not_grow_with_the_file(bucket: Bucket) -> None:
    small = await peak_of_capturing(f"{bucket.url}/small", 128)

    large = await peak_of_capturing(f"{bucket.url}/large", 640)

    # The smaller file is larger than all that may wait; of the larger, nothing more may.
    assert large - small < 64 * _MIB
