"""Decoding: the original bytes of a stored file, whichever codec has stored it."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import IO, cast

import zstandard

from dumpstream.codec import RAW_SUFFIX
from dumpstream.codec.blocks import MAGIC, DecodingError, decode_file, decode_view

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_BYTES = 1 << 20
_FIRST_BLOCK_BYTES = 64 << 10  #: enough for a header, which is often all that a caller reads


def original_of_file(file: IO[bytes], path: str, size: int) -> Generator[memoryview, None, None]:
    """Yield the original bytes of *file*, which was stored at *path* and has about *size* of them.

    Each piece is valid until the next is asked for.

    Raises:
        DecodingError: it is damaged.
        OSError: it cannot be read.
    """
    if path.endswith(RAW_SUFFIX):
        return _plain(file, size)
    begin = file.read(len(MAGIC))
    if begin == MAGIC:
        return decode_file(file, begin)
    return _decompressed(_Begun(begin, file), size, _FIRST_BLOCK_BYTES)


def is_compressed(data: memoryview) -> bool:
    """Whether *data* begins as a compressed file does, and no dump file."""
    return data[: len(MAGIC)] in (MAGIC, _ZSTD_MAGIC)


def original_of_view(data: memoryview) -> Generator[memoryview, None, None]:
    """Yield the original bytes of *data*, which is compressed, as `original_of_file` does."""
    return (
        decode_view(data) if data[: len(MAGIC)] == MAGIC else _decompressed(data, _BLOCK_BYTES, _BLOCK_BYTES)
    )


class _Begun:
    """A file of which some bytes have been read, to be read from its beginning."""

    def __init__(self, begin: bytes, file: IO[bytes]) -> None:
        self._begin, self._file = begin, file

    def read(self, size: int) -> bytes:
        begin, self._begin = self._begin, b""
        return begin or self._file.read(size)


def _plain(file: IO[bytes], size: int) -> Generator[memoryview, None, None]:
    first = True
    while data := file.read(min(_FIRST_BLOCK_BYTES if first else _BLOCK_BYTES, size + 1)):
        yield memoryview(data)
        first = False


def _decompressed(source: _Begun | memoryview, size: int, first: int) -> Generator[memoryview, None, None]:
    with _explained():
        reader = zstandard.ZstdDecompressor().stream_reader(
            cast("memoryview", source), read_across_frames=True
        )
        buffer = memoryview(bytearray(min(_BLOCK_BYTES, size + 1)))
        room = buffer[:first]
        while length := reader.readinto(room):
            yield buffer[:length]
            room = buffer


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except zstandard.ZstdError as exc:
        raise DecodingError(str(exc)) from exc
