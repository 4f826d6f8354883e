"""How fast captures go into an S3 server, and in how much memory.

1 GiB of simulated tensors in files of 64 MiB, and 20,000 files of 16 KiB, go through the callback, the
pipeline and the object store sink into seaweedfs on this machine, beside obstore called directly: with as
many requests on their way at once, in parts of the same size and with the same checksums, compressing the
same pieces with zstandard in as many threads. The small files go once more in packs, beside one request for
each file, by obstore and by dumpstream itself. The clock runs until the store has everything; the server uses
a share of the processors. Each way begins with the same memory in use (the tensors in both forms, and a ring
or as much), and they take turns at going first: the host may have to supply the free memory of a virtual
machine, and memory that one run gives back makes the server's writes in the next run faster by a tenth of the
whole. Memory is the peak of the resident memory beyond what it was before, without the ring.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import obstore
from anyio.to_thread import run_sync
from zstandard import ZstdCompressor

from dumpstream import RingOptions, RingSource, Verdict, open_capture
from dumpstream.objectstore.store import PART_BYTES, PARTS_IN_FLIGHT
from dumpstream.remote.uploader import IN_FLIGHT
from figures import Arguments, Detail, Figure, Floor, parse_arguments, report
from producer import Chunks, produce, ring_callback
from resident import peak, reset_peak
from s3server import BUCKET, running_server
from simulated import HEADER_BYTES, simulated_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from obstore.store import S3Store

_MIB = 1 << 20
_LARGE_BYTES, _SMALL_BYTES = 64 * _MIB, 16 << 10
_DISTINCT = 1000
_PIECE_BYTES = 2 * _MIB  #: the bytes of a frame of the sink
_LARGE_AT_ONCE = 4
_WORKERS = 2
_RING = RingOptions(buffer_bytes=256 * _MIB)
_LARGE_ROUNDS, _SMALL_ROUNDS = 5, 3


class Round(NamedTuple):
    """One run."""

    seconds: float
    peak_bytes: int


async def _capture(chunks: Chunks, files: int, prefix: str, *, pack: bool = False) -> Round:
    source = RingSource(_RING)
    with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as directory:
        sinks = [f"s3://{BUCKET}/{prefix}"]
        before = reset_peak()
        async with open_capture(
            Path(directory, "run"), source=source, sinks=sinks, workers=_WORKERS, pack=pack
        ) as capture:
            start = perf_counter()
            await run_sync(produce, ring_callback(), chunks, files)
        seconds = perf_counter() - start
    if capture.report.verdicts != {Verdict.COMPLETE: files}:
        raise RuntimeError(f"{files} files were sent, but the verdicts are {capture.report.verdicts}")
    return Round(seconds, peak() - before - _RING.buffer_bytes)


@contextmanager
def _held_memory(size: int) -> Iterator[None]:
    """Hold *size* bytes of touched memory."""
    with mmap.mmap(-1, size) as memory:
        memory.write(bytes(size))
        yield


async def _direct(payloads: Sequence[bytes], files: int, prefix: str, client: S3Store) -> Round:
    """Do the same with obstore alone."""
    large = len(payloads[0]) > PART_BYTES
    names = iter(range(files))
    loop = asyncio.get_running_loop()
    with _held_memory(_RING.buffer_bytes), ThreadPoolExecutor(_WORKERS) as pool:
        before = reset_peak()

        def compress(piece: memoryview) -> bytes:
            return ZstdCompressor(level=1, write_checksum=True).compress(piece)

        async def frames(view: memoryview) -> AsyncIterator[bytes]:
            pieces = [view[at : at + _PIECE_BYTES] for at in range(0, len(view), _PIECE_BYTES)]
            ahead = [loop.run_in_executor(pool, compress, piece) for piece in pieces[:_WORKERS]]
            for piece in [*pieces[_WORKERS:], None]:
                yield await ahead.pop(0)
                if piece is not None:
                    ahead.append(loop.run_in_executor(pool, compress, piece))
            for frame in ahead:
                yield await frame

        async def work() -> None:
            for number in names:
                view, key = memoryview(payloads[number % len(payloads)]), f"{prefix}/{number}.zst"
                if large:
                    await obstore.put_async(
                        client, key, frames(view), chunk_size=PART_BYTES, max_concurrency=PARTS_IN_FLIGHT
                    )
                else:
                    frame = await loop.run_in_executor(pool, compress, view)
                    await obstore.put_async(client, key, frame, use_multipart=False)

        start = perf_counter()
        await asyncio.gather(*[work() for _ in range(_LARGE_AT_ONCE if large else IN_FLIGHT)])
        return Round(perf_counter() - start, peak() - before)


async def _take_turns(
    ways: dict[str, Callable[[str], Awaitable[Round]]], rounds: int
) -> dict[str, list[Round]]:
    found: dict[str, list[Round]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in list(ways) if number % 2 == 0 else reversed(ways):
            found[way].append(await ways[way](f"{way.replace(' ', '-')}-{number}-{len(ways)}"))
    return found


async def _run(arguments: Arguments) -> None:
    large = simulated_files(2 if arguments.quick else 16, _LARGE_BYTES - HEADER_BYTES)
    small = simulated_files(_DISTINCT, _SMALL_BYTES - HEADER_BYTES)
    files = 500 if arguments.quick else 20_000
    large_chunks, small_chunks = Chunks(large), Chunks(small)
    with running_server(Path(tempfile.mkdtemp(prefix="dumpstream-s3-"))) as server:
        os.environ.update(server.environment)
        client = server.client({"checksum_algorithm": "sha256"})  # as dumpstream's
        of_large = await _take_turns(
            {
                "dumpstream": lambda prefix: _capture(large_chunks, len(large), prefix),
                "obstore": lambda prefix: _direct(large, len(large), prefix, client),
            },
            1 if arguments.quick else _LARGE_ROUNDS,
        )
        of_small = await _take_turns(
            {
                "dumpstream": lambda prefix: _capture(small_chunks, files, prefix),
                "with packs": lambda prefix: _capture(small_chunks, files, prefix, pack=True),
                "obstore": lambda prefix: _direct(small, files, prefix, client),
            },
            1 if arguments.quick else _SMALL_ROUNDS,
        )
    _report(arguments, of_large, of_small, sum(map(len, large)), files)


def _report(
    arguments: Arguments,
    of_large: dict[str, list[Round]],
    of_small: dict[str, list[Round]],
    large_bytes: int,
    files: int,
) -> None:
    def rate(rounds: Sequence[Round], amount: float) -> float:
        return median(amount / it.seconds for it in rounds)

    single, direct = rate(of_small["dumpstream"], files), rate(of_small["obstore"], files)
    in_packs = rate(of_small["with packs"], files)
    figures = [
        Figure(
            name=f"{large_bytes / _MIB:,.0f} MiB in files of 64 MiB",
            unit="MB/s",
            ours=rate(of_large["dumpstream"], large_bytes / 1e6),
            baseline=rate(of_large["obstore"], large_bytes / 1e6),
            beside="obstore alone",
            floor=Floor("ratio", ">=", 0.9),
        ),
        Figure(
            name=f"{files:,} files of 16 KiB",
            unit="files/s",
            ours=single,
            baseline=direct,
            beside="obstore alone",
        ),
        Figure(
            name=f"{files:,} files of 16 KiB in packs",
            unit="files/s",
            ours=in_packs,
            baseline=direct,
            beside="obstore, a request each",
            floor=Floor("ratio", ">=", 5.0),
        ),
        Figure(
            name="the same",
            unit="files/s",
            ours=in_packs,
            baseline=single,
            beside="dumpstream, a request each",
        ),
        Figure(
            name="memory, large files",
            unit="MiB",
            ours=max(it.peak_bytes for it in of_large["dumpstream"]) / _MIB,
            baseline=max(it.peak_bytes for it in of_large["obstore"]) / _MIB,
            beside="obstore alone",
            floor=Floor("ours", "<=", 400.0),
        ),
        Figure(
            name="memory, small files in packs",
            unit="MiB",
            ours=max(it.peak_bytes for it in of_small["with packs"]) / _MIB,
            baseline=max(it.peak_bytes for it in of_small["obstore"]) / _MIB,
            beside="obstore alone",
            floor=Floor("ours", "<=", 400.0),
        ),
    ]
    rows = [
        (kind, way, it.seconds, it.peak_bytes / _MIB)
        for kind, found in (("large", of_large), ("small", of_small))
        for way, rounds in found.items()
        for it in rounds
    ]
    report(arguments, figures, Detail("Rounds", ("files", "way", "seconds", "peak MiB"), rows))


if __name__ == "__main__":
    asyncio.run(_run(parse_arguments(__doc__)))
