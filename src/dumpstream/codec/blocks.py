"""Blocks: what the codecs make of the bytes of files, and the bytes again; docs/format.md specifies them."""

import struct
from collections.abc import Generator
from typing import IO

from typing_extensions import Buffer
from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from dumpstream._native import BLOCK_HEADER, BLOCK_MOST, Decoder, Encoder, encoded_bound, has_libzstd
from dumpstream.codec import Codec

#: What every block begins with. No dump file does: its header would have more than 2 GiB.
MAGIC = b"DST\xb1"

_HEADER = struct.Struct("<4s4B3L")  # magic; kind, element, flags, 0; original bytes, stored bytes, checksum
_LENGTH = struct.Struct("<L")
_RAW, _ZSTD, _PLANES = 0, 1, 3
_WIDTHS = (1, 2, 2, 4, 8, 2, 4, 8)  # of elements
_WITHOUT_ZEROS = 1
_STRIP = 256
#: Fewer bytes do not become fewer.
_LEAST_COMPRESSED = 64
_FIRST_READ, _READ = 64 << 10, 512 << 10


class DecodingError(ValueError):
    """Stored bytes are not what a codec makes."""


class BlockEncoder:
    """Makes blocks of the bytes of files; for one thread at a time.

    What native code compresses with libzstd is compressed by Python's `zstandard` on a machine without it,
    which takes longer and saves less.
    """

    def __init__(self, codec: Codec, level: int) -> None:
        self._encoder = Encoder(codec, level)
        lacks_zstd = codec is not Codec.NONE and not has_libzstd()
        self._compressor = ZstdCompressor(level=level) if lacks_zstd else None

    def encode(self, data: Buffer, position: int, layout: bytes, out: memoryview) -> int:
        """Write the blocks of *data* to *out*, which has room for `encoded_bound`; return their length."""
        length = self._encoder.encode(data, position, layout, out)
        if self._compressor is None:
            return length
        blocks = b"".join([_compressed(block, self._compressor) for block in _divided(out[:length])])
        out[: len(blocks)] = blocks
        return len(blocks)


def encode_whole(codec: Codec, data: Buffer, layout: bytes = b"", *, level: int = 1) -> bytes:
    """Return the blocks of *data*, which is a whole file with this *layout*."""
    out = memoryview(bytearray(encoded_bound(memoryview(data).nbytes)))
    return bytes(out[: BlockEncoder(codec, level).encode(data, 0, layout, out)])


