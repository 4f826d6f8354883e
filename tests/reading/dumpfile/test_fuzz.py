"""Headers against Google's reader of the same bytes, and bytes that no program wrote."""

from __future__ import annotations

import os
import tracemalloc
from collections import deque
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from google.protobuf import (  # type: ignore[import-untyped]  # ships no types
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    unknown_fields,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dumpstream import DumpFile, DumpFormatError
from dumpstream._native import parse_header as parse_message
from dumpstream._native import read_header
from dumpstream.format.header import HeaderCollector, Tensor, parse_header

if TYPE_CHECKING:
    from collections.abc import Callable

KIND = descriptor_pb2.FieldDescriptorProto
U64, U32, I32, TEXT, BYTES = (
    KIND.TYPE_UINT64,
    KIND.TYPE_UINT32,
    KIND.TYPE_INT32,
    KIND.TYPE_STRING,
    KIND.TYPE_BYTES,
)

#: The messages of a dump header: fields by number, ``*`` marks repeated ones. Enumerations are int32 here, as
#: proto3 reads them.
MESSAGES: dict[str, dict[int, tuple[str, int | str]]] = {
    "Shape": {1: ("*dim", U64)},
    "DimRange": {1: ("dim_start", U64), 2: ("dim_end", U64)},
    "OriginalOp": {1: ("name", TEXT), 2: ("output_index", U32), 3: ("data_type", I32), 4: ("format", I32)},
    "OpAttr": {1: ("name", TEXT), 2: ("value", TEXT)},
    "OpOutput": {
        1: ("data_type", I32), 2: ("format", I32), 3: ("shape", "Shape"), 4: ("original_op", "OriginalOp"),
        5: ("data", BYTES), 6: ("size", U64), 7: ("original_shape", "Shape"), 8: ("sub_format", I32),
        9: ("address", U64), 10: ("*dim_range", "DimRange"), 11: ("offset", U64), 12: ("arg_index", U32),
    },
    "OpInput": {
        1: ("data_type", I32), 2: ("format", I32), 3: ("shape", "Shape"), 4: ("data", BYTES),
        5: ("size", U64), 6: ("original_shape", "Shape"), 7: ("sub_format", I32), 8: ("address", U64),
        9: ("offset", U64), 10: ("arg_index", U32), 11: ("input_type", U32),
    },
    "OpBuffer": {1: ("type", I32), 2: ("data", BYTES), 3: ("size", U64)},
    "Workspace": {1: ("type", I32), 2: ("data", BYTES), 3: ("size", U64), 4: ("arg_index", U32)},
    "DumpData": {
        1: ("version", TEXT), 2: ("dump_time", U64), 3: ("*output", "OpOutput"), 4: ("*input", "OpInput"),
        5: ("*buffer", "OpBuffer"), 6: ("op_name", TEXT), 7: ("*attr", "OpAttr"), 8: ("*space", "Workspace"),
        9: ("dfx_message", TEXT),
    },
}  # fmt: skip


def dump_data_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="fuzz.proto", package="t", syntax="proto3")
    for message_name, fields in MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, (name, kind) in fields.items():
            message.field.add(
                name=name.strip("*"),
                number=number,
                label=KIND.LABEL_REPEATED if name[0] == "*" else KIND.LABEL_OPTIONAL,
                type=KIND.TYPE_MESSAGE if isinstance(kind, str) else kind,
                type_name=f".t.{kind}" if isinstance(kind, str) else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.DumpData"))


DUMP_DATA = dump_data_class()

SCALARS = {
    U64: st.sampled_from([0, 1, 127, 128, 2**32, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1),
    U32: st.integers(0, 2**32 - 1),
    I32: st.integers(-(2**31), 2**31 - 1) | st.integers(0, 60),
    TEXT: st.text(max_size=10),
    BYTES: st.binary(max_size=10),
}


def fields_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Some fields of the message *name*, as its constructor takes them."""
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field, kind in MESSAGES[name].values():
        value = fields_of(kind) if isinstance(kind, str) else SCALARS[kind]
        optional[field.strip("*")] = st.lists(value, max_size=3) if field[0] == "*" else value
    return st.fixed_dictionaries({}, optional=optional)


messages = fields_of("DumpData").map(lambda fields: DUMP_DATA(**fields))


def with_prefix(message: bytes) -> bytes:
    return len(message).to_bytes(8, "little") + message


def expected_segment(segment: Any) -> dict[str, Any]:
    """What protobuf reads of a segment, under our names."""
    described = {field.name: getattr(segment, field.name) for field in segment.DESCRIPTOR.fields}
    return {
        name: described.get(theirs, 0)
        for name, theirs in {
            "sub_format": "sub_format", "size": "size", "address": "address", "offset": "offset",
            "arg_index": "arg_index", "input_type": "input_type", "type": "type",
        }.items()
    } | {
        "dtype": described.get("data_type", 0),
        "format": described.get("format", 0),
        "shape": tuple(described["shape"].dim) if "shape" in described else (),
        "original_shape": tuple(described["original_shape"].dim) if "original_shape" in described else (),
        "dim_range": tuple((item.dim_start, item.dim_end) for item in described.get("dim_range", ())),
        "original_op": expected_original_op(segment),
    }  # fmt: skip


def expected_original_op(segment: Any) -> tuple[str, int, int, int] | None:
    if "original_op" not in segment.DESCRIPTOR.fields_by_name or not segment.HasField("original_op"):
        return None
    op = segment.original_op
    return (op.name, op.output_index, op.data_type, op.format)


def read_segment(tensor: Tensor) -> dict[str, Any]:
    """What we read of a segment."""
    known = {name: getattr(tensor, name) for name in ("sub_format", "size", "address", "offset", "arg_index")}
    known |= {name: getattr(tensor, name) for name in ("input_type", "type", "shape", "original_shape")}
    known |= {"dim_range": tensor.dim_range, "original_op": tensor.original_op}
    return known | {"dtype": tensor.dtype.number, "format": tensor.format.number}


def assert_same(message: Any, data: bytes) -> None:
    header = parse_header(data)
    segments = [*message.input, *message.output, *message.buffer, *message.space]

    assert (header.version, header.time) == (message.version, message.dump_time)
    assert (header.op_name, header.dfx_message) == (message.op_name, message.dfx_message)
    assert header.attributes == tuple((attr.name, attr.value) for attr in message.attr)
    assert [read_segment(tensor) for tensor in header.tensors] == list(map(expected_segment, segments))


@settings(max_examples=150, deadline=None)
@given(messages)
def test_what_protobuf_writes_is_read_as_protobuf_reads_it(message: Any) -> None:
    written = message.SerializeToString()
    assume(any(parse_message(written)[:-1]))

    assert_same(message, with_prefix(written))


@settings(max_examples=150, deadline=None)
@given(messages, messages)
def test_messages_one_behind_the_other_are_merged_as_protobuf_merges_them(first: Any, second: Any) -> None:
    written = first.SerializeToString() + second.SerializeToString()
    assume(any(parse_message(written)[:-1]))

    assert_same(DUMP_DATA.FromString(written), with_prefix(written))


@settings(max_examples=100, deadline=None)
@given(messages, st.binary(max_size=20))
def test_unknown_fields_are_those_protobuf_does_not_know(message: Any, value: bytes) -> None:
    unknown = b"\xfa\x05" + bytes([len(value)]) + value
    written = message.SerializeToString() + unknown

    read = parse_message(written)[-1]

    assert read == unknown
    assert len(unknown_fields.UnknownFieldSet(DUMP_DATA.FromString(written))) == 1


@settings(max_examples=150, deadline=None)
@given(messages)
def test_data_inside_the_message_is_where_protobuf_finds_it(message: Any) -> None:
    written = message.SerializeToString()
    segments = [*message.input, *message.output, *message.buffer, *message.space]
    assume(segments)

    _, _, _, _, _, *groups, _ = parse_message(written)

    found = [written[segment[13] : segment[14]] for group in groups for segment in group]
    assert found == [segment.data for segment in segments]


@settings(max_examples=150, deadline=None)
@given(messages)
def test_both_native_readers_agree_on_the_length(message: Any) -> None:
    data = with_prefix(message.SerializeToString())
    state, total, present = read_header(data)
    assume(state == 0 and total < 2**64 - 1)

    try:
        lengths = {parse_header(data).length, parse_header(data, total).length}
    except DumpFormatError:  # the other counts a field that is there and empty
        assume(False)

    assert lengths == {present, total}


def refusal_of(call: Callable[[], object]) -> DumpFormatError | None:
    try:
        call()
    except DumpFormatError as exc:
        return exc
    return None


def read_everything(source: bytes) -> None:
    """Open *source* and read all of it; every refusal must say where and of what."""
    refusals = [refusal_of(lambda: DumpFile.open(source).close())]
    if refusals == [None]:
        with DumpFile.open(source) as file:
            for tensor in filter(attrgetter("stored"), file.tensors):
                refusals.append(refusal_of(partial(file.array, tensor)))
                refusals.append(refusal_of(partial(file.bytes, tensor)))
                refusals.append(refusal_of(partial(deque, file.blocks(tensor), 0)))
    assert all(exc.position >= 0 and exc.source == "bytes" for exc in refusals if exc is not None)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_or_refused(data: bytes, prefixed: bool) -> None:  # noqa: FBT001 - drawn
    read_everything(with_prefix(data) if prefixed else data)


@settings(max_examples=300, deadline=None)
@given(messages, st.binary(max_size=40), st.data())
def test_damaged_files_are_read_or_refused(message: Any, segments: bytes, draw: st.DataObject) -> None:
    data = bytearray(with_prefix(message.SerializeToString()) + segments)
    for _ in range(draw.draw(st.integers(0, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    whole = bytes(data[: draw.draw(st.integers(0, len(data)))])

    read_everything(whole)
    read_everything(zstandard.compress(whole))


@settings(max_examples=100, deadline=None)
@given(messages, st.integers(1, 30))
def test_collector_reads_what_the_whole_header_says(message: Any, step: int) -> None:
    data = with_prefix(message.SerializeToString())
    assume(read_header(data)[0] == 0)
    try:
        expected = parse_header(data)
    except DumpFormatError:
        assume(False)
    collector = HeaderCollector()

    rests = [collector.add(data[start : start + step]) for start in range(0, len(data), step)]

    assert collector.header == expected
    assert [rest for rest in rests if rest is not None] == [b""]


@pytest.mark.parametrize(
    "data",
    [
        (2**31 - 1).to_bytes(8, "little") + bytes(1000),
        (60 << 20).to_bytes(8, "little") + bytes(1000),
        with_prefix(b"\x1a\x0b\x30" + b"\xff" * 9 + b"\x01"),
        with_prefix(b"\x1a\x0e\x08\x01\x1a\x00\x30" + b"\xff" * 8 + b"\x7f"),
        with_prefix(b"\x32\xff\xff\xff\x7f"),
        b"\x1a\xff\xff\xff\xff\x07",
    ],
    ids=["2 GiB header", "60 MiB header", "size of 2**64-1", "size of 2**63-1", "long name", "long segment"],
)
def test_claims_take_no_memory(data: bytes) -> None:
    for source in (data, zstandard.compress(data)):
        tracemalloc.start()
        try:
            read_everything(source)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert peak < 4 << 20


def test_header_of_random_fields_takes_memory_in_proportion() -> None:
    message = b"\x1a\x00" * 60_000 + b"\xfa\x05\x7f" + os.urandom(127)

    tracemalloc.start()
    try:
        parse_header(with_prefix(message))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1000 * len(message)
