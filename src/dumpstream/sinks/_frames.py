"""Frames: pieces of a file in, zstd frames out. Runs on worker threads."""

from collections.abc import Collection, Iterable
from typing import Protocol, TypeAlias, cast

from typing_extensions import Buffer
from zstandard import ZstdCompressor, ZstdError, backend_features

Block: TypeAlias = list[memoryview]

#: Smaller pieces share a frame: smaller frames cost both ratio and speed.
SMALL_BYTES = 256 << 10
# Larger pieces are cut into frames of at most this: four windows of level 1, and still in the cache.
_FRAME_BYTES = 2 << 20

# Only zstandard's C implementation can compress many blocks in one call.
_MANY_AT_ONCE = "multi_compress_to_buffer" in backend_features

NO_BYTES = memoryview(b"")
#: The compressed form of no bytes.
EMPTY_FRAME = memoryview(ZstdCompressor(write_checksum=True).compress(b""))


def view_bytes(data: Buffer) -> memoryview:
    """Return *data* as one row of bytes."""
    view = memoryview(data)
    return view.cast("B") if view.nbytes else NO_BYTES


def cut(pieces: Iterable[memoryview]) -> list[Block]:
    """Arrange *pieces* into blocks, each of which becomes a frame."""
    blocks: list[Block] = []
    room = 0  # in the last block, for more small pieces
    for piece in pieces:
        size = len(piece)
        if size >= SMALL_BYTES:
            step = -(-size // -(-size // _FRAME_BYTES))
            blocks += [[piece[start : start + step]] for start in range(0, size, step)]
            room = 0
        elif size:
            if room <= 0:
                blocks.append([])
                room = SMALL_BYTES
            blocks[-1].append(piece)
            room -= size
    return blocks


class Compressible(Protocol):
    """Bytes that any thread may compress."""

    data: memoryview
    work: int  #: what it costs, as the number of bytes that are compressed in the same time

    def take(self, frame: memoryview) -> None:
        """Receive *frame*, the compressed form of `data`."""

    def fail(self, exc: MemoryError | ZstdError) -> None:
        """Receive the error that kept `data` from being compressed."""


def compress(jobs: Iterable[Compressible], compressor: ZstdCompressor) -> None:
    """Compress *jobs*, except those without bytes."""
    jobs = [job for job in jobs if job.data]
    try:
        frames = _frames([job.data for job in jobs], compressor)
    except (MemoryError, ZstdError) as exc:
        for job in jobs:
            job.fail(exc)
    else:
        for job, frame in zip(jobs, frames, strict=True):
            job.take(memoryview(frame))


def _frames(blocks: list[bytes | bytearray | memoryview], compressor: ZstdCompressor) -> Collection[Buffer]:
    if len(blocks) > 1 and _MANY_AT_ONCE:
        # One call, so that the thread takes the interpreter's lock once and not for each block.
        return cast("Collection[Buffer]", compressor.multi_compress_to_buffer(blocks))
    return [compressor.compress(block) for block in blocks]