class BlockDecoder:
    """Makes the original bytes of blocks, each of which it checks; for one thread at a time."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._zstd = None if has_libzstd() else ZstdDecompressor()

    def decode_into(self, blocks: memoryview, out: Buffer) -> tuple[int, int]:
        """Decode those of *blocks* that are whole and fit into *out*; return the bytes taken and made.

        Raises:
            DecodingError: the first of them is not a block that this version can decode, or is damaged.
        """
        if self._zstd is not None:
            return self._decode_slowly(blocks, out)
        taken, made, _, fault = self._decoder.decode(blocks, out)
        if fault is not None and not taken:
            raise DecodingError(fault)
        return taken, made

    def _decode_slowly(self, blocks: memoryview, out: Buffer) -> tuple[int, int]:
        """Decode one block with `zstandard`."""
        if len(blocks) < BLOCK_HEADER:
            return 0, 0
        length = _block_length(blocks)
        if len(blocks) < length:
            # The caller waits for the rest of the block, unless no block can be so long.
            fault = self._decoder.decode(blocks[:BLOCK_HEADER], out)[3]
            if fault is not None:
                raise DecodingError(fault)
            return 0, 0
        assert self._zstd is not None
        _, made, _, fault = self._decoder.decode(_decompressed(blocks[:length], self._zstd), out)
        if fault is not None:
            raise DecodingError(fault)
        return (length if made or not _original_length(blocks) else 0), made


def decode_whole(blocks: memoryview, size: int, decoder: BlockDecoder) -> bytearray:
    """Return the *size* original bytes of *blocks*; raises `DecodingError` if there are more or fewer."""
    out = bytearray(size)
    view, made = memoryview(out), 0
    while blocks:
        taken, some = decoder.decode_into(blocks, view[made:])
        if not taken:
            raise DecodingError("a block is cut off, or has too many bytes")
        blocks, made = blocks[taken:], made + some
    if made != size:
        raise DecodingError("there are too few bytes")
    return out


def decode_view(blocks: memoryview) -> Generator[memoryview, None, None]:
    """Yield the original bytes of *blocks*; each piece is valid until the next is asked for.

    Raises:
        DecodingError: they are damaged, or cut off.
    """
    decoder, out = BlockDecoder(), memoryview(b"")
    while blocks:
        taken, made, out = _decode_some(decoder, blocks, out)
        if not taken:
            raise DecodingError("the last block is cut off")
        yield out[:made]
        blocks = blocks[taken:]


def decode_file(file: IO[bytes], begin: bytes = b"") -> Generator[memoryview, None, None]:
    """Do as `decode_view` with *begin* and what is still to be read of *file*."""
    decoder, out = BlockDecoder(), memoryview(b"")
    pending, ended, most = memoryview(begin), False, _FIRST_READ
    while pending or not ended:
        taken, made, out = _decode_some(decoder, pending, out)
        if taken:
            yield out[:made]
            pending = pending[taken:]
        elif ended:
            raise DecodingError("the last block is cut off")
        else:
            more = file.read(most)
            ended, most = not more, _READ
            pending = memoryview(b"".join([pending, more]))


def _decode_some(decoder: BlockDecoder, blocks: memoryview, out: memoryview) -> tuple[int, int, memoryview]:
    """Decode at least one of *blocks* if it is whole, with an *out* that is made larger if it must be."""
    if len(blocks) >= BLOCK_HEADER and len(out) < (size := min(_original_length(blocks), BLOCK_MOST)):
        out = memoryview(bytearray(size))
    taken, made = decoder.decode_into(blocks, out or bytearray())
    return taken, made, out


def _original_length(block: memoryview) -> int:
    return int(_HEADER.unpack_from(block)[5])


def _block_length(block: memoryview) -> int:
    return BLOCK_HEADER + int(_HEADER.unpack_from(block)[6])


def _divided(blocks: memoryview) -> Generator[memoryview, None, None]:
    while blocks:
        length = _block_length(blocks)
        yield blocks[:length]
        blocks = blocks[length:]


def _compressed(block: memoryview, compressor: ZstdCompressor) -> bytes:
    """Return *block* compressed, if it is raw and that helps."""
    magic, kind, element, flags, zero, size, stored, crc = _HEADER.unpack_from(block)
    if kind == _RAW and size >= _LEAST_COMPRESSED:
        frame = compressor.compress(block[BLOCK_HEADER:])
        if len(frame) < stored:
            return _HEADER.pack(magic, _ZSTD, element, flags, zero, size, len(frame), crc) + frame
    return bytes(block)


def _decompressed(block: memoryview, decompressor: ZstdDecompressor) -> bytes:
    """Return *block* without zstd frames: the native decoder takes planes, and whole blocks, also raw."""
    magic, kind, element, flags, zero, size, _, crc = _HEADER.unpack_from(block)
    payload = block[BLOCK_HEADER:]
    if size > BLOCK_MOST or kind not in (_ZSTD, _PLANES) or element >= len(_WIDTHS):
        return bytes(block)
    try:
        if kind == _ZSTD:
            kind, pieces = _RAW, [_inflate(payload, size, decompressor)]
        else:
            pieces = _decompressed_planes(payload, size // _WIDTHS[element], element, flags, decompressor)
    except (ZstdError, struct.error) as exc:
        raise DecodingError("a block is damaged") from exc
    content = b"".join(pieces)
    return _HEADER.pack(magic, kind, element, flags, zero, size, len(content), crc) + content


def _decompressed_planes(
    payload: memoryview, count: int, element: int, flags: int, decompressor: ZstdDecompressor
) -> list[bytes]:
    pieces = []
    if flags & _WITHOUT_ZEROS:
        begin = _LENGTH.size + -(-count // _STRIP) * (_STRIP // 8)
        count = min(count, *_LENGTH.unpack_from(payload))
        pieces.append(bytes(payload[:begin]))
        payload = payload[begin:]
    for _ in range(_WIDTHS[element]):
        (length,) = _LENGTH.unpack_from(payload)
        plane, payload = payload[_LENGTH.size : _LENGTH.size + length], payload[_LENGTH.size + length :]
        raw = bytes(plane) if length >= count else _inflate(plane, count, decompressor)
        pieces += [_LENGTH.pack(len(raw)), raw]
    return [*pieces, bytes(payload)]


def _inflate(frame: memoryview, size: int, decompressor: ZstdDecompressor) -> bytes:
    """Return the *size* bytes in *frame*; raises `ZstdError` if it says that there are others."""
    with decompressor.stream_reader(frame, read_across_frames=True) as reader:
        data = reader.read(size + 1)
    if len(data) != size:
        raise ZstdError("a frame has other bytes than it should")
    return data
