"""Dump files from every kind of source, read back; headers are written here byte by byte."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zstandard
from tests.conftest import field, varint

from dumpstream import DumpFile, DumpFormatError, StoredCapture
from dumpstream._errors import PartError
from dumpstream.content import StreamedContent
from dumpstream.dtypes import DTYPES
from dumpstream.header import HeaderCollector, parse_header
from dumpstream.rows import file_row
from dumpstream.simulation import Workload
from dumpstream.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from tests.conftest import CaptureBuilder

    from dumpstream.header import DumpHeader

DYNAMIC = 2**64 - 1

# Field numbers of DumpData, and of an output.
OUTPUT, INPUT, BUFFER, OP_NAME, SPACE = 3, 4, 5, 6, 8
DATA_TYPE, FORMAT, SHAPE, DATA, SIZE, ADDRESS = 1, 2, 3, 5, 6, 9

FLOAT, STRING = 1, 13


def output(size: int, *dims: int, dtype: int = FLOAT, address: int = 0, more: bytes = b"") -> bytes:
    """An output; without dims it has no shape."""
    shape = field(SHAPE, b"".join(field(1, dim) for dim in dims)) if dims else b""
    known = field(DATA_TYPE, dtype) + shape + field(SIZE, size) + field(ADDRESS, address)
    return field(OUTPUT, known + more)


def with_header(message: bytes, segments: bytes = b"") -> bytes:
    return struct.pack("<Q", len(message)) + message + segments


def names(header: DumpHeader | DumpFile) -> list[str]:
    return [tensor.label for tensor in header.tensors]


def ranges(header: DumpHeader) -> list[tuple[int | None, int | None]]:
    return [(tensor.start, tensor.stop) for tensor in header.tensors]


def problem(data: bytes) -> DumpFormatError:
    with pytest.raises(DumpFormatError) as caught:
        DumpFile.open(data)
    return caught.value


FLOATS = np.arange(6, dtype="<f4").reshape(2, 3)
#: Two outputs of 24 bytes, each with an address.
TWO = with_header(output(24, 2, 3, address=1) + output(24, 6, address=2), FLOATS.tobytes() * 2)


class TestHeader:
    def test_tensors_are_in_the_order_of_their_bytes_whatever_the_order_of_the_header(self) -> None:
        sizes = field(3, 7)
        message = field(SPACE, sizes) + field(BUFFER, sizes) + output(4) + field(INPUT, field(5, 2))

        header = parse_header(with_header(message))

        assert names(header) == ["input 0", "output 0", "buffer 0", "space 0"]
        base = header.size
        assert ranges(header) == [
            (base, base + 2),
            (base + 2, base + 6),
            (base + 6, base + 13),
            (base + 13, base + 20),
        ]
        assert header.length == base + 20

    def test_index_counts_within_a_kind(self) -> None:
        message = output(1) + field(INPUT, b"") + output(1) + field(INPUT, b"")

        assert names(parse_header(with_header(message))) == ["input 0", "input 1", "output 0", "output 1"]

    def test_dimensions_are_read_packed_and_single(self) -> None:
        packed = field(SHAPE, field(1, varint(2) + varint(300)))
        single = field(SHAPE, field(1, 2) + field(1, 300))

        for shape in (packed, single):
            (tensor,) = parse_header(with_header(field(OUTPUT, shape))).tensors

            assert tensor.shape == (2, 300)

    def test_the_last_value_of_a_field_counts(self) -> None:
        message = field(OP_NAME, b"first") + field(OP_NAME, b"last") + output(1, more=field(SIZE, 9))

        header = parse_header(with_header(message))

        assert header.op_name == "last"
        assert header.tensors[0].size == 9

    def test_unknown_fields_are_kept_as_they_were_written(self) -> None:
        text, number = field(77, b"text"), field(78, 5)
        message = text + output(1, more=number + text) + number

        header = parse_header(with_header(message))

        assert header.unknown == text + number
        assert header.tensors[0].unknown == number + text

    def test_known_field_of_the_wrong_kind_is_unknown(self) -> None:
        message = field(OP_NAME, 5) + output(4, more=field(SIZE, b"size"))

        header = parse_header(with_header(message))

        assert header.unknown == field(OP_NAME, 5)
        assert header.tensors[0].unknown == field(SIZE, b"size")
        assert header.tensors[0].size == 4

    def test_unknown_numbers_of_enumerations_are_kept(self) -> None:
        message = field(OUTPUT, field(DATA_TYPE, 99) + field(FORMAT, 77))

        (tensor,) = parse_header(with_header(message)).tensors

        assert (tensor.dtype.number, tensor.dtype.name) == (99, "DT_UNKNOWN_99")
        assert (tensor.format.number, tensor.format.name) == (77, "UNKNOWN_77")

    def test_name_that_is_not_utf8_comes_back_as_it_was(self) -> None:
        header = parse_header(with_header(field(OP_NAME, b"op\xff")))

        assert os.fsencode(header.op_name) == b"op\xff"


class TestNullAddress:
    #: An output without an address before one that has it.
    MESSAGE = output(8) + output(16, address=1)
    BASE = 8 + len(MESSAGE)

    @pytest.mark.parametrize("length", [0, BASE, BASE + 15, BASE + 16, None])
    def test_has_no_bytes_in_a_file_of_no_more_than_the_others_need(self, length: int | None) -> None:
        header = parse_header(with_header(self.MESSAGE), length)

        assert ranges(header) == [(None, None), (self.BASE, self.BASE + 16)]
        assert [tensor.stored for tensor in header.tensors] == [False, True]

    @pytest.mark.parametrize("length", [BASE + 17, BASE + 24, BASE + 100])
    def test_has_bytes_in_a_longer_file(self, length: int) -> None:
        header = parse_header(with_header(self.MESSAGE), length)

        assert ranges(header) == [(self.BASE, self.BASE + 8), (self.BASE + 8, self.BASE + 24)]

    def test_of_all_tensors_means_that_addresses_were_not_written(self) -> None:
        header = parse_header(with_header(output(8) + output(16)))

        assert all(tensor.stored for tensor in header.tensors)
        assert not header.ambiguous

    def test_never_concerns_buffers_and_spaces(self) -> None:
        sized = field(3, 4)
        header = parse_header(with_header(output(1, address=1) + field(BUFFER, sized) + field(SPACE, sized)))

        assert all(tensor.stored for tensor in header.tensors)

    def test_is_decided_by_the_length_of_the_file_also_when_compressed(self) -> None:
        short = with_header(self.MESSAGE, b"b" * 16)
        long = with_header(self.MESSAGE, b"a" * 8 + b"b" * 16)

        for data, stored in [(short, [False, True]), (long, [True, True])]:
            for source in (data, zstandard.compress(data)):
                with DumpFile.open(source) as file:
                    assert [tensor.stored for tensor in file.tensors] == stored
                    assert bytes(file.bytes(file.tensors[1])) == b"b" * 16

    def test_tensor_without_bytes_is_refused_by_name(self) -> None:
        file = DumpFile.open(with_header(self.MESSAGE, b"b" * 16))

        for read in (file.array, file.bytes, lambda tensor: list(file.blocks(tensor))):
            with pytest.raises(ValueError, match="output 0 was not dumped"):
                read(file.tensors[0])


class TestVersion1:
    MESSAGE = field(OP_NAME, b"op") + output(0, 2, 3, more=field(DATA, FLOATS.tobytes()))

    @pytest.mark.parametrize("compress", [bytes, zstandard.compress])
    def test_data_inside_the_message_is_read(self, compress: Any) -> None:
        with DumpFile.open(compress(self.MESSAGE)) as file:
            (tensor,) = file.tensors

            assert file.op_name == "op"
            assert tensor.size == 24
            np.testing.assert_array_equal(file.array(tensor), FLOATS)

    def test_file_that_begins_like_a_length_is_read(self) -> None:
        message = field(BUFFER, field(2, bytes(100)))
        assert int.from_bytes(message[:8], "little") < 2**31

        file = DumpFile.open(message)

        assert [tensor.size for tensor in file.tensors] == [100]

    def test_large_compressed_file_must_be_decompressed_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dumpstream.dumpfile.MAX_HEADER_BYTES", len(self.MESSAGE) - 1)

        assert "decompress it first" in str(problem(zstandard.compress(self.MESSAGE)))
        DumpFile.open(self.MESSAGE).close()


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

        with pytest.raises(DumpFormatError, match=r"empty: is no dump file.*\(byte 0\)"):
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
        builder.write(file_row("a", len(TWO), 2, Verdict.COMPLETE, parts))
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


class TestShapes:
    def array(self, data: bytes, *dims: int, dtype: int = FLOAT) -> Any:
        file = DumpFile.open(with_header(output(len(data), *dims, dtype=dtype), data))
        return file.array(file.tensors[0])

    def test_bytes_behind_the_shape_are_left_out(self) -> None:
        np.testing.assert_array_equal(self.array(FLOATS.tobytes() + b"padding", 2, 3), FLOATS)

    @pytest.mark.parametrize("dims", [(), (DYNAMIC,), (DYNAMIC, 3)])
    def test_no_shape_and_a_dynamic_one_give_one_dimension(self, dims: tuple[int, ...]) -> None:
        np.testing.assert_array_equal(self.array(FLOATS.tobytes() + b"abc", *dims), FLOATS.reshape(-1))

    def test_dimension_of_zero_gives_no_elements(self) -> None:
        assert self.array(b"", 0, 3).shape == (0, 3)
        assert self.array(b"padding", 4, 0).shape == (4, 0)

    def test_what_is_no_number_is_bytes(self) -> None:
        array = self.array(b"text", 2, dtype=STRING)

        assert (array.dtype, array.tobytes()) == (np.uint8, b"text")

    @pytest.mark.parametrize("dims", [(2, 4), (2**40, 2**40), (2**63,) * 30])
    def test_shape_that_needs_more_than_there_is_is_refused(self, dims: tuple[int, ...]) -> None:
        with pytest.raises(DumpFormatError, match=r"output 0.*needs .* bytes and has 24") as caught:
            self.array(FLOATS.tobytes(), *dims)

        assert caught.value.position == len(with_header(output(24, *dims)))

    def test_shape_that_no_array_can_have_is_refused(self) -> None:
        with pytest.raises(DumpFormatError, match="shape that cannot be read"):
            self.array(b"", 0, 2**63, 2**63)


class TestElements:
    @pytest.mark.parametrize("number", [11, 13, 17, 27, 28, 32, 33, 37])
    @pytest.mark.parametrize("compressed", [False, True])
    def test_blocks_of_elements_are_the_array(self, number: int, *, compressed: bool) -> None:
        count = 3_000_003
        size = DTYPES[number].stored_bytes(count, 0) + 5  # with padding
        raw = np.random.default_rng(number).bytes(size)
        data = with_header(output(size, count, dtype=number), raw)

        with DumpFile.open(zstandard.compress(data, 1) if compressed else data) as dump:
            (tensor,) = dump.tensors
            blocks = [block.copy() for block in dump.elements(tensor)]
            array = dump.array(tensor)

        assert len(blocks) > 1
        assert np.concatenate(blocks).tobytes() == array.tobytes()
        assert {(block.dtype, block.ndim) for block in blocks} == {(array.dtype, 1)}

    def test_those_before_the_end_of_the_file_come_before_the_error(self) -> None:
        data = zstandard.compress(TWO[:-2])

        with DumpFile.open(data) as dump:
            blocks = dump.elements(dump.tensors[1])

            assert next(blocks).tolist() == [0, 1, 2, 3, 4]
            with pytest.raises(DumpFormatError, match="needs 2 bytes more"):
                next(blocks)

    def test_shape_that_does_not_fit_is_refused(self) -> None:
        data = with_header(output(24, 7), bytes(24))

        with DumpFile.open(data) as dump, pytest.raises(DumpFormatError, match="needs 28 bytes and has 24"):
            next(dump.elements(dump.tensors[0]))


class TestDamage:
    def test_header_that_ends_early_is_refused_at_its_end(self) -> None:
        header = parse_header(TWO)

        for length in range(8, header.size):
            assert problem(TWO[:length]).position == length

    def test_tensor_that_ends_early_is_refused_and_the_ones_before_are_good(self) -> None:
        header = parse_header(TWO)

        for length in range(header.tensors[0].stop or 0, len(TWO)):
            for source in (TWO[:length], zstandard.compress(TWO[:length])):
                file = DumpFile.open(source)
                np.testing.assert_array_equal(file.array(file.tensors[0]), FLOATS)
                for read in (file.array, file.bytes, lambda tensor, file=file: list(file.blocks(tensor))):
                    with pytest.raises(DumpFormatError, match="ends inside output 1") as caught:
                        read(file.tensors[1])
                    assert caught.value.position == length

    def test_sizes_that_overflow_are_refused_when_read(self) -> None:
        message = output(2**64 - 1, address=1) + output(2**64 - 1, address=1)

        for source in (with_header(message), zstandard.compress(with_header(message))):
            file = DumpFile.open(source)
            assert file.header.length == file.header.size + 2 * (2**64 - 1)
            for tensor in file.tensors:
                with pytest.raises(DumpFormatError, match="ends inside"):
                    file.array(tensor)

    @pytest.mark.parametrize("claim", [2**31 - 1, 2**31, 2**63, 2**64 - 1, 0])
    def test_length_of_a_header_that_cannot_be_is_refused(self, claim: int) -> None:
        for data in (struct.pack("<Q", claim), struct.pack("<Q", claim) + bytes(100)):
            for source in (data, zstandard.compress(data)):
                assert problem(source).position in {0, len(data)}

    def test_field_that_reaches_beyond_its_message_is_refused_where_it_begins(self) -> None:
        inner = field(DATA_TYPE, FLOAT) + varint(SHAPE << 3 | 2) + varint(50)
        message = field(OP_NAME, b"op") + field(OUTPUT, inner)

        error = problem(with_header(message))

        assert error.position == 8 + len(message) - 2
        assert "reaches beyond" in str(error)

    @pytest.mark.parametrize(
        "bad", [b"\x00", b"\x07", b"\x0b", b"\x0c", b"\xff" * 11, varint(2**32) + b"\0"], ids=bytes.hex
    )
    def test_what_is_no_field_is_refused_where_it_is(self, bad: bytes) -> None:
        message = field(OP_NAME, b"op") + bad

        assert problem(with_header(message)).position == 8 + 4

    def test_shape_of_too_many_dimensions_is_refused(self) -> None:
        DumpFile.open(with_header(output(0, *[1] * 32)))

        for dims in (field(1, b"\x01" * 33), field(1, 1) * 33, field(1, b"\x01" * 1_000_000)):
            message = field(OUTPUT, field(SHAPE, dims))
            assert "more than 32 dimensions" in str(problem(with_header(message)))

    def test_too_many_segments_are_refused(self) -> None:
        most = field(OUTPUT, b"") * 65536

        assert len(DumpFile.open(with_header(most)).tensors) == 65536
        for more in (field(OUTPUT, b""), field(7, b"")):
            assert "more than 65536" in str(problem(with_header(most + more)))

    def test_text_is_no_dump_file(self) -> None:
        assert "no dump file" in str(problem(b"Input/Output,Index,Data Size,Data Type,Format,Shape\n"))

    def test_header_that_names_nothing_is_none(self) -> None:
        assert "no dump file" in str(problem(with_header(field(77, 1))))

    def test_what_is_before_broken_compression_is_good(self) -> None:
        data = os.urandom(1 << 20)
        dump = with_header(output(1000, address=1) + output(len(data), address=1), data[:1000] + data)
        file = DumpFile.open(zstandard.compress(dump) + b"\x28\xb5\x2f\xfd broken")

        assert bytes(file.bytes(file.tensors[0])) == data[:1000]
        with pytest.raises(DumpFormatError, match="cannot be decompressed") as caught:
            file.bytes(file.tensors[1])
        assert caught.value.position == 1 << 20

    def test_reading_to_the_end_finds_what_should_not_be_there(self) -> None:
        for source in (TWO + b"more", zstandard.compress(TWO + b"more")):
            with pytest.raises(DumpFormatError, match="has 4 bytes more") as caught:
                DumpFile.open(source).read_to_end()

            assert caught.value.position == len(TWO)
        DumpFile.open(TWO).read_to_end()

    def test_reading_to_the_end_finds_a_wrong_checksum(self, builder: CaptureBuilder) -> None:
        part = builder.store("files/a.zst", TWO)._replace(xxh3="0" * 16)
        builder.write(file_row("a", len(TWO), 1, Verdict.COMPLETE, [part]))
        file = DumpFile.open(StoredCapture.open(builder.finish()), "a")

        np.testing.assert_array_equal(file.array(file.tensors[1]), FLOATS.reshape(-1))
        with pytest.raises(PartError, match="checksum"):
            file.read_to_end()


class TestHeaderCollector:
    @pytest.mark.parametrize("step", [1, 3, 8, 20, 1000])
    def test_header_and_rest_come_out_of_any_split(self, step: int) -> None:
        collector = HeaderCollector()
        rest = b""
        for start in range(0, len(TWO), step):
            piece = TWO[start : start + step]
            if collector.header is None:
                rest += collector.add(piece) or b""
            else:
                rest += piece

        assert collector.header == parse_header(TWO)
        assert rest == FLOATS.tobytes() * 2

    def test_file_without_a_header_is_refused_at_once(self) -> None:
        collector = HeaderCollector()

        with pytest.raises(DumpFormatError, match="no dump file"):
            collector.add(b"Input/Output")

    def test_damage_that_only_shows_in_full_is_refused(self) -> None:
        message = field(OUTPUT, field(SHAPE, b"\xff"))

        with pytest.raises(DumpFormatError, match="is damaged"):
            HeaderCollector().add(with_header(message))

    def test_header_above_the_limit_is_refused_before_it_is_kept(self) -> None:
        collector = HeaderCollector(limit=1000)

        with pytest.raises(DumpFormatError):
            collector.add(struct.pack("<Q", 2000) + bytes(2))


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
