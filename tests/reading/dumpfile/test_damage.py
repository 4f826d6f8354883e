"""Files that are damaged, and what is still good in them."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zstandard
from tests.conftest import field, varint

from dumpstream import DumpFile, DumpFormatError, StoredCapture
from dumpstream._errors import PartError
from dumpstream.archive.rows import FileRow
from dumpstream.format.header import parse_header
from dumpstream.format.verdict import Verdict

from .conftest import DATA_TYPE, FLOAT, FLOATS, OP_NAME, OUTPUT, SHAPE, TWO, output, problem, with_header

if TYPE_CHECKING:
    from tests.conftest import CaptureBuilder


def test_header_that_ends_early_is_refused_at_its_end() -> None:
    header = parse_header(TWO)

    for length in range(8, header.size):
        assert problem(TWO[:length]).position == length


def test_tensor_that_ends_early_is_refused_and_the_ones_before_are_good() -> None:
    header = parse_header(TWO)

    for length in range(header.tensors[0].stop or 0, len(TWO)):
        for source in (TWO[:length], zstandard.compress(TWO[:length])):
            file = DumpFile.open(source)
            np.testing.assert_array_equal(file.array(file.tensors[0]), FLOATS)
            for read in (file.array, file.bytes, lambda tensor, file=file: list(file.blocks(tensor))):
                with pytest.raises(DumpFormatError, match="ends inside output 1") as caught:
                    read(file.tensors[1])
                assert caught.value.position == length


def test_sizes_that_overflow_are_refused_when_read() -> None:
    message = output(2**64 - 1, address=1) + output(2**64 - 1, address=1)

    for source in (with_header(message), zstandard.compress(with_header(message))):
        file = DumpFile.open(source)
        assert file.header.length == file.header.size + 2 * (2**64 - 1)
        for tensor in file.tensors:
            with pytest.raises(DumpFormatError, match="ends inside"):
                file.array(tensor)


@pytest.mark.parametrize("claim", [2**31 - 1, 2**31, 2**63, 2**64 - 1, 0])
def test_length_of_a_header_that_cannot_be_is_refused(claim: int) -> None:
    for data in (struct.pack("<Q", claim), struct.pack("<Q", claim) + bytes(100)):
        for source in (data, zstandard.compress(data)):
            assert problem(source).position in {0, len(data)}


def test_field_that_reaches_beyond_its_message_is_refused_where_it_begins() -> None:
    inner = field(DATA_TYPE, FLOAT) + varint(SHAPE << 3 | 2) + varint(50)
    message = field(OP_NAME, b"op") + field(OUTPUT, inner)

    error = problem(with_header(message))

    assert error.position == 8 + len(message) - 2
    assert "reaches beyond" in str(error)


@pytest.mark.parametrize(
    "bad", [b"\x00", b"\x07", b"\x0b", b"\x0c", b"\xff" * 11, varint(2**32) + b"\0"], ids=bytes.hex
)
def test_what_is_no_field_is_refused_where_it_is(bad: bytes) -> None:
    message = field(OP_NAME, b"op") + bad

    assert problem(with_header(message)).position == 8 + 4


def test_shape_of_too_many_dimensions_is_refused() -> None:
    DumpFile.open(with_header(output(0, *[1] * 32)))

    for dims in (field(1, b"\x01" * 33), field(1, 1) * 33, field(1, b"\x01" * 1_000_000)):
        message = field(OUTPUT, field(SHAPE, dims))
        assert "more than 32 dimensions" in str(problem(with_header(message)))


def test_too_many_segments_are_refused() -> None:
    most = field(OUTPUT, b"") * 65536

    assert len(DumpFile.open(with_header(most)).tensors) == 65536
    for more in (field(OUTPUT, b""), field(7, b"")):
        assert "more than 65536" in str(problem(with_header(most + more)))


def test_text_is_no_dump_file() -> None:
    assert "not a dump file" in str(problem(b"Input/Output,Index,Data Size,Data Type,Format,Shape\n"))


def test_header_that_names_nothing_is_none() -> None:
    assert "not a dump file" in str(problem(with_header(field(77, 1))))


def test_what_is_before_broken_compression_is_good() -> None:
    data = os.urandom(1 << 20)
    dump = with_header(output(1000, address=1) + output(len(data), address=1), data[:1000] + data)
    file = DumpFile.open(zstandard.compress(dump) + b"\x28\xb5\x2f\xfd broken")

    assert bytes(file.bytes(file.tensors[0])) == data[:1000]
    with pytest.raises(DumpFormatError, match="cannot be decompressed") as caught:
        file.bytes(file.tensors[1])
    assert caught.value.position == 1 << 20


def test_reading_to_the_end_finds_what_should_not_be_there() -> None:
    for source in (TWO + b"more", zstandard.compress(TWO + b"more")):
        with pytest.raises(DumpFormatError, match="has 4 bytes more") as caught:
            DumpFile.open(source).read_to_end()

        assert caught.value.position == len(TWO)
    DumpFile.open(TWO).read_to_end()


def test_reading_to_the_end_finds_a_wrong_checksum(builder: CaptureBuilder) -> None:
    part = builder.store("files/a.zst", TWO)._replace(xxh3="0" * 16)
    builder.write(FileRow("a", len(TWO), 1, Verdict.COMPLETE, [part]).to_line())
    file = DumpFile.open(StoredCapture.open(builder.finish()), "a")

    np.testing.assert_array_equal(file.array(file.tensors[1]), FLOATS.reshape(-1))
    with pytest.raises(PartError, match="checksum"):
        file.read_to_end()
