"""Rows of whole files and of files in pieces; headers are written here byte by byte."""

from __future__ import annotations

import struct
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import field

from dumpstream.simulation import Workload
from dumpstream.statistics.files import begin_file, origin_of, whole_file
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.table import COLUMNS
from dumpstream.statistics.tensors import TensorRows

if TYPE_CHECKING:
    from dumpstream.statistics.table import TensorRow

NAME = "/dump/20260530164725/3//resnet/7/12/Conv2D.conv1.4.65535.1780159660546556"
FLOATS = np.array([1, 2, 3, 4], "<f4").tobytes()
INTEGERS = np.array([5, -6], "<i8").tobytes()
FLOAT, INT64 = 1, 8


def segment(io: str, dtype: int, size: int, *, address: int = 1, data: bytes = b"") -> bytes:
    """An input or output with one dimension; *data* is for version 1."""
    fields = {"output": (5, 6, 9), "input": (4, 5, 8)}[io]
    shape = field(3, field(1, size // (8 if dtype == INT64 else 4)))
    values: list[int | bytes] = [data, size, address]
    known = b"".join(field(number, value) for number, value in zip(fields, values, strict=True) if value)
    return field(3 if io == "output" else 4, field(1, dtype) + field(2, 2) + shape + known)


def dump(*segments: bytes, data: bytes = b"", op_name: str = "") -> bytes:
    message = field(1, b"2.0") + b"".join(segments) + (field(6, op_name.encode()) if op_name else b"")
    return struct.pack("<Q", len(message)) + message + data


TWO = (segment("input", FLOAT, 16), segment("output", INT64, 16))


def rows_of(data: bytes, name: str = NAME, pieces: int = 0) -> list[TensorRow]:
    """Return the rows of a whole file, or of one that comes in pieces of so many bytes."""
    if not pieces:
        return whole_file(origin_of(name), memoryview(data))
    statistics = begin_file(origin_of(name))
    for start in range(0, len(data), pieces):
        statistics.add(memoryview(data)[start : start + pieces])
    return statistics.finish()


@pytest.mark.parametrize("pieces", [0, 1, 7, 4096])
def test_every_tensor_gets_a_row_with_what_the_name_and_the_header_say(pieces: int) -> None:
    rows = rows_of(dump(*TWO, data=FLOATS + INTEGERS), pieces=pieces)

    first, second = rows
    assert (first.op_type, first.op_name, first.model, first.iteration) == ("Conv2D", "conv1", "resnet", 12)
    assert (first.device, first.task, first.stream, first.model_id) == (3, 4, 65535, 7)
    assert (first.timestamp, first.file, first.source) == (1780159660546556, NAME, "host")
    assert (first.io, first.index, first.dtype, first.format) == ("input", 0, "float32", "ND")
    assert (first.shape, first.count, first.max, first.mean) == ((4,), 4, 4.0, 2.5)
    assert (second.io, second.dtype, second.max, second.min) == ("output", "int64", 5, -6)
    assert [(row.size, row.bytes, row.problem) for row in rows] == [(16, 16, None)] * 2


@pytest.mark.parametrize("pieces", [0, 3])
def test_addresses_are_kept_to_their_64th_bit_and_null_is_not_one(pieces: int) -> None:
    segments = (segment("input", FLOAT, 16, address=2**64 - 1), segment("output", INT64, 16, address=0))

    rows = rows_of(dump(*segments, data=FLOATS + INTEGERS), pieces=pieces)

    assert [row.address for row in rows] == [2**64 - 1, None]


def test_the_header_names_the_operator_if_the_file_name_does_not() -> None:
    data = dump(*TWO, data=FLOATS + INTEGERS, op_name="model/conv1")

    assert {row.op_name for row in rows_of(data, "unheard-of")} == {"model/conv1"}
    assert {row.op_name for row in rows_of(data)} == {"conv1"}


@pytest.mark.parametrize("pieces", [0, 3])
@pytest.mark.parametrize("dumped", [True, False], ids=["dumped", "left-out"])
def test_the_length_tells_whether_a_tensor_without_address_was_dumped(pieces: int, dumped: bool) -> None:  # noqa: FBT001 - a parameter
    segments = (segment("input", FLOAT, 16, address=0), segment("output", INT64, 16))
    data = dump(*segments, data=(FLOATS if dumped else b"") + INTEGERS)

    first, second = rows_of(data, pieces=pieces)

    assert (first.bytes, first.max) == ((16, 4.0) if dumped else (0, None))
    assert (second.max, second.min) == (5, -6)
    assert first.problem is second.problem is None


@pytest.mark.parametrize("pieces", [0, 3])
def test_a_cut_file_has_statistics_of_what_there_is_and_says_so(pieces: int) -> None:
    first, second = rows_of(dump(*TWO, data=FLOATS[:9]), pieces=pieces)

    assert (first.count, first.max, first.bytes) == (2, 2.0, 9)
    assert first.problem == "input 0 has 9 of its 16 bytes"
    assert (second.count, second.hash, second.problem) == (None, None, "output 0 has 0 of its 16 bytes")


@pytest.mark.parametrize("pieces", [0, 3])
def test_a_file_that_is_too_long_is_a_problem_of_all_its_tensors(pieces: int) -> None:
    rows = rows_of(dump(*TWO, data=FLOATS + INTEGERS + b"12345"), pieces=pieces)

    problem = "has 5 bytes more than its header says; a slice may be in it twice"
    assert [row.problem for row in rows] == [problem] * 2


@pytest.mark.parametrize("pieces", [0, 3])
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a dump file|inside its header"),
        (dump(*TWO)[:20], "inside its header"),
        (b"\xff" * 40, "is not a dump file"),
        (b"#!/bin/sh\necho this is not a dump file\n", "is not a dump file"),
    ],
    ids=["empty", "cut-header", "no-length", "text"],
)
def test_a_file_without_a_header_is_one_row_with_the_problem(pieces: int, data: bytes, problem: str) -> None:
    (row,) = rows_of(data, pieces=pieces)

    assert (row.file, row.io, row.count) == (NAME, None, None)
    assert row.problem is not None
    assert any(part in row.problem for part in problem.split("|"))


