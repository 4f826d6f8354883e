"""What the statistics sink costs on the full pipeline, beside the null sink.

A native thread calls dumpstream's callback as fast as it can; the clock runs from the first call until every
file has its verdict and its line in the journal. The sinks take turns with the same files. The cost is how
much longer the statistics sink takes, in percent; the last part file is written when the clock has stopped.
The cost of alerts is how much more CPU time the same capture takes if it also looks for bad values; other
processes disturb that less than the clock.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import fmean, median
from time import process_time
from typing import NamedTuple

from dumpstream import RingOptions
from figures import Arguments, Detail, Figure, Floor, parse_arguments, report
from producer import Chunks, cut
from simulated import simulated_files
from timing import time_capture

_MIB = 1 << 20
_RING = RingOptions(buffer_bytes=256 * _MIB)
_WAYS = {"stats:": ("stats:", False), "alerts": ("stats:", True), "null:": ("null:", False)}
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


class Round(NamedTuple):
    """One capture."""

    rate: float
    cpu_seconds: float


async def _measure(case: Case, *, quick: bool) -> dict[str, list[Round]]:
    """Return all rounds, by what was captured."""
    files = max(case.files // (20 if quick else 1), 2)
    rounds: dict[str, list[Round]] = {way: [] for way in _WAYS}
    for number in range(1 if quick else _ROUNDS):
        # In turns, so that none always comes first.
        for way, (sink, alert) in [*_WAYS.items()][:: -1 if number % 2 else 1]:
            with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as directory:
                begun = process_time()
                seconds = await time_capture(
                    Path(directory) / "capture", case.chunks, files, sink=sink, ring=_RING, alert=alert
                )
                cpu_seconds = process_time() - begun
            rounds[way].append(Round(files * case.units_per_file / seconds, cpu_seconds))
    return rounds


async def _run(arguments: Arguments) -> None:
    figures, costs = [], []
    ratios: list[float] = []
    await _measure(_cases()[-1], quick=True)  # the first row loads pyarrow
    for case in _cases():
        rounds = await _measure(case, quick=arguments.quick)
        ours, null = (median(it.rate for it in rounds[way]) for way in ("stats:", "null:"))
        figures.append(Figure(name=case.label, unit=case.unit, ours=ours, baseline=null, beside="null sink"))
        # The least of several rounds is what the work takes if nothing disturbs it.
        least = {way: min(it.cpu_seconds for it in rounds[way]) for way in _WAYS}
        ratios.append(least["alerts"] / least["stats:"])
        costs.append((case.label, f"{(null / ours - 1) * 100:.0f} %", f"{(ratios[-1] - 1) * 100:+.1f} %"))
    figures.append(
        Figure(
            name="alerts beside the statistics sink, all cases",
            unit="of its CPU time",
            ours=fmean(ratios),
            baseline=1.0,
            beside="without alerts",
            floor=None if arguments.quick else Floor("ours", "<=", 1.01),
        )
    )
    detail = Detail("cost of the statistics sink, and of alerts beside it", ("case", "sink", "alerts"), costs)
    report(arguments, figures, detail)


if __name__ == "__main__":
    asyncio.run(_run(parse_arguments(__doc__)))
