"""The native header reader against google's protobuf, which shares no code with it."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any, Final

import pytest
from google.protobuf import (  # type: ignore[import-untyped]  # used dynamically
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # likewise
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import varint

from dumpstream._native import read_header

WHOLE, PARTIAL, NONE = range(3)
MOST = (1 << 64) - 1

_Field = descriptor_pb2.FieldDescriptorProto
STRING, BYTES, U64, U32 = _Field.TYPE_STRING, _Field.TYPE_BYTES, _Field.TYPE_UINT64, _Field.TYPE_UINT32
#: (number, name, type): the messages of a dump file as CANN's proto files number them.
MESSAGES: Final[dict[str, list[tuple[int, str, Any]]]] = {
    "Shape": [(1, "dim", [U64])],
    "Attr": [(1, "name", STRING), (2, "value", STRING)],
    "Output": [
        (1, "data_type", U32),
        (2, "format", U32),
        (3, "shape", "Shape"),
        (5, "data", BYTES),
        (6, "size", U64),
        (8, "sub_format", U32),
        (9, "address", U64),
        (11, "offset", U64),
        (12, "arg_index", U32),
    ],
    "Input": [
        (1, "data_type", U32),
        (2, "format", U32),
        (3, "shape", "Shape"),
        (4, "data", BYTES),
        (5, "size", U64),
        (8, "address", U64),
        (9, "offset", U64),
    ],
    "Buffer": [(1, "buffer_type", U32), (2, "data", BYTES), (3, "size", U64)],
    "Space": [(1, "type", U32), (2, "data", BYTES), (3, "size", U64), (4, "arg_index", U32)],
    "DumpData": [
        (1, "version", STRING),
        (2, "dump_time", U64),
        (3, "output", ["Output"]),
        (4, "input", ["Input"]),
        (5, "buffer", ["Buffer"]),
        (6, "op_name", STRING),
        (7, "attr", ["Attr"]),
        (8, "space", ["Space"]),
        (9, "dfx_message", STRING),
        (15, "newer_number", U64),
        (16, "newer_fixed", _Field.TYPE_FIXED64),
        (2000, "newer_float", _Field.TYPE_FLOAT),
        (2001, "newer_message", "Output"),
    ],
}


def _make_dump_data() -> Any:
    """Build the message class at run time: generated modules do not work with every protobuf."""
    file = descriptor_pb2.FileDescriptorProto(name="dump.proto", package="dump", syntax="proto3")
    for message, fields in MESSAGES.items():
        made = file.message_type.add(name=message)
        for number, name, kind in fields:
            repeated, single = isinstance(kind, list), kind[0] if isinstance(kind, list) else kind
            field = made.field.add(name=name, number=number)
            field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            if isinstance(single, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".dump.{single}"
            else:
                field.type = single
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("dump.DumpData"))


DumpData = _make_dump_data()


def framed(message: bytes) -> bytes:
    return struct.pack("<Q", len(message)) + message


def expected_lengths(data: Any, header_length: int) -> tuple[int, int]:
    """Return what the file's two lengths must be, by the values that protobuf gives back."""
    tensors = [*data.input, *data.output]
    total = header_length + sum(part.size for part in (*tensors, *data.buffer, *data.space))
    if not any(tensor.address for tensor in tensors):
        return min(total, MOST), min(total, MOST)
    present = total - sum(tensor.size for tensor in tensors if not tensor.address)
    return min(total, MOST), min(present, MOST)


small = st.integers(0, 1 << 40)
numbers = st.one_of(small, st.integers(0, 1 << 32), st.sampled_from([0, 1, 127, 128]))
addresses = st.one_of(st.just(0), st.integers(1, MOST))
shapes = st.builds(lambda dims: {"dim": dims}, st.lists(st.integers(0, MOST), max_size=4))
tensors = st.fixed_dictionaries(
    {},
    optional={
        "data_type": st.integers(0, 42),
        "format": st.integers(0, 255),
        "shape": shapes,
        "data": st.binary(max_size=10),
        "size": numbers,
        "address": addresses,
        "offset": st.integers(0, MOST),
    },
)
parts = st.fixed_dictionaries({}, optional={"size": numbers, "data": st.binary(max_size=10)})
attributes = st.fixed_dictionaries({"name": st.text(max_size=5), "value": st.text(max_size=20)})
dumps = st.fixed_dictionaries(
    {"version": st.just("2.0")},
    optional={
        "dump_time": st.integers(0, MOST),
        "output": st.lists(tensors, max_size=5),
        "input": st.lists(tensors, max_size=5),
        "buffer": st.lists(parts, max_size=3),
        "space": st.lists(parts, max_size=3),
        "op_name": st.text(max_size=20),
        "attr": st.lists(attributes, max_size=3),
        "dfx_message": st.text(max_size=20),
        "newer_number": st.integers(0, MOST),
        "newer_fixed": st.integers(0, MOST),
        "newer_float": st.just(1.5),
        "newer_message": tensors,
    },
)


