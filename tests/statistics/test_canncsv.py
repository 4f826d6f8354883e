from __future__ import annotations

import csv
import math

import pytest

from dumpstream.simulation import Workload
from dumpstream.statistics.canncsv import DEFAULT_SELECTION, SELECTABLE, CannCsv
from dumpstream.statistics.devicestats import DeviceText
from dumpstream.statistics.table import TensorRow
from dumpstream.statistics.tensors import TensorRows

BASE = "Input/Output,Index,Data Size,Data Type,Format,Shape"
ROW = TensorRow(
    "dir/a,b",
    io="output",
    index=1,
    size=48,
    dtype="float32",
    format="NC1HWC0",
    shape=(3, 4),
    count=12,
    max=1234567.0,
    min=-0.1234567,
    mean=1 / 3,
    l2norm=1e-9,
    nan=0,
    neg_inf=1,
    pos_inf=2,
)


def lines(text: CannCsv, *rows: TensorRow) -> str:
    return text.lines(TensorRows(rows).columns(text.columns))


def test_the_default_selection_has_the_count_in_its_middle() -> None:
    text = CannCsv()

    counts = "Count,Nan Count,Negative Inf Count,Positive Inf Count"
    assert text.header == f"{BASE},Max Value,Min Value,Avg Value,{counts}\n"
    assert lines(text, ROW) == "Output,1,48,DT_FLOAT,NC1HWC0,3x4,1.23457e+06,-0.123457,0.333333,12,0,1,2\n"


@pytest.mark.parametrize(
    ("selection", "cells", "values"),
    [
        (["Max"], "Count,Max Value", "12,1.23457e+06"),
        (["L2norm", "Min"], "Count,Min Value,l2norm", "12,-0.123457,1e-09"),
        (
            [*SELECTABLE],
            "Count,Max Value,Min Value,Avg Value,Nan Count,Negative Inf Count,Positive Inf Count,l2norm",
            "12,1.23457e+06,-0.123457,0.333333,0,1,2,1e-09",
        ),
    ],
)
def test_other_selections_have_the_count_first_and_canns_order(
    selection: list[str], cells: str, values: str
) -> None:
    text = CannCsv(selection)

    assert text.header == f"{BASE},{cells}\n"
    assert lines(text, ROW) == f"Output,1,48,DT_FLOAT,NC1HWC0,3x4,{values}\n"


def test_the_default_selection_may_be_given_in_any_order() -> None:
    assert CannCsv(DEFAULT_SELECTION[::-1]).header == CannCsv().header


def test_a_selection_that_cann_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="no statistic 'Median'; dump_stats knows Max, Min, Avg, Nan"):
        CannCsv(["Max", "Median"])


def test_integers_are_written_in_full_and_unknowns_as_cann_spells_them() -> None:
    row = TensorRow(
        "a", io="input", index=0, size=8, dtype="int64", shape=(), max=2**63 - 1, min=-(2**63), count=1
    )

    (line,) = lines(CannCsv(), row).splitlines()

    assert line == "Input,0,8,DT_INT64,UNKNOW,-,9223372036854775807,-9223372036854775808,NA,1,NA,NA,NA"


def test_a_format_without_a_name_is_unknown() -> None:
    assert ",DT_FLOAT,UNKNOW,-," in lines(
        CannCsv(), TensorRow("a", io="input", dtype="float32", format="UNKNOWN_99")
    )


def test_what_is_not_finite_is_written_as_c_writes_it() -> None:
    row = TensorRow(
        "a", io="input", index=0, size=8, dtype="float16", max=math.inf, min=-math.inf, mean=math.nan
    )

    assert ",inf,-inf,nan,NA," in lines(CannCsv(), row)


@pytest.mark.parametrize("io", ["buffer", "space", None])
def test_cann_has_no_lines_for_buffers_and_spaces(io: str | None) -> None:
    assert lines(CannCsv(), TensorRow("a", io=io)) == ""


def test_columns_in_front_are_quoted_where_needed() -> None:
    text = CannCsv(["Max"], front=["file", "shape", "op_name"])

    header, line = csv.reader([text.header, lines(text, ROW)])

    assert header[:4] == ["file", "shape", "op_name", "Input/Output"]
    assert line[:4] == ["dir/a,b", "3x4", "", "Output"]


def test_the_runtimes_own_text_comes_out_as_it_went_in() -> None:
    workload = Workload.parse("models=1,ops=6,stats_text=0.99")
    texts = [file.data.decode() for file in workload.expected_files("/dump") if file.fault]

    for text in texts:
        device = DeviceText(TensorRow("a.csv"))
        device.add(memoryview(text.encode()))
        written = CannCsv()
        assert written.header + lines(written, *device.finish()) == text
    assert texts
