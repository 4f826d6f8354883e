"""Dump files from every kind of source."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zstandard

from dumpstream import DumpFile, DumpFormatError, StoredCapture
from dumpstream._errors import PartError
from dumpstream.archive.rows import FileRow
from dumpstream.format.verdict import Verdict
from dumpstream.reading.content import StreamedContent
from dumpstream.simulation import Workload

from .conftest import FLOATS, TWO, names, output, with_header

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from tests.conftest import CaptureBuilder


class TestSources:
    def test_path_bytes_and_compressed_give_the_same(self, tmp_path: Path) -> None:
        raw, compressed = tmp_path / "raw", tmp_path / "file.zst"
        raw.write_bytes(TWO)
        compressed.write_bytes(zstandard.compress(TWO[:50]) + zstandard.compress(TWO[50:]))

        for source in (TWO, bytearray(TWO), raw, str(raw), compressed):
            with DumpFile.open(source) as file:
                assert names(file) == ["output 0", "output 1"]
                np.testing.assert_array_equal(file.array(file.tensors[0]), FLOATS)
                np.testing.assert_array_equal(file.array(file.tensors[1]), FLOATS.reshape(-1))

    def test_simulated_files_are_read_in_full(self) -> None:
        for expected in Workload(seed=3, inputs=2, outputs=2).expected_files("/dump"):
            with DumpFile.open(expected.data) as file:
                assert file.header.length == len(expected.data)
                assert b"".join(map(file.bytes, file.tensors)) == expected.data[file.header.size :]
                assert [file.array(tensor).nbytes for tensor in file.tensors] == [
                    tensor.size for tensor in file.tensors
                ]

    def test_uncompressed_array_is_a_read_only_view_that_outlives_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "raw"
        path.write_bytes(TWO)

        with DumpFile.open(path) as file:
            first, again = (file.array(file.tensors[0]) for _ in range(2))
            whole = file.bytes(file.tensors[0])

        assert np.shares_memory(first, again)
        assert np.shares_memory(first, np.frombuffer(whole, np.uint8))
        assert not first.flags.writeable
        np.testing.assert_array_equal(first, FLOATS)

    def test_compressed_tensors_are_read_in_any_order(self) -> None:
        file = DumpFile.open(zstandard.compress(TWO))
        first, second = file.tensors

        for tensor in (second, first, second, second, first):
            assert bytes(file.bytes(tensor)) == FLOATS.tobytes()

    def test_blocks_are_the_bytes(self) -> None:
        data = os.urandom(3_000_000)
        dump = with_header(output(len(data), address=1), data)

        for source in (dump, zstandard.compress(dump)):
            file = DumpFile.open(source)
            blocks = [bytes(block) for block in file.blocks(file.tensors[0])]

            assert b"".join(blocks) == data
            assert max(map(len, blocks)) <= 1 << 20

    def test_closed_file_says_so(self) -> None:
        file = DumpFile.open(TWO)
        file.close()

        with pytest.raises(ValueError, match="was closed"):
            file.array(file.tensors[0])

    def test_symbolic_link_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "raw").write_bytes(TWO)
        (tmp_path / "link").symlink_to("raw")

        assert names(DumpFile.open(tmp_path / "link")) == ["output 0", "output 1"]

    def test_what_is_no_file_is_refused_at_once(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")

        for name in ("fifo", "missing", "."):
            with pytest.raises(OSError, match=r"fifo|missing|not a regular file"):
                DumpFile.open(tmp_path / name)

    def test_empty_file_is_no_dump_file(self, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()

        with pytest.raises(DumpFormatError, match=r"empty: is not a dump file.*\(byte 0\)"):
            DumpFile.open(tmp_path / "empty")


class TestCapture:
    def test_file_is_found_by_name_and_by_entry(self, builder: CaptureBuilder) -> None:
        builder.add("other", b"text")
        builder.add("/dump//a.b.1.2.3", TWO, Verdict.COMPLETE)
        capture = StoredCapture.open(builder.finish())

        for name in ("/dump//a.b.1.2.3", capture.files[1]):
            with DumpFile.open(capture, name) as file:
                assert file.source == "/dump//a.b.1.2.3"
                np.testing.assert_array_equal(file.array(file.tensors[0]), FLOATS)

    def test_parts_are_read_as_one(self, builder: CaptureBuilder) -> None:
        cut = len(TWO) - 30
        parts = [
            builder.store("files/a.zst", TWO[:cut]),
            builder.store("files/a.2.zst", TWO[cut:], offset=cut),
        ]
        builder.write(FileRow("a", len(TWO), 2, Verdict.COMPLETE, parts).to_line())
        capture = StoredCapture.open(builder.finish())

        with DumpFile.open(capture, "a") as file:
            assert [bytes(file.bytes(tensor)) for tensor in file.tensors] == [FLOATS.tobytes()] * 2

    def test_what_is_before_a_gap_is_read(self, builder: CaptureBuilder) -> None:
        builder.add_gapped("a", TWO[:-20], TWO[-10:], len(TWO) - 10)
        capture = StoredCapture.open(builder.finish())

        with DumpFile.open(capture, "a") as file:
            assert bytes(file.bytes(file.tensors[0])) == FLOATS.tobytes()
            with pytest.raises(DumpFormatError, match=f"ends inside output 1.*byte {len(TWO) - 20}"):
                file.bytes(file.tensors[1])

    def test_name_that_is_not_there_is_a_lookup_error(self, builder: CaptureBuilder) -> None:
        capture = StoredCapture.open(builder.finish())

        with pytest.raises(LookupError, match="has no file 'a'"):
            DumpFile.open(capture, "a")

    def test_damaged_part_is_reported_as_such(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", TWO)
        (builder.path / str(part.path)).unlink()
        capture = StoredCapture.open(builder.finish())

        with pytest.raises(PartError, match="missing"):
            DumpFile.open(capture, "a")


class TestStreamedContent:
    def test_reading_forward_takes_one_pass(self) -> None:
        passes = 0

        def blocks() -> Generator[memoryview, None, None]:
            nonlocal passes
            passes += 1
            for start in range(0, 100, 7):
                yield memoryview(bytes(range(start, min(100, start + 7))))

        content = StreamedContent(blocks)
        read = [bytes(content.read(start, start + 13)) for start in range(0, 100, 13)]

        assert b"".join(read) == bytes(range(100))
        assert passes == 1
        assert bytes(content.read(5, 6)) == b"\x05"
        assert content.length() == 100

    def test_two_readers_disturb_each_other_only_in_speed(self) -> None:
        def blocks() -> Generator[memoryview, None, None]:
            yield from (memoryview(bytes([value])) for value in range(10))

        content = StreamedContent(blocks)
        first, second = content.blocks(0, 5), content.blocks(2, 6)

        assert list(interleaved(first, second)) == [(0, 2), (1, 3), (2, 4), (3, 5)]


def interleaved(first: Iterator[memoryview], second: Iterator[memoryview]) -> Iterator[tuple[int, int]]:
    for one in first:
        copied = one[0]
        for other in second:
            yield copied, other[0]
            break
