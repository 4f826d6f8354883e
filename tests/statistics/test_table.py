from __future__ import annotations

import json
import math

import pytest

from dumpstream.statistics.table import (
    COLUMNS,
    SortKey,
    TensorRow,
    json_object,
    parse_order,
    sort_columns,
)
from dumpstream.statistics.tensors import TensorRows

#: As the documents promise them; what follows may grow.
PROMISED = (
    *("file", "op_type", "op_name", "model", "iteration", "device", "task", "stream", "timestamp"),
    *("io", "index", "dtype", "format", "shape", "count", "max", "min", "mean", "l2norm", "std"),
    *("nan", "pos_inf", "neg_inf", "zero", "negative", "subnormal"),
    *("finite_max", "finite_min", "finite_mean", "hash"),
)


def test_the_columns_come_in_the_promised_order() -> None:
    assert tuple(COLUMNS)[: len(PROMISED)] == PROMISED


def test_rows_are_sorted_by_one_column_and_then_the_next() -> None:
    rows = [TensorRow(name, nan=nan) for name, nan in [("b", 1), ("a", 1), ("c", 2)]]

    found = sort_columns(
        TensorRows(rows).columns(["file", "nan", "max"]), [SortKey.parse("nan:desc"), SortKey.parse("file")]
    )

    assert found["file"] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("timestamp", ["capture", "host", "rank", "timestamp"]),
        ("timestamp:desc", ["capture", "host", "rank", "timestamp:desc"]),
        ("iteration, timestamp", ["iteration", "capture", "host", "rank", "timestamp"]),
        ("rank:desc,timestamp,nan", ["rank:desc", "capture", "host", "timestamp", "nan"]),
        ("nan,timestamp,rank", ["nan", "capture", "host", "rank", "timestamp", "rank"]),
        ("", []),
    ],
)
def test_time_orders_the_rows_of_one_process(text: str, columns: list[str]) -> None:
    assert parse_order(text) == [SortKey.parse(column) for column in columns]


@pytest.mark.parametrize("order", ["", ":desc"])
def test_what_has_no_order_comes_last_in_either(order: str) -> None:
    rows = [
        TensorRow("none"),
        TensorRow("nan", max=math.nan),
        TensorRow("one", max=1),
        TensorRow("big", max=2**64 - 1),
    ]

    found = sort_columns(TensorRows(rows).columns(["file", "nan", "max"]), [SortKey.parse(f"max{order}")])

    numbers = ["big", "one"] if order else ["one", "big"]
    assert found["file"] == [*numbers, "nan", "none"]


@pytest.mark.parametrize("text", ["nothing", "nan:down", ""])
def test_a_sort_key_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no column|no order"):
        SortKey.parse(text)


def test_json_has_numbers_that_are_not_finite_as_words() -> None:
    row = TensorRow("a", shape=(2, 3), max=math.inf, min=-math.inf, mean=math.nan, l2norm=1.5, count=2**63)

    found = json.loads(json.dumps(json_object(row), allow_nan=False))

    assert (found["max"], found["min"], found["mean"]) == ("Infinity", "-Infinity", "NaN")
    assert (found["shape"], found["l2norm"], found["count"], found["std"]) == ([2, 3], 1.5, 2**63, None)
    assert [*found] == [*COLUMNS]


def test_json_has_the_columns_asked_for_in_their_order() -> None:
    assert [*json_object(TensorRow("a"), ["nan", "file"]).items()] == [("nan", None), ("file", "a")]