def test_a_whole_file_of_version_1_has_its_tensors_inside_the_header() -> None:
    message = field(1, b"1.0") + segment("input", FLOAT, 16, data=FLOATS)

    (row,) = rows_of(message)

    assert (row.io, row.count, row.max, row.problem) == ("input", 4, 4.0, None)


def test_empty_tensors_have_rows() -> None:
    rows = rows_of(dump(segment("input", FLOAT, 0), *TWO, data=FLOATS + INTEGERS), pieces=5)

    assert [(row.io, row.index, row.count) for row in rows] == [
        ("input", 0, 0),
        ("input", 1, 4),
        ("output", 0, 2),
    ]


@pytest.mark.parametrize("pieces", [0, 3])
def test_a_size_beyond_all_memory_is_only_a_claim(pieces: int) -> None:
    (row,) = rows_of(dump(segment("output", FLOAT, 2**63), data=FLOATS), pieces=pieces)

    assert row.count == 4
    assert row.problem == f"output 0 has 16 of its {2**63} bytes"


def test_statistics_text_is_told_by_its_name() -> None:
    text = (
        b"Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value\nInput,0,4,DT_FLOAT,ND,1,1,2\n"
    )

    (row,) = rows_of(text, f"{NAME}.csv")

    assert (row.source, row.max, row.op_type) == ("device", 2.0, "Conv2D")


FILES = [
    (file.name, file.data)
    for text in ("faults,steps=1,tensor_bytes=16-300", "models=1,ops=8,shape=3x5,null_address=0.5")
    for file in Workload.parse(text).expected_files("/dump")
]


@given(st.sampled_from(FILES), st.lists(st.floats(0, 1), max_size=8))
@settings(max_examples=150, deadline=None)
def test_every_split_of_a_file_gives_the_rows_of_the_whole(
    file: tuple[str, bytes], cuts: list[float]
) -> None:
    name, data = file
    statistics = begin_file(origin_of(name))

    for start, stop in pairwise([0, *sorted(int(cut * len(data)) for cut in cuts), len(data)]):
        statistics.add(memoryview(data)[start:stop])

    # Told apart as text, since NaN equals nothing.
    assert repr(statistics.finish()) == repr(whole_file(origin_of(name), memoryview(data)))


@given(st.sampled_from(FILES), st.data())
@settings(max_examples=150, deadline=None)
def test_damage_never_raises_and_can_be_written(file: tuple[str, bytes], data: st.DataObject) -> None:
    name, good = file
    damaged = bytearray(good)
    for place in data.draw(st.lists(st.integers(0, min(len(good), 300) - 1), max_size=5)):
        damaged[place] = data.draw(st.integers(0, 255))

    rows = rows_of(bytes(damaged), name)

    assert all(row.file == name for row in [*rows, *rows_of(bytes(damaged), name, pieces=100)])
    ParquetWriter(BytesIO()).write(TensorRows(rows).columns(COLUMNS))
