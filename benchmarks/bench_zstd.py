"""How fast the zstd sink stores what the callback brings.

1 GiB of simulated tensors, made before the clock starts, goes through the callback, the pipeline and the zstd
sink, beside ``zstd -1 -T2`` on the same bytes in files that are in the page cache; and 20,000 files of 16 KiB
beside a bare Python loop that compresses, writes and renames each. The clock runs until every file has its
final name and, in a capture, its line in the journal. All write to one file system (that of TMPDIR), take
turns, and remove their files while no clock runs. Rates are medians of all rounds and count bytes before
compression.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from zstandard import ZstdCompressor

from dumpstream import RingOptions
from figures import Arguments, Figure, Floor, parse_arguments, report, spread
from producer import Chunks
from simulated import HEADER_BYTES, scratch, simulated_files
from timing import time_capture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_MIB = 1 << 20
_NAME = "/dump/20261116120000/0//transformer_0/1/0/MatMulV2.layer_0_MatMulV2."
_LARGE = ((120 * _MIB, 4), (64 * _MIB, 5), (16 * _MIB, 12), (_MIB, 32))  #: bytes of a tensor, files
_LARGE_QUICK = ((4 * _MIB, 4), (_MIB, 4))
_SMALL_BYTES = 16 << 10
_DISTINCT = 1000  #: different small files
_ROUNDS = 5


class Rates(NamedTuple):
    """What was stored, and the MB/s of every round."""

    files: int
    mebibytes: float
    ours: list[float]
    baseline: list[float]


def _run_zstd(inputs: Sequence[Path], directory: Path) -> None:
    """Compress *inputs* into *directory* with the command."""
    command = ["zstd", "-1", "-T2", "--quiet", "--output-dir-flat", str(directory), *map(str, inputs)]
    subprocess.run(command, check=True)


def _run_loop(payloads: Sequence[bytes], files: int, directory: Path) -> None:
    """Store *files* files into *directory* one by one."""
    compressor = ZstdCompressor(level=1, write_checksum=True)
    for number in range(files):
        temporary, final = f"{directory}/.{number:08}", f"{directory}/{number:08}.zst"
        with open(temporary, "wb") as file:  # noqa: PTH123 - pathlib would slow the baseline down
            file.write(compressor.compress(payloads[number % len(payloads)]))
        os.rename(temporary, final)  # noqa: PTH104 - likewise


async def _measure(
    payloads: Sequence[bytes], files: int, baseline: Callable[[Path], None], rounds: int
) -> Rates:
    """Let the capture and *baseline* take turns with the same bytes."""
    chunks = Chunks(payloads, prefix=_NAME)
    size = sum(len(payloads[number % len(payloads)]) for number in range(files))
    rates = Rates(files, size / _MIB, [], [])
    for _ in range(rounds):
        with scratch() as directory:
            # As many workers as the command has threads.
            seconds = await time_capture(
                directory / "capture", chunks, files, sink="zstd:", ring=RingOptions(), workers=2
            )
            rates.ours.append(size / seconds / 1e6)
        with scratch() as directory:
            start = perf_counter()
            baseline(directory)
            rates.baseline.append(size / (perf_counter() - start) / 1e6)
    return rates


async def _measure_large(arguments: Arguments, rounds: int) -> Rates:
    sizes = _LARGE_QUICK if arguments.quick else _LARGE
    payloads = [data for size, count in sizes for data in simulated_files(count, size - HEADER_BYTES)]
    with scratch() as directory:
        inputs = [directory / f"{number:08}" for number in range(len(payloads))]
        for path, data in zip(inputs, payloads, strict=True):
            path.write_bytes(data)
        return await _measure(payloads, len(payloads), lambda output: _run_zstd(inputs, output), rounds)


async def _measure_small(arguments: Arguments, rounds: int) -> Rates:
    files = 1000 if arguments.quick else 20_000
    payloads = simulated_files(_DISTINCT, _SMALL_BYTES - HEADER_BYTES)
    return await _measure(payloads, files, lambda output: _run_loop(payloads, files, output), rounds)


def _figure(name: str, beside: str, rates: Rates, floor: float) -> Figure:
    return Figure(
        name=name,
        unit="MB/s",
        ours=median(rates.ours),
        baseline=median(rates.baseline),
        beside=beside,
        floor=Floor("ratio", ">=", floor),
    )


async def _run(arguments: Arguments) -> None:
    rounds = 1 if arguments.quick else _ROUNDS
    large = await _measure_large(arguments, rounds)
    small = await _measure_small(arguments, rounds)
    figures = [
        _figure(f"{large.mebibytes:,.0f} MiB of tensors", "zstd -1 -T2", large, 0.9),
        _figure(f"{small.files:,} files of 16 KiB", "Python loop", small, 1.0),
    ]
    report(arguments, figures, spread("MB/s of the rounds", figures, (large, small)))


if __name__ == "__main__":
    asyncio.run(_run(parse_arguments(__doc__)))
