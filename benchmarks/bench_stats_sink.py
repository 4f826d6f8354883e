"""What the statistics sink costs on the full pipeline, beside the null sink.

A native thread calls dumpstream's callback as fast as it can; the clock runs from the first call until every
file has its verdict and its line in the journal. Both sinks take turns with the same files. The cost is how
much longer the statistics sink takes, in percent; the last part file is written when the clock has stopped.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from dumpstream import RingOptions
from figures import Arguments, Detail, Figure, parse_arguments, report
from producer import Chunks, cut
from simulated import simulated_files
from timing import time_capture

_MIB = 1 << 20
_RING = RingOptions(buffer_bytes=256 * _MIB)
_SINKS = ("stats:", "null:")
_ROUNDS = 5
#: As CANN writes them; the number of the file is the end of the time.
_PREFIX = "/dump/20260530164725/0/resnet50/1/7/Conv2D.layer3_block5_conv2.12.65535.17801596"


class Case(NamedTuple):
    """Files of one kind, and how many make a round."""

    label: str
    unit: str
    units_per_file: float
    chunks: Chunks
    files: int


def _cases() -> list[Case]:
    cases = []
    for dtype in ("float32", "float16", "bfloat16"):
        chunks = Chunks(
            cut(simulated_files(1, 64 * _MIB - 1024, dtype)[0], _MIB), per_file=64, prefix=_PREFIX
        )
        label = f"64 MiB of {dtype}, 1 MiB chunks"
        cases.append(Case(label, "MB/s", sum(chunks.lengths) / 1e6, chunks, files=32))
    for size, files in ((65536, 10_000), (16384, 20_000), (1024, 40_000)):
        for dtype in ("float32", "float16", "bfloat16", "int32") if size < 65536 else ("float32",):
            chunks = Chunks([simulated_files(1, size, dtype)[0]], prefix=_PREFIX)
            label = f"one tensor of {size // 1024} KiB per file, {dtype}"
            cases.append(Case(label, "files/s", 1, chunks, files))
    return cases


async def _measure(case: Case, *, quick: bool) -> dict[str, list[float]]:
    """Return the rates of all rounds, by sink."""
    files = max(case.files // (20 if quick else 1), 2)
    rates: dict[str, list[float]] = {sink: [] for sink in _SINKS}
    for _ in range(1 if quick else _ROUNDS):
        for sink in _SINKS:
            with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as directory:
                seconds = await time_capture(
                    Path(directory) / "capture", case.chunks, files, sink=sink, ring=_RING
                )
            rates[sink].append(files * case.units_per_file / seconds)
    return rates


async def _run(arguments: Arguments) -> None:
    figures, costs = [], []
    await _measure(_cases()[-1], quick=True)  # the first row loads pyarrow
    for case in _cases():
        rates = await _measure(case, quick=arguments.quick)
        ours, null = (median(rates[sink]) for sink in _SINKS)
        figures.append(Figure(name=case.label, unit=case.unit, ours=ours, baseline=null, beside="null sink"))
        costs.append((case.label, f"{(null / ours - 1) * 100:.0f} %"))
    report(arguments, figures, Detail("cost of the statistics sink", ("case", "cost"), costs))


if __name__ == "__main__":
    asyncio.run(_run(parse_arguments(__doc__)))
