"""How much goes through the pipeline: ring, source, reassembler, null sink and journal.

A native thread calls dumpstream's callback as fast as it can; the clock runs from the first call until every
file has its verdict and its line in the journal. Beside it, in turns: the same chunks through a Python
callback (ctypes) that queues bytes onto the loop, where they are joined by name; and, for bandwidth, a bare
memcpy of them through a touched buffer as large as the ring. Rates are medians of all rounds.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.to_thread import run_sync

from dumpstream import RingOptions
from figures import Arguments, Detail, Figure, Floor, parse_arguments, report
from producer import Chunks, bare_copy, cut, produce, python_callback
from queued import QueuedCallback
from simulated import simulated_files
from timing import time_capture

if TYPE_CHECKING:
    from producer import Target

_MIB = 1 << 20
_RING_BYTES = 256 * _MIB
_OURS, _MEMCPY, _CTYPES = "dumpstream", "memcpy", "ctypes"
_ROUNDS = 7


class Case(NamedTuple):
    """Files of one kind, and how many make a round."""

    label: str
    unit: str
    units_per_file: float
    chunks: Chunks
    files: int
    ctypes_files: int
    beside: dict[str, Floor | None]  #: the baselines, and the floors beside them


def _cases() -> list[Case]:
    large = Chunks(cut(simulated_files(1, 64 * _MIB - 1024)[0], _MIB), per_file=64)
    medium = Chunks(cut(simulated_files(1, 64 * 256 - 256)[0], 256), per_file=64)
    small = Chunks([simulated_files(1, 256)[0]])
    return [
        Case(
            "1 MiB chunks, 64 MiB files",
            "MB/s",
            sum(large.lengths) / 1e6,
            large,
            files=64,
            ctypes_files=4,
            beside={_MEMCPY: Floor("ratio", ">=", 0.7), _CTYPES: None},
        ),
        Case(
            "256 B chunks, 64 to a file",
            "chunks/s",
            64,
            medium,
            files=10_000,
            ctypes_files=250,
            beside={_CTYPES: Floor("ours", ">=", 200_000)},
        ),
        Case(
            "one chunk per file",
            "files/s",
            1,
            small,
            files=200_000,
            ctypes_files=10_000,
            beside={_CTYPES: Floor("ours", ">=", 50_000)},
        ),
    ]


async def _capture(chunks: Chunks, files: int) -> float:
    """Return the seconds that a capture of *files* takes."""
    with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as directory:
        ring = RingOptions(buffer_bytes=_RING_BYTES)
        return await time_capture(Path(directory) / "capture", chunks, files, sink="null:", ring=ring)


async def _queue(chunks: Chunks, files: int) -> float:
    """Return the seconds that *files* take through the Python callback."""
    queued = QueuedCallback()
    start = perf_counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queued.receive_files, files)
        await run_sync(produce, python_callback(queued.function), chunks, files * chunks.per_file)
    return perf_counter() - start


async def _copy(target: Target, chunks: Chunks, files: int) -> float:
    """Return the seconds that copying *files* takes."""
    return (await run_sync(produce, target, chunks, files * chunks.per_file)).seconds


async def _measure(case: Case, target: Target, *, quick: bool) -> dict[str, list[float]]:
    """Return the rates of all rounds, by what was measured."""
    scale = 20 if quick else 1
    files, ctypes_files = max(case.files // scale, 2), max(case.ctypes_files // scale, 1)
    rates: dict[str, list[float]] = {kind: [] for kind in (_OURS, *case.beside)}
    for _ in range(1 if quick else _ROUNDS):
        rates[_OURS].append(files / await _capture(case.chunks, files))
        if _MEMCPY in case.beside:
            rates[_MEMCPY].append(files / await _copy(target, case.chunks, files))
        rates[_CTYPES].append(ctypes_files / await _queue(case.chunks, ctypes_files))
    return {kind: [rate * case.units_per_file for rate in values] for kind, values in rates.items()}


async def _run(arguments: Arguments) -> None:
    figures, rows = [], []
    target = bare_copy(_RING_BYTES)
    for case in _cases():
        rates = await _measure(case, target, quick=arguments.quick)
        figures += [
            Figure(
                name=case.label,
                unit=case.unit,
                ours=median(rates[_OURS]),
                baseline=median(rates[kind]),
                beside=kind,
                floor=floor,
            )
            for kind, floor in case.beside.items()
        ]
        rows += [
            (case.label, kind, case.unit, min(values), median(values), max(values))
            for kind, values in rates.items()
        ]
    columns = ("case", "kind", "unit", "slowest", "median", "fastest")
    report(arguments, figures, Detail("rates of the rounds", columns, rows))


if __name__ == "__main__":
    asyncio.run(_run(parse_arguments(__doc__)))
