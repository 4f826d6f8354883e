"""Small files of a capture, many at a time: one read for neighbours in a pack, one decompression for all."""

import os
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import xxhash
import zstandard
from typing_extensions import Buffer

from dumpstream._errors import PartError
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.codec import RAW_SUFFIX
from dumpstream.codec.blocks import MAGIC, BlockDecoder, DecodingError, decode_whole
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile, is_readable, misfit, parts_of
from dumpstream.system.location import is_url

_MOST_BYTES = 256 << 10
# Between the files of a pack are their headers, which are read faster than they are skipped.
_SKIPPED_BYTES = 4 << 10


def read_small(capture: StoredCapture, rows: Sequence[FileRow]) -> list[Buffer | None]:
    """Return the original bytes of each of *rows*, or None for those that `content_of_stored` has to read.

    These are files that are large, in several parts or in an object store, and damaged ones.
    """
    return read_small_parts(capture, [*map(_only_part, rows)])


def read_small_files(files: Sequence[tuple[StoredCapture | None, StoredFile | None]]) -> list[Buffer | None]:
    """Do as `read_small` with whole files, each of a capture; also return None for files of no capture."""
    data: list[Buffer | None] = [None] * len(files)
    rows: dict[StoredCapture, dict[int, FileRow]] = defaultdict(dict)
    for number, (capture, file) in enumerate(files):
        if capture is not None and file is not None and len(file.rows) == 1 and file.rows[0].verdict.whole:
            rows[capture][number] = file.rows[0]
    for capture, of_capture in rows.items():
        for number, content in zip(of_capture, read_small(capture, [*of_capture.values()]), strict=True):
            data[number] = content
    return data


def read_small_parts(capture: StoredCapture, parts: Sequence[StoredPart | None]) -> list[Buffer | None]:
    """Return the original bytes of each of *parts*, or None for those that `read_part` has to read."""
    data: list[Buffer | None] = [None] * len(parts)
    if capture.in_store:
        return data
    by_path: dict[str, dict[int, StoredPart]] = defaultdict(dict)
    for number, part in enumerate(parts):
        if part is not None and part.path is not None and _is_small(part):
            by_path[part.path][number] = part
    small: dict[int, StoredPart] = {}
    frames: dict[int, memoryview] = {}
    for path, of_path in by_path.items():
        small |= of_path
        frames |= _read_frames(capture, path, of_path)
    for number, content in _decoded(frames, small):
        xxh3 = small[number].xxh3
        if xxh3 is None or xxhash.xxh3_64_hexdigest(content) == xxh3:
            data[number] = content
    return data


def _only_part(row: FileRow) -> StoredPart | None:
    """Return the part that has all of *row*."""
    parts = row.stored if len(row.stored) == 1 else parts_of(row)
    return parts[0] if len(parts) == 1 and not parts[0].offset else None


def _is_small(part: StoredPart) -> bool:
    if not is_readable(part) or is_url(part.path or ""):
        return False
    return 0 < part.bytes <= _MOST_BYTES and part.stored_bytes <= _MOST_BYTES


def _read_frames(capture: StoredCapture, path: str, parts: dict[int, StoredPart]) -> dict[int, memoryview]:
    """Return the compressed bytes of those of *parts*, all at *path*, that can be read."""
    frames: dict[int, memoryview] = {}
    try:
        file, size = capture.open_stored(path)
        with file:
            fitting = [number for number, part in parts.items() if misfit(part, size) is None]
            for numbers in _neighbours(fitting, parts):
                begin = parts[numbers[0]].start or 0
                end = max(_end(parts[number]) for number in numbers)
                block = memoryview(os.pread(file.fileno(), end - begin, begin))
                for number in numbers:
                    start = (parts[number].start or 0) - begin
                    frames[number] = block[start : start + parts[number].stored_bytes]
    except (PartError, OSError):
        pass  # the caller reads what is missing again, which raises the error for the right file
    return frames


def _neighbours(numbers: Iterable[int], parts: dict[int, StoredPart]) -> Iterator[list[int]]:
    """Yield *numbers* in groups whose parts are close to each other."""
    group: list[int] = []
    for number in sorted(numbers, key=lambda number: parts[number].start or 0):
        if group and (parts[number].start or 0) > _end(parts[group[-1]]) + _SKIPPED_BYTES:
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def _end(part: StoredPart) -> int:
    return (part.start or 0) + part.stored_bytes


def _decoded(frames: dict[int, memoryview], parts: dict[int, StoredPart]) -> Iterator[tuple[int, Buffer]]:
    """Yield the original bytes of *frames*, except those that cannot be decoded."""
    zstd: dict[int, memoryview] = {}
    decoder: BlockDecoder | None = None
    for number, frame in frames.items():
        part = parts[number]
        if (part.path or "").endswith(RAW_SUFFIX):
            if len(frame) == part.bytes:
                yield number, frame
        elif frame[: len(MAGIC)] == MAGIC:
            decoder = decoder or BlockDecoder()
            with suppress(DecodingError):
                yield number, decode_whole(frame, part.bytes, decoder)
        else:
            zstd[number] = frame
    yield from zip(zstd, _decompressed(zstd, parts), strict=False)  # all or nothing


def _decompressed(frames: dict[int, memoryview], parts: dict[int, StoredPart]) -> list[memoryview]:
    """Return the original bytes of *frames*; none if one of them is not a frame of the right length."""
    if not frames:
        return []
    sizes = array("Q", [parts[number].bytes for number in frames]).tobytes()
    try:
        found = zstandard.ZstdDecompressor().multi_decompress_to_buffer(
            list(frames.values()), decompressed_sizes=sizes
        )
    except zstandard.ZstdError:
        return []
    return [memoryview(found[number]) for number in range(len(found))]  # type: ignore[arg-type]  # is a buffer
