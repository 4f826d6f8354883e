from __future__ import annotations

import json
import math
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.simulation import Workload
from dumpstream.statistics.canncsv import CannCsv
from dumpstream.statistics.devicestats import MAX_LINES, DeviceText
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.table import COLUMNS, TensorRow, json_object
from dumpstream.statistics.tensors import TensorRows

BASE = "Input/Output,Index,Data Size,Data Type,Format,Shape"
DEFAULT = f"{BASE},Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count\n"


def parse(text: str | bytes, pieces: int = 1 << 20) -> list[TensorRow]:
    data = memoryview(text.encode() if isinstance(text, str) else text)
    device = DeviceText(TensorRow("op.csv", op_type="Add"))
    for start in range(0, len(data), pieces):
        device.add(data[start : start + pieces])
    return device.finish()


@pytest.mark.parametrize("pieces", [1, 5, 1 << 20])
def test_a_line_becomes_a_row_marked_as_the_devices(pieces: int) -> None:
    (row,) = parse(f"{DEFAULT}Input,1,24,DT_FLOAT16,ND,2x6,3.5,-1,0.25,12,1,2,3\n", pieces)

    assert (row.source, row.file, row.op_type, row.problem) == ("device", "op.csv", "Add", None)
    assert (row.io, row.index, row.size, row.dtype) == ("input", 1, 24, "float16")
    assert (row.format, row.shape, row.count) == ("ND", (2, 6), 12)
    assert (row.max, row.min, row.mean) == (3.5, -1.0, 0.25)
    assert (row.nan, row.neg_inf, row.pos_inf) == (1, 2, 3)
    assert (row.std, row.l2norm, row.hash, row.bytes) == (None, None, None, None)


def test_the_header_tells_which_cell_is_which() -> None:
    text = f"{BASE},Count,Min Value,l2norm\nOutput,0,8,DT_INT64,ND,1,1,-9223372036854775808,9.22337e+18\n"

    (row,) = parse(text)

    assert (row.count, row.min, row.max, row.l2norm) == (1, -(2**63), None, 9.22337e18)


def test_a_line_without_values_may_lack_the_count() -> None:
    text = f"{BASE},Count,Max Value,Min Value\nInput,0,8,DT_FLOAT,ND,2,NA,NA\nInput,1,8,DT_FLOAT,ND,2,2,1,0\n"

    empty, row = parse(text)

    assert (empty.count, empty.max, empty.min, empty.problem) == (None, None, None, None)
    assert (row.count, row.max, row.min) == (2, 1.0, 0.0)


SELECTABLE = [
    "Max Value",
    "Min Value",
    "Avg Value",
    "Nan Count",
    "Negative Inf Count",
    "Positive Inf Count",
    "l2norm",
]


@given(selected=st.sets(st.integers(0, 6), min_size=1), has_values=st.booleans())
def test_selections_after_the_default_one_are_read_as_cann_prints_them(
    *, selected: set[int], has_values: bool
) -> None:
    # After the default selection, CANN has its count before the NaNs, and the header has it once too often.
    chosen = sorted(selected)
    header, line = [BASE, "Count"], ["Input,1,24,DT_FLOAT,ND,2x3"]
    for place, number in enumerate(chosen):
        if number == 3:
            header.append("Count")
        if (number if has_values else place) == 3:
            line.append("6")
        header.append(SELECTABLE[number])
        line.append(str(number + 10) if has_values else "NA")

    (row,) = parse(f"{','.join(header)}\n{','.join(line)}\n")

    numbers = [row.max, row.min, row.mean, row.nan, row.neg_inf, row.pos_inf, row.l2norm]
    assert row.problem is None
    assert row.count == (6 if "6" in line else None)
    assert numbers == [
        number + 10 if number in selected and has_values else None for number in range(len(SELECTABLE))
    ]


def test_a_line_that_ends_early_is_damage_and_not_a_line_without_its_count() -> None:
    (row,) = parse(f"{BASE},Count,Max Value,Min Value\nInput,0,8,DT_FLOAT,ND,2,2,1")

    assert row.max is None
    assert row.problem is not None
    assert "has 8 cells, and its header 9" in row.problem


def test_the_operators_name_may_stand_in_front() -> None:
    text = "Op Name,Op Type,Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value\n"

    (row,) = parse(f"{text}conv1,-,Output,2,8,DT_FLOAT,ND,2,2,7.5\n")

    assert row.op_type == "Add"  # from the name of the file
    assert (row.op_name, row.io, row.index, row.count, row.max) == ("conv1", "output", 2, 2, 7.5)


