"""What a large file costs a capture in memory."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.conftest import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1 << 20

# Captures one file of so many MiB, pushed as fast as the ring takes it; prints the peak of its memory.
_CAPTURE = """
import asyncio, ctypes, os, resource, sys
from dumpstream import RingOptions, RingSource, _native, open_capture

async def main(out, mib):
    data = os.urandom(1 << 20)
    buffer = ctypes.create_string_buffer(data, len(data))
    def push_all():
        for number in range(1, mib + 1):
            _native.push(b"large", ctypes.addressof(buffer), len(data), number == mib, -1, 0)
    source = RingSource(RingOptions(buffer_bytes=16 << 20))
    async with open_capture(out, source=source) as capture:
        await asyncio.to_thread(push_all)
    assert capture.report.whole
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def peak_of_capturing(out: Path, mib: int) -> int:
    command = [sys.executable, "-c", _CAPTURE, str(out), str(mib)]
    return int(subprocess.check_output(command, timeout=LIMIT_S))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    small = peak_of_capturing(tmp_path / "small", 64)

    large = peak_of_capturing(tmp_path / "large", 256)

    # The smaller file is larger than all that may wait; of the larger, nothing more may.
    assert large - small < 48 * _MIB
