"""How much memory a capture takes when its sink is slow.

A native thread with no queue of its own calls the callback as fast as it can, 1 GiB in files of all kinds:
128 MiB in one chunk, 64 MiB in chunks of 1 MiB, and 64 KiB in one chunk. The sink takes 42 MB/s, the buffer
is 64 MiB, and everything else has its default. What counts is the peak of the resident memory, with the ring
and without what the process had before the capture. Beside it: a Python callback through ctypes that queues
bytes onto the loop, with the same consumer, measured until the producer has no more. Each runs in a process
of its own.
"""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.to_thread import run_sync

from dumpstream import RingOptions, RingSource, Stored, open_capture
from figures import Arguments, Detail, Figure, Floor, parse_arguments, report
from producer import Chunks, cut, produce, python_callback, ring_callback
from queued import QueuedCallback
from resident import peak, reset_peak
from simulated import HEADER_BYTES, simulated_files

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from typing_extensions import Buffer

    from dumpstream import WholeFile
    from producer import Target

_MIB = 1 << 20
_BUFFER_BYTES = 64 * _MIB
_MOST_BYTES = _BUFFER_BYTES + 64 * _MIB
_BYTES_PER_S = 42e6


class Production(NamedTuple):
    """Files of one kind."""

    chunks: Chunks
    files: int


class Growth(NamedTuple):
    """What one process measured."""

    peak_bytes: int  #: beyond what it had before
    seconds: float
    bytes: int  #: that reached the consumer
    lost_chunks: int


class HeldSink:
    """Takes files at a limited rate, and keeps nothing."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes = 0
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def open(self, name: str, *, offset: int = 0) -> HeldFile:  # noqa: ARG002 - nothing is kept
        return HeldFile(self)

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored]:
        await self.take([file.data for file in files])
        return [Stored()] * len(files)

    async def take(self, pieces: Sequence[Buffer]) -> None:
        """Wait as long as *pieces* take at the rate."""
        size = sum(memoryview(piece).nbytes for piece in pieces)
        self.bytes += size
        now = monotonic()
        self._free_at = max(self._free_at, now) + size / self._bytes_per_s
        await anyio.sleep(self._free_at - now)

    async def aclose(self) -> None:
        """Do nothing; there is nothing to release."""


class HeldFile:
    """A file of a `HeldSink`."""

    def __init__(self, sink: HeldSink) -> None:
        self._sink = sink

    async def write(self, pieces: Sequence[Buffer]) -> None:
        await self._sink.take(pieces)

    async def commit(self) -> Stored:
        return Stored()

    async def abort(self) -> None:
        """Do nothing; there is nothing to undo."""


def _productions(*, quick: bool) -> list[Production]:
    scale = 4 if quick else 1
    sizes = (128 * _MIB, 64 * _MIB, 64 << 10)
    huge, large, small = (simulated_files(1, size - HEADER_BYTES)[0] for size in sizes)
    return [
        Production(Chunks([huge], prefix="/dump/huge."), 4 // scale),
        Production(Chunks(cut(large, _MIB), per_file=64, prefix="/dump/large."), 4 // scale),
        Production(Chunks([small], prefix="/dump/small."), 4096 // scale),
    ]


async def _produce_all(target: Target, productions: Sequence[Production]) -> None:
    for chunks, files in productions:
        await run_sync(produce, target, chunks, files * chunks.per_file)


async def _capture(productions: Sequence[Production], sink: HeldSink) -> Growth:
    with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as directory:
        before, start = reset_peak(), monotonic()
        source = RingSource(RingOptions(buffer_bytes=_BUFFER_BYTES))
        async with open_capture(Path(directory) / "capture", source=source, sinks=[sink]) as capture:
            await _produce_all(ring_callback(), productions)
        lost = sum(loss.chunks for loss in capture.report.losses.values())
        return Growth(peak() - before, monotonic() - start, sink.bytes, lost)


async def _queue(productions: Sequence[Production], sink: HeldSink) -> Growth:
    async def consume() -> None:
        while True:
            chunk = await queued.queue.get()
            await sink.take([chunk.data])

    before, start = reset_peak(), monotonic()
    queued = QueuedCallback()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await _produce_all(python_callback(queued.function), productions)
        tasks.cancel_scope.cancel()
    return Growth(peak() - before, monotonic() - start, sink.bytes, 0)


def _run_in_process(
    measure: Callable[[Sequence[Production], HeldSink], Coroutine[None, None, Growth]],
    quick: bool,  # noqa: FBT001 - positional for submit
) -> Growth:
    productions = _productions(quick=quick)
    return asyncio.run(measure(productions, HeldSink(_BYTES_PER_S * (10 if quick else 1))))


def _run(arguments: Arguments) -> None:
    found = {}
    for kind, measure in (("dumpstream", _capture), ("ctypes", _queue)):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found[kind] = pool.submit(_run_in_process, measure, arguments.quick).result()
    ours, queued = found["dumpstream"], found["ctypes"]
    figures = [
        Figure(
            name="growth of the resident memory",
            unit="MiB",
            ours=ours.peak_bytes / _MIB,
            baseline=queued.peak_bytes / _MIB,
            beside="ctypes",
            floor=Floor("ours", "<=", _MOST_BYTES / _MIB),
        ),
        Figure(
            name="lost",
            unit="chunks",
            ours=ours.lost_chunks,
            baseline=queued.lost_chunks,
            beside="ctypes",
            floor=Floor("ours", "<=", 0),
        ),
    ]
    rows = [
        (kind, it.seconds, it.bytes / it.seconds / 1e6, it.bytes / _MIB, it.peak_bytes / _MIB)
        for kind, it in found.items()
    ]
    columns = ("kind", "seconds", "MB/s", "MiB through the sink", "MiB grown")
    report(arguments, figures, Detail("runs", columns, rows))


if __name__ == "__main__":
    _run(parse_arguments(__doc__))
