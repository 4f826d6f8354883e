"""How fast the zstd sink stores what the callback brings.

1 GiB of simulated tensors, made before the clock starts, goes through the callback, the pipeline and the
zstd sink, with the codecs auto and zstd, beside ``zstd -1 -T2`` on the same bytes in files that are in the
page cache, and beside ``dd``, which writes as many bytes and compresses none; and 20,000 files of 16 KiB,
and 40,000 of a tiny tensor, beside a bare Python loop that compresses, writes and renames each. The clock
runs until every file has its final name and, in a capture, its line in the journal. All write to one file
system (that of TMPDIR), take turns, and remove their files while no clock runs. Rates are medians of all
rounds and count bytes before compression.
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
_TINY_BYTES = 64  #: of a tensor
_DISTINCT = 1000  #: different small files
_ROUNDS = 3
_TINY_ROUNDS = 2  #: the loop takes long
_FASTEST = 1200  #: MB/s that a capture must reach, unless the disk is slower
_OF_DISK = 0.8  #: of the rate of dd


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


def _run_dd(inputs: Sequence[Path], directory: Path) -> None:
    """Write as many bytes as *inputs* have into one file of *directory*."""
    size = sum(path.stat().st_size for path in inputs)
    command = ["dd", "if=/dev/zero", f"of={directory}/zeros", "bs=1M", f"count={size >> 20}", "status=none"]
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
    payloads: Sequence[bytes], files: int, baseline: Callable[[Path], None], rounds: int, codec: str = "auto"
) -> Rates:
    """Let the capture and *baseline* take turns with the same bytes."""
    chunks = Chunks(payloads, prefix=_NAME)
    size = sum(len(payloads[number % len(payloads)]) for number in range(files))
    rates = Rates(files, size / _MIB, [], [])
    for _ in range(rounds):
        with scratch() as directory:
            # As many workers as the command has threads.
            seconds = await time_capture(
                directory / "capture",
                chunks,
                files,
                sink="zstd:",
                ring=RingOptions(),
                workers=2,
                codec=codec,
            )
            rates.ours.append(size / seconds / 1e6)
        with scratch() as directory:
            start = perf_counter()
            baseline(directory)
            rates.baseline.append(size / (perf_counter() - start) / 1e6)
    return rates


async def _measure_large(arguments: Arguments, rounds: int) -> tuple[Rates, Rates, Rates]:
    """Return the rates of the codec auto beside zstd and beside dd, and of the codec zstd beside zstd."""
    sizes = _LARGE_QUICK if arguments.quick else _LARGE
    payloads = [data for size, count in sizes for data in simulated_files(count, size - HEADER_BYTES)]
    with scratch() as directory:
        inputs = [directory / f"{number:08}" for number in range(len(payloads))]
        for path, data in zip(inputs, payloads, strict=True):
            path.write_bytes(data)
        count = len(payloads)
        return (
            await _measure(payloads, count, lambda output: _run_zstd(inputs, output), rounds),
            await _measure(payloads, count, lambda output: _run_dd(inputs, output), rounds),
            await _measure(payloads, count, lambda output: _run_zstd(inputs, output), rounds, codec="zstd"),
        )


async def _measure_small(arguments: Arguments, rounds: int) -> Rates:
    files = 1000 if arguments.quick else 20_000
    payloads = simulated_files(_DISTINCT, _SMALL_BYTES - HEADER_BYTES)
    return await _measure(payloads, files, lambda output: _run_loop(payloads, files, output), rounds)


async def _measure_tiny(arguments: Arguments, rounds: int) -> Rates:
    files = 1000 if arguments.quick else 40_000
    payloads = simulated_files(_DISTINCT, _TINY_BYTES)
    return await _measure(payloads, files, lambda output: _run_loop(payloads, files, output), rounds)


def _tiny_figure(rates: Rates) -> Figure:
    per_file = rates.mebibytes * _MIB / rates.files / 1e6  # in MB, as the rates are in MB/s
    return Figure(
        name=f"{rates.files:,} files of a tiny tensor",
        unit="files/s",
        ours=median(rates.ours) / per_file,
        baseline=median(rates.baseline) / per_file,
        beside="Python loop",
        floor=Floor("ours", ">=", 15_000),
    )


def _figure(name: str, beside: str, rates: Rates, floor: float | Floor) -> Figure:
    return Figure(
        name=name,
        unit="MB/s",
        ours=median(rates.ours),
        baseline=median(rates.baseline),
        beside=beside,
        floor=floor if isinstance(floor, Floor) else Floor("ratio", ">=", floor),
    )


async def _run(arguments: Arguments) -> None:
    rounds = 1 if arguments.quick else _ROUNDS
    large, written, frames = await _measure_large(arguments, rounds)
    small = await _measure_small(arguments, rounds)
    tiny = await _measure_tiny(arguments, min(rounds, _TINY_ROUNDS))
    slow_disk = _OF_DISK * median(written.baseline) < _FASTEST
    floor = Floor("ratio", ">=", _OF_DISK) if slow_disk else Floor("ours", ">=", _FASTEST)
    tensors = f"{large.mebibytes:,.0f} MiB of tensors"
    figures = [
        _figure(tensors, "zstd -1 -T2", large, 0.9),
        _figure(tensors, "dd", written, floor),
        _figure(f"{tensors}, codec zstd", "zstd -1 -T2", frames, 0.9),
        _figure(f"{small.files:,} files of 16 KiB", "Python loop", small, 1.0),
        _tiny_figure(tiny),
    ]
    report(arguments, figures, spread("MB/s of the rounds", figures, (large, written, frames, small, tiny)))


if __name__ == "__main__":
    asyncio.run(_run(parse_arguments(__doc__)))