@settings(max_examples=300, deadline=None)
@given(dumps, st.binary(max_size=50))
def test_lengths_are_the_sums_of_the_segments(values: dict[str, Any], rest: bytes) -> None:
    data = DumpData(**values)
    header = framed(data.SerializeToString())

    state, total, present = read_header(header + rest)

    assert state == WHOLE
    assert (total, present) == expected_lengths(data, len(header))


@settings(max_examples=100, deadline=None)
@given(dumps)
def test_every_truncation_is_the_beginning_of_a_header(values: dict[str, Any]) -> None:
    header = framed(DumpData(**values).SerializeToString())

    for length in range(len(header)):
        assert read_header(header[:length]) == (PARTIAL, 0 if length < 8 else len(header), 0)


@settings(max_examples=300, deadline=None)
@given(dumps, st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), min_size=1, max_size=3))
def test_damaged_header_is_read_as_protobuf_reads_it_or_not_at_all(
    values: dict[str, Any], damage: list[tuple[int, int]]
) -> None:
    message = bytearray(DumpData(**values).SerializeToString())
    for at, value in damage:
        message[at % len(message)] = value
    header = framed(bytes(message))

    state, total, present = read_header(header)

    if state == NONE:
        assert (total, present) == (0, 0)
        return
    assert state == WHOLE
    with suppress(DecodeError):  # also raised for text that is not UTF-8, which does not matter here
        data = DumpData.FromString(bytes(message))
        assert (total, present) == expected_lengths(data, len(header))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_an_answer(data: bytes) -> None:
    state, total, present = read_header(data)

    assert state in (WHOLE, PARTIAL, NONE)
    assert present <= total


def test_null_address_counts_only_if_another_tensor_has_one() -> None:
    null, placed = {"size": 10}, {"size": 5, "address": 1}
    old = framed(DumpData(version="2.0", input=[null], output=[null]).SerializeToString())
    mixed = framed(DumpData(version="2.0", input=[null], output=[placed]).SerializeToString())

    assert read_header(old) == (WHOLE, len(old) + 20, len(old) + 20)
    assert read_header(mixed) == (WHOLE, len(mixed) + 15, len(mixed) + 5)


def test_buffers_and_workspaces_need_no_address() -> None:
    parts = {"buffer": [{"size": 3}], "space": [{"size": 4}], "input": [{"size": 5, "address": 1}]}
    header = framed(DumpData(**parts).SerializeToString())

    assert read_header(header) == (WHOLE, len(header) + 12, len(header) + 12)


def test_last_of_repeated_values_counts() -> None:
    output = b"\x30" + varint(1) + b"\x48\x00" + b"\x30" + varint(7) + b"\x48\x05"
    header = framed(b"\x1a" + varint(len(output)) + output)

    assert read_header(header) == (WHOLE, len(header) + 7, len(header) + 7)


def test_sizes_saturate_instead_of_wrapping() -> None:
    huge = {"size": MOST, "address": 1}
    header = framed(DumpData(input=[huge, huge], output=[huge]).SerializeToString())

    assert read_header(header) == (WHOLE, MOST, MOST)


@pytest.mark.parametrize("length", [0, 1 << 31, 1 << 32, 1 << 63, MOST])
def test_impossible_message_length_is_no_header(length: int) -> None:
    assert read_header(struct.pack("<Q", length) + b"\x0a\x03abc") == (NONE, 0, 0)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\x0a\x7f2.0", id="string longer than the message"),
        pytest.param(b"\x1a\x04\x30\x01\x4a\x7f", id="field longer than its segment"),
        pytest.param(b"\x1a" + varint(MOST) + b"\x30", id="length of all ones"),
        pytest.param(b"\x1a" + varint(MOST - 8) + b"\x30", id="length that would wrap a pointer"),
        pytest.param(b"\x0a" + b"\x80" * 10 + b"\x01", id="endless varint"),
        pytest.param(b"\x10" + b"\xff" * 9, id="varint without an end"),
        pytest.param(b"\x00\x00", id="field number 0"),
        pytest.param(varint(1 << 32) + b"\x00", id="field number too large"),
        pytest.param(b"\x0b\x0c", id="group"),
        pytest.param(b"\x0f", id="wire type 7"),
        pytest.param(b"\x78\x01", id="no field of a dump"),
        pytest.param(b"hello, this is text", id="text"),
    ],
)
def test_what_is_no_dump_data_is_no_header(message: bytes) -> None:
    assert read_header(framed(message)) == (NONE, 0, 0)


def test_beginning_of_text_is_no_header() -> None:
    assert read_header(b"name,min,max\nop,0,1\n") == (NONE, 0, 0)


def test_any_buffer_is_read() -> None:
    header = framed(DumpData(version="2.0").SerializeToString())

    assert read_header(memoryview(bytearray(header))) == (WHOLE, len(header), len(header))