def test_statistics_of_msprobe_are_read() -> None:
    text = (
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,Input/Output,Slot,Data Size,Data Type,Format,Shape,"
        "Max Value,Min Value,Avg Value,L2Norm Value,NaN Count,MD5 Value\n"
        "Conv2D,conv1,4,2,1780159660546556,input,0,8,DT_FLOAT,ND,2,3,1,2,3.16228,0,abc\n"
    )

    (row,) = parse(text)

    assert (row.op_type, row.op_name, row.task, row.stream) == ("Conv2D", "conv1", 4, 2)
    assert (row.timestamp, row.io, row.index, row.l2norm, row.nan) == (
        1780159660546556,
        "input",
        0,
        3.16228,
        0,
    )


def test_a_line_without_values_has_the_count_in_the_default_selection() -> None:
    rows = parse(
        f"{DEFAULT}" + "".join(f"Input,0,8,DT_FLOAT,ND,2,NA,NA,NA,{it},NA,NA,NA\n" for it in ("NA", 2))
    )

    assert [(row.shape, row.count, row.mean, row.nan) for row in rows] == [
        ((2,), None, None, None),
        ((2,), 2, None, None),
    ]


def test_cells_may_be_empty_and_names_unknown() -> None:
    (row,) = parse(f"{DEFAULT}Input,0,8,-,UNKNOW,-,,,,,,,\n")

    assert (row.dtype, row.format, row.shape, row.max, row.count) == (None, None, None, None, None)


def test_headers_and_nuls_in_the_middle_are_no_rows() -> None:
    line = "Input,0,4,DT_INT32,ND,1,7,7,7,1,0,0,0\n"

    rows = parse(f"{DEFAULT}{line}\0{DEFAULT}{line}\0")

    assert [(row.max, row.problem) for row in rows] == [(7, None)] * 2


def test_a_later_header_with_other_cells_counts_from_then_on() -> None:
    text = f"{DEFAULT}Input,0,4,DT_INT32,ND,1,7,6,6.5,1,0,0,0\n{BASE},Count,Count,Max Value\n"

    first, second = parse(f"{text}Input,1,4,DT_INT32,ND,1,3,3,9\n")

    assert (first.max, first.min) == (7, 6)
    assert (second.count, second.max, second.min) == (3, 9, None)


def test_a_text_that_begins_in_the_middle_is_read_by_the_default_header() -> None:
    (row,) = parse("Output,0,4,DT_INT32,ND,1,7,6,6.5,1,0,0,0\n")

    assert (row.io, row.max, row.min, row.mean) == ("output", 7, 6, 6.5)


@pytest.mark.parametrize(
    ("dtype", "printed", "extremes"),
    [
        ("DT_UINT32", "-1,0,2.14748e+09", (2**32 - 1, 0)),  # 32 bits, read as signed
        ("DT_UINT32", "7,0,3", (7, 0)),
        ("DT_UINT64", "-1,0,2.14748e+09", (2**32 - 1, 0)),
        ("DT_UINT64", "18446744073709551615,0,9.22337e+18", (2**64 - 1, 0)),
        ("DT_UINT64", "5,0,1e+12", (None, None)),
        ("DT_DOUBLE", "1.5,-2.25,0.5", (1.5, -2.25)),  # by the AI CPU, which prints what they are
        ("DT_DOUBLE", "3,1,2", (3.0, 1.0)),
        ("DT_DOUBLE", "0,0,0.5", (None, None)),
        ("DT_DOUBLE", "1717986918,-858993459,0.5", (None, None)),
        ("DT_DOUBLE", "3,1,nan", (None, None)),
        ("DT_FLOAT", "3,1,nan", (3.0, 1.0)),
    ],
)
def test_extremes_that_were_printed_as_32_bits_are_put_right_or_unknown(
    dtype: str, printed: str, extremes: tuple[float | None, float | None]
) -> None:
    (row,) = parse(f"{DEFAULT}Input,0,8,{dtype},ND,1,{printed},1,0,0,0\n")

    assert (row.max, row.min) == extremes
    assert (row.problem is None) == (extremes[0] is not None)


