"""Compressors: what each codec makes of blocks of files. Run on worker threads."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, cast

from typing_extensions import Buffer
from zstandard import ZstdCompressor, ZstdError, backend_features

from dumpstream._native import encoded_bound
from dumpstream.codec import Codec
from dumpstream.codec.blocks import BlockEncoder, encode_whole
from dumpstream.sinks._frames import NO_BYTES

# Only zstandard's C implementation can compress many blocks in one call.
_MANY_AT_ONCE = "multi_compress_to_buffer" in backend_features
# Room for what a thread compresses at once, unless that is unusually much.
_ROOM_BYTES = 4 << 20


class Compressible(Protocol):
    """Bytes of a file that any thread may compress."""

    data: memoryview
    position: int  #: in the file
    work: int  #: what it costs, as the number of bytes that are compressed in the same time

    def layout(self) -> bytes:
        """Return where the tensors of the file are, as `layout_of` does."""

    def take(self, frame: memoryview) -> None:
        """Receive *frame*, the compressed form of `data`, which is valid until the same thread goes on."""

    def fail(self, exc: MemoryError | ZstdError) -> None:
        """Receive the error that kept `data` from being compressed."""


class Compressor(Protocol):
    """Compresses for one thread at a time."""

    def compress(self, jobs: Iterable[Compressible]) -> None:
        """Compress *jobs*, except those without bytes."""


class CompressorPool:
    """Lends compressors to threads, which may be those of several sinks: each takes a few MiB."""

    def __init__(self) -> None:
        self._free: dict[tuple[Codec, int, bool], list[Compressor]] = {}

    @contextmanager
    def lent(self, codec: Codec, level: int, *, packed: bool) -> Iterator[Compressor]:
        """Lend a compressor while the block runs; see `make_compressor`."""
        only_packed = packed and codec is Codec.NONE  # others are the same for files and packs
        free = self._free.setdefault((codec, level, only_packed), [])
        try:
            compressor = free.pop()
        except IndexError:
            compressor = make_compressor(codec, level, packed=packed)
        yield compressor
        free.append(compressor)


def make_compressor(codec: Codec, level: int, *, packed: bool) -> Compressor:
    """Return one for files, or for those in packs, which are always compressed files or blocks."""
    if codec is Codec.ZSTD:
        return _FrameCompressor(level)
    return _NoCompressor() if codec is Codec.NONE and not packed else _BlockCompressor(codec, level)


def empty_file(codec: Codec, *, packed: bool = False) -> memoryview:
    """Return what a file without bytes becomes."""
    if codec is Codec.ZSTD:
        return _EMPTY_FRAME
    return NO_BYTES if codec is Codec.NONE and not packed else _EMPTY_BLOCK


_EMPTY_FRAME = memoryview(ZstdCompressor(write_checksum=True).compress(b""))
_EMPTY_BLOCK = memoryview(encode_whole(Codec.NONE, b""))


class _FrameCompressor:
    """Makes zstd frames."""

    def __init__(self, level: int) -> None:
        self._compressor = ZstdCompressor(level=level, write_checksum=True, write_content_size=True)

    def compress(self, jobs: Iterable[Compressible]) -> None:
        jobs = [job for job in jobs if job.data]
        try:
            frames = self._frames([job.data for job in jobs])
        except (MemoryError, ZstdError) as exc:
            for job in jobs:
                job.fail(exc)
        else:
            for job, frame in zip(jobs, frames, strict=True):
                job.take(memoryview(frame))

    def _frames(self, blocks: list[bytes | bytearray | memoryview]) -> Collection[Buffer]:
        if len(blocks) > 1 and _MANY_AT_ONCE:
            # One call, so that the thread takes the interpreter's lock once and not for each block.
            return cast("Collection[Buffer]", self._compressor.multi_compress_to_buffer(blocks))
        return [self._compressor.compress(block) for block in blocks]


class _BlockCompressor:
    """Makes blocks, in memory that it uses again and again: fresh memory costs more than encoding."""

    def __init__(self, codec: Codec, level: int) -> None:
        self._encoder = BlockEncoder(codec, level)
        self._room = memoryview(bytearray(encoded_bound(_ROOM_BYTES)))

    def compress(self, jobs: Iterable[Compressible]) -> None:
        room = self._room
        for job in jobs:
            if not job.data:
                continue
            try:
                if len(room) < (bound := encoded_bound(len(job.data))):
                    room = memoryview(bytearray(bound))
                length = self._encoder.encode(job.data, job.position, job.layout(), room)
            except (MemoryError, ZstdError) as exc:
                job.fail(exc)
            else:
                job.take(room[:length])
                room = room[length:]


class _NoCompressor:
    """Leaves everything as it is."""

    def compress(self, jobs: Iterable[Compressible]) -> None:
        for job in jobs:
            if job.data:
                job.take(job.data)
