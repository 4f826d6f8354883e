"""What a header says, and how it comes out of a file in pieces."""

from __future__ import annotations

import os
import struct
from typing import Any

import numpy as np
import pytest
import zstandard
from tests.conftest import field, varint

from dumpstream import DumpFile, DumpFormatError
from dumpstream.format.header import HeaderCollector, parse_header

from .conftest import (
    BUFFER,
    DATA,
    DATA_TYPE,
    FLOATS,
    FORMAT,
    INPUT,
    OP_NAME,
    OUTPUT,
    SHAPE,
    SIZE,
    SPACE,
    TWO,
    names,
    output,
    problem,
    ranges,
    with_header,
)


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
        monkeypatch.setattr("dumpstream.reading.dumpfile.MAX_HEADER_BYTES", len(self.MESSAGE) - 1)

        assert "decompress it first" in str(problem(zstandard.compress(self.MESSAGE)))
        DumpFile.open(self.MESSAGE).close()


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

        with pytest.raises(DumpFormatError, match="not a dump file"):
            collector.add(b"Input/Output")

    def test_damage_that_only_shows_in_full_is_refused(self) -> None:
        message = field(OUTPUT, field(SHAPE, b"\xff"))

        with pytest.raises(DumpFormatError, match="is damaged"):
            HeaderCollector().add(with_header(message))

    def test_header_above_the_limit_is_refused_before_it_is_kept(self) -> None:
        collector = HeaderCollector(limit=1000)

        with pytest.raises(DumpFormatError):
            collector.add(struct.pack("<Q", 2000) + bytes(2))
