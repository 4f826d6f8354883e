"""How long the callback keeps the runtime's thread.

Nanoseconds per call, measured in C on a native thread and less the cost of the clock, of dumpstream's
callback beside (a) a bare memcpy of the same bytes through a touched buffer as large as the ring, (b) a
Python callback through ctypes that queues bytes onto the loop, and (c) open, append and close of a file in C.
The event loop drains the ring and releases every batch at once. With a busy GIL, a Python thread spins beside
it.

All four take turns, in rounds; the statistics are over the calls of all rounds. Gaps between the calls keep
the ring from filling up, which would measure its reader instead (bench_pipeline.py does), and let a spinning
thread take the GIL back before the next call. Ratios are of the medians, except where they are of p99; if
other work shares the machine, p99 shows the scheduler, also for memcpy.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio
import numpy as np
from anyio.to_thread import run_sync

from dumpstream import RingOptions, RingSource
from figures import Arguments, Detail, Figure, Floor, parse_arguments, report
from producer import Chunks, bare_copy, file_append, produce, python_callback, ring_callback
from queued import QueuedCallback

if TYPE_CHECKING:
    from collections.abc import Iterator

_KIB, _MIB = 1 << 10, 1 << 20
_RING_BYTES = 256 * _MIB
_OURS, _MEMCPY, _CTYPES, _FILE = "dumpstream", "memcpy", "ctypes", "file"
_GIL = _IDLE, _BUSY = "idle", "busy"
_IN_A_FILE = "1 MiB, ring in a file"


class Case(NamedTuple):
    """A size of chunk, and how many calls of each kind make a round."""

    label: str
    size: int
    gap_ns: int
    our_calls: int  #: as many as memcpy gets
    ctypes_calls: int
    file_calls: int
    rounds: int

    def calls(self, gil: str) -> dict[str, int]:
        """Return the calls of a round by kind."""
        # Each waits several milliseconds for a busy GIL, so a few are enough.
        ctypes_calls = min(self.ctypes_calls, 10) if gil == _BUSY else self.ctypes_calls
        return {
            _OURS: self.our_calls,
            _MEMCPY: self.our_calls,
            _CTYPES: ctypes_calls,
            _FILE: self.file_calls,
        }


_CASES = (
    # label, size, gap_ns, our_calls, ctypes_calls, file_calls, rounds
    Case("256 B", 256, 100_000, 2_000, 500, 500, 10),
    Case("64 KiB", 64 * _KIB, 100_000, 1_024, 200, 256, 8),
    Case("1 MiB", _MIB, 600_000, 256, 20, 16, 8),
    Case("16 MiB", 16 * _MIB, 8_000_000, 16, 4, 2, 12),
    Case("128 MiB", 128 * _MIB, 80_000_000, 2, 1, 1, 16),
)


class Sample(NamedTuple):
    """The statistics of all calls of one kind."""

    size: str
    gil: str
    kind: str
    calls: int
    mean: float
    p50: float
    p99: float
    max: float


async def _measure(case: Case, directory: Path, *, quick: bool) -> list[Sample]:
    """Let the four kinds take turns for one size, with an idle and a busy GIL."""
    chunks = Chunks([np.random.default_rng(0).bytes(case.size)])
    queued = QueuedCallback()
    path = directory / "chunks"
    targets = {
        _OURS: ring_callback(),
        _MEMCPY: bare_copy(_RING_BYTES),
        _CTYPES: python_callback(queued.function),
        _FILE: file_append(path),
    }
    times: dict[tuple[str, str], list[int]] = {(gil, kind): [] for gil in _GIL for kind in targets}
    async with (
        RingSource(RingOptions(buffer_bytes=_RING_BYTES)) as source,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_drain, source)
        for _ in range(1 if quick else case.rounds):
            for gil in _GIL:
                calls = case.calls(gil)
                with _spinning(wanted=gil == _BUSY):
                    for kind, target in targets.items():
                        call = partial(produce, gap_ns=case.gap_ns, timed=True)
                        times[gil, kind] += (await run_sync(call, target, chunks, calls[kind])).call_ns
                await queued.receive_files(calls[_CTYPES])
                path.unlink()
        await source.stop()
    return [_sample(case.label, gil, kind, found) for (gil, kind), found in times.items()]


async def _measure_ring_in_a_file(case: Case, directory: Path, *, quick: bool) -> list[Sample]:
    """Measure a ring in a file, which is not touched in advance: the first lap pays for that."""
    chunks = Chunks([np.random.default_rng(0).bytes(case.size)])
    targets = {_OURS: ring_callback(), _MEMCPY: bare_copy(_RING_BYTES)}
    times: dict[str, list[int]] = {kind: [] for kind in targets}
    options = RingOptions(buffer_bytes=_RING_BYTES, buffer_file=directory / "ring")
    async with RingSource(options) as source, anyio.create_task_group() as tasks:
        tasks.start_soon(_drain, source)
        for _ in range(1 if quick else case.rounds):
            for kind, target in targets.items():
                call = partial(produce, gap_ns=case.gap_ns, timed=True)
                times[kind] += (await run_sync(call, target, chunks, case.our_calls)).call_ns
        await source.stop()
    return [_sample(_IN_A_FILE, _IDLE, kind, found) for kind, found in times.items()]


async def _drain(source: RingSource) -> None:
    async for batch in source:
        batch.release()


@contextmanager
def _spinning(*, wanted: bool) -> Iterator[None]:
    """Keep the GIL busy with a Python thread, if *wanted*."""
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            sum(range(100))

    thread = threading.Thread(target=spin)
    if wanted:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if wanted:
            thread.join()


def _sample(size: str, gil: str, kind: str, times: list[int]) -> Sample:
    values = np.array(times)
    p50, p99 = np.percentile(values, [50, 99])
    return Sample(
        size, gil, kind, len(times), float(values.mean()), float(p50), float(p99), float(values.max())
    )


def _compare(samples: list[Sample]) -> list[Figure]:
    by_key = {(it.size, it.gil, it.kind): it for it in samples}
    figures = []
    for case in _CASES:
        for gil in _GIL:
            ours = by_key[case.label, gil, _OURS]
            name = f"{case.label}, {gil} GIL"
            memcpy = by_key[case.label, gil, _MEMCPY].p50
            at_most = Floor("ratio", "<=", 1.2) if case.size >= _MIB else None
            figures.append(_figure(name, ours.p50, memcpy, _MEMCPY, floor=at_most))
            slower = by_key[case.label, gil, _CTYPES].p50
            times = Floor("ratio", ">=", 500 if gil == _BUSY else 30) if case.size == 256 else None
            figures.append(
                _figure(f"{name}, faster by", ours.p50, slower, _CTYPES, inverse=True, floor=times)
            )
            file = by_key[case.label, gil, _FILE].p50
            figures.append(_figure(f"{name}, faster by", ours.p50, file, _FILE, inverse=True))
        idle, busy = by_key[case.label, _IDLE, _OURS], by_key[case.label, _BUSY, _OURS]
        figures.append(
            _figure(f"{case.label}, p99 busy GIL", busy.p99, idle.p99, "idle", floor=Floor("ratio", "<=", 2))
        )
    in_a_file, copied = (by_key[_IN_A_FILE, _IDLE, kind].p50 for kind in (_OURS, _MEMCPY))
    figures.append(_figure(_IN_A_FILE, in_a_file, copied, _MEMCPY))
    return figures


def _figure(
    name: str, ours: float, baseline: float, beside: str, *, inverse: bool = False, floor: Floor | None = None
) -> Figure:
    return Figure(
        name=name, unit="ns", ours=ours, baseline=baseline, beside=beside, inverse=inverse, floor=floor
    )


async def _run(arguments: Arguments) -> None:
    samples = []
    with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as directory:
        for case in _CASES:
            samples += await _measure(case, Path(directory), quick=arguments.quick)
        mebibyte = next(case for case in _CASES if case.size == _MIB)
        samples += await _measure_ring_in_a_file(mebibyte, Path(directory), quick=arguments.quick)
    report(arguments, _compare(samples), Detail("nanoseconds per call", Sample._fields, samples))


if __name__ == "__main__":
    asyncio.run(_run(parse_arguments(__doc__)))