@pytest.mark.parametrize(
    ("dtype", "printed", "extreme"),
    [
        ("DT_UINT32", "-1,2.14748e+09", 2**32 - 1),
        ("DT_UINT64", "5,1e+12", None),
        ("DT_DOUBLE", "1717986918,0.5", None),
        ("DT_DOUBLE", "1.5,0.5", 1.5),
        ("DT_FLOAT", "3,nan", 3.0),
    ],
)
def test_an_extreme_that_was_selected_alone_is_put_right_or_unknown(
    dtype: str, printed: str, extreme: float | None
) -> None:
    (row,) = parse(f"{BASE},Count,Max Value,Avg Value\nInput,0,8,{dtype},ND,1,1,{printed}\n")

    assert (row.max, type(row.max), row.min) == (extreme, type(extreme), None)
    assert (row.problem is None) == (extreme is not None)


def test_counts_above_two_billion_are_put_right() -> None:
    (row,) = parse(f"{DEFAULT}Input,0,8,DT_INT8,ND,3000000000,1,0,0.5,-1294967296,0,0,0\n")

    assert row.count == 3_000_000_000


def test_not_a_number_and_infinities_are_read() -> None:
    (row,) = parse(f"{DEFAULT}Input,0,8,DT_FLOAT,ND,1,inf,-inf,-nan,1,0,1,1\n")

    assert (row.max, row.min) == (math.inf, -math.inf)
    assert math.isnan(row.mean or 0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hash,original_basename\n", "is not statistics text: it begins with 'hash'"),
        ("x" * 200_000, "is not statistics text: a line has more than 65536 bytes"),
        (f"{DEFAULT}Input,0\n", "is damaged: line 2 has 2 cells, and its header 13; dump it again"),
        (f"{DEFAULT}and more\n", "is damaged: line 2 does not begin with Input or Output; dump it again"),
        (
            f"{DEFAULT}Input,0,8,DT_FLOAT,ND,1,big,0,0,1,0,0,0\n",
            "is damaged: line 2 has 'big', which is not a number; dump it again",
        ),
        (
            f"{DEFAULT}Input,0,{'9' * 20},DT_FLOAT,ND,1,0,0,0,1,0,0,0\n",
            f"is damaged: line 2 has '{'9' * 20}', which is not an integer of 64 bits; dump it again",
        ),
    ],
)
def test_what_cannot_be_read_is_a_row_with_the_problem(text: str, problem: str) -> None:
    (row,) = parse(text)

    assert (row.io, row.problem) == (None, problem)


def test_lines_around_a_damaged_one_are_read() -> None:
    line = "Input,0,4,DT_INT32,ND,1,7,7,7,1,0,0,0\n"

    rows = parse(f"{DEFAULT}{line}Input,1,4\n{line}")

    assert [row.io for row in rows] == ["input", "input", None]


def test_a_flood_of_lines_ends() -> None:
    rows = parse(DEFAULT + "Input,0,4,DT_INT32,ND,1,7,7,7,1,0,0,0\n" * (MAX_LINES + 10))

    assert len(rows) == MAX_LINES
    assert rows[-1].problem == f"has more than {MAX_LINES} lines; the rest is not read"


def test_the_text_of_the_simulated_runtime_is_understood() -> None:
    workload = Workload.parse("models=1,ops=4,stats_text=0.99")
    texts = [file.data for file in workload.expected_files("/dump") if file.fault]

    rows = [row for text in texts for row in parse(text)]

    assert len(rows) == 3 * len(texts) > 0
    assert not any(row.problem for row in rows)


CELLS = st.sampled_from(
    [
        *("", "-", "NA", "0", "-1", "1x-2", "2x3", "nan", "-inf", "1e400", "9" * 20, "-" + "9" * 20),
        *("Input", "DT_DOUBLE", "DT_UINT64", "DT_FLOAT", "ND", "x", "\u0663", "1_0", " 7 "),
    ]
)


@given(st.lists(st.lists(CELLS, min_size=12, max_size=12), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_whatever_is_read_can_be_written(lines: list[list[str]]) -> None:
    rows = parse(DEFAULT + "".join(f"Input,{','.join(cells)}\n" for cells in lines))

    columns = TensorRows(rows).columns(COLUMNS)
    ParquetWriter(BytesIO()).write(columns)
    assert json.dumps([json_object(row) for row in rows], allow_nan=False)
    assert CannCsv().lines(columns).count("\n") == len([row for row in rows if row.io])


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_no_text_raises(text: bytes) -> None:
    rows = parse(DEFAULT.encode() + text, pieces=7)

    assert all(row.source == "device" for row in rows)
