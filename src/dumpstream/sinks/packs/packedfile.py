"""Packed files: small files on their way into a pack. Compressed on worker threads."""

from xxhash import xxh3_64_hexdigest
from zstandard import ZstdError

from dumpstream._errors import SinkError
from dumpstream._native import crc32, layout_of
from dumpstream.codec import BLOCKS_SUFFIX, Codec
from dumpstream.names import clean_name
from dumpstream.sinks import Stored
from dumpstream.sinks._compressors import empty_file
from dumpstream.sinks._failure import sink_error
from dumpstream.sinks.packs.container import Pack

# What it costs to hash a file and keep its frame, as the number of bytes compressed in the same time.
_KEEPING_WORK = 4 << 10
_EMPTY_XXH3 = xxh3_64_hexdigest(b"")


class PackedFile:
    """A file for a pack, to be compressed by any thread."""

    __slots__ = ("_codec", "crc", "data", "frame", "name", "outcome", "position", "work", "xxh3")

    def __init__(self, name: str, data: memoryview, codec: Codec) -> None:
        self.name, self.data, self._codec = name, data, codec
        self.position = 0
        self.work = len(data) + _KEEPING_WORK
        self.frame = bytes(empty_file(codec, packed=True))
        self.crc = 0
        self.xxh3 = _EMPTY_XXH3
        self.outcome: Stored | SinkError | None = None  #: where it is, or why it is not stored

    def layout(self) -> bytes:
        """Return where its tensors are."""
        return layout_of(self.data)

    def take(self, frame: memoryview) -> None:
        """Keep *frame*."""
        # A copy, because the frame is a view of memory that it shares with the frames of other files.
        self.frame = bytes(frame)
        self.crc = crc32(self.data) if self._codec is Codec.ZSTD else 0
        self.xxh3 = xxh3_64_hexdigest(self.data)

    def fail(self, exc: MemoryError | ZstdError) -> None:
        """Let *exc* be the reason why it is not stored."""
        self.outcome = sink_error(f"store {self.name!r}", exc)

    def put_into(self, pack: Pack, path: str) -> Stored:
        """Add it to *pack*, which is at *path*."""
        name = "/".join(clean_name(self.name))
        if self._codec is Codec.ZSTD:  # ZIP has a method for it
            start = pack.add(name, self.frame, size=len(self.data), crc=self.crc)
        else:
            start = pack.store(f"{name}{BLOCKS_SUFFIX}", self.frame)
        return Stored(path, len(self.frame), self.xxh3, start)
