"""Small files that are read together have the bytes that each has alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash
import zstandard

from dumpstream import StoredCapture
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.format.verdict import Verdict
from dumpstream.reading.smallfiles import read_small

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder

CONTENTS = [bytes([number]) * (number * 100 + 1) for number in range(20)]
PACK = "packs/1.zip"


def pack(builder: CaptureBuilder) -> list[StoredPart]:
    """Write a pack with all contents, some behind a wide space, and return its parts."""
    data, parts = b"", []
    for number, content in enumerate(CONTENTS):
        frame = zstandard.compress(content)
        data += bytes(10_000 if number % 7 == 0 else 40)
        digest = xxhash.xxh3_64_hexdigest(content)
        parts.append(StoredPart("zstd", PACK, 0, len(content), len(frame), digest, len(data)))
        data += frame
    (builder.path / "packs").mkdir()
    (builder.path / PACK).write_bytes(data)
    return parts


def read(capture: Path, parts: list[StoredPart]) -> list[bytes | None]:
    rows = [
        FileRow(str(number), part.bytes, 1, Verdict.COMPLETE, (part,)) for number, part in enumerate(parts)
    ]
    found = read_small(StoredCapture.open(capture), rows)
    return [None if data is None else bytes(memoryview(data)) for data in found]


def test_files_of_a_pack_and_files_of_their_own_are_read(builder: CaptureBuilder) -> None:
    parts = pack(builder)
    parts[3] = builder.store("files/a.zst", CONTENTS[3])

    assert read(builder.finish(), parts) == CONTENTS


def test_the_order_in_which_files_are_asked_for_is_kept(builder: CaptureBuilder) -> None:
    parts = pack(builder)

    assert read(builder.finish(), parts[::-1]) == CONTENTS[::-1]


def test_what_takes_another_way_is_left_out(builder: CaptureBuilder) -> None:
    parts = pack(builder)
    left_out = [
        parts[1]._replace(path="packs/missing.zip"),
        parts[2]._replace(xxh3="0" * 16),
        parts[3]._replace(offset=5),
        parts[4]._replace(sink="stats"),
        parts[5]._replace(path="s3://bucket/pack.zip"),
        parts[6]._replace(start=1 << 40),
        parts[7]._replace(bytes=1 << 30),
        parts[8]._replace(stored_bytes=1 << 30),
        parts[9]._replace(path="../outside"),
        parts[10]._replace(path=None),
    ]

    found = read(builder.finish(), [parts[0], *left_out])

    assert found == [CONTENTS[0], *[None] * len(left_out)]


def test_a_damaged_frame_leaves_all_to_the_other_way(builder: CaptureBuilder) -> None:
    parts = pack(builder)
    capture = builder.finish()
    data = bytearray((capture / PACK).read_bytes())
    data[(parts[5].start or 0) : (parts[5].start or 0) + 4] = bytes(4)
    (capture / PACK).write_bytes(data)

    assert read(capture, parts) == [None] * len(parts)


def test_a_wrong_length_leaves_all_to_the_other_way(builder: CaptureBuilder) -> None:
    parts = pack(builder)
    parts[5] = parts[5]._replace(bytes=parts[5].bytes + 1)

    assert read(builder.finish(), parts) == [None] * len(parts)
