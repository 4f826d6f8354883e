from __future__ import annotations

import json
import math
import re

import pytest

from dumpstream.statistics.table import (
    COLUMNS,
    Condition,
    SortKey,
    TensorRow,
    TensorRows,
    json_object,
    sort_columns,
)

#: As the documents promise them; what follows may grow.
PROMISED = (
    *("file", "op_type", "op_name", "model", "iteration", "device", "task", "stream", "timestamp"),
    *("io", "index", "dtype", "format", "shape", "count", "max", "min", "mean", "l2norm", "std"),
    *("nan", "pos_inf", "neg_inf", "zero", "negative", "subnormal"),
    *("finite_max", "finite_min", "finite_mean", "hash"),
)


def test_the_columns_come_in_the_promised_order() -> None:
    assert tuple(COLUMNS)[: len(PROMISED)] == PROMISED


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("nan > 0", True),
        ("nan>0", True),
        (" nan >= 2 ", True),
        ("nan != 2", False),
        ("nan == 2", True),
        ("nan = 2.0", True),
        ("max < inf", False),
        ("min <= -1e-3", True),
        ("max >= 0", False),  # NaN is neither
        ("std > 0", False),  # not known
        ("count == 9223372036854775807", True),
        ("count == 9223372036854775806", False),
    ],
)
def test_a_condition_compares_a_column_with_a_number(text: str, holds: bool) -> None:  # noqa: FBT001 - a parameter
    row = TensorRow("a", nan=2, max=math.nan, min=-0.5, count=2**63 - 1)

    assert bool(TensorRows([row]).where([Condition.parse(text)])) is holds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nan", "no condition 'nan'; write COLUMN OP NUMBER, for example nan > 0"),
        ("nan > 0 or 1", "no condition"),
        ("__import__('os') > 0", "no condition"),
        ("nans > 0", "no column 'nans'; the columns are file, op_type"),
        ("op_name == 1", "op_name does not hold numbers; conditions compare iteration, device"),
        ("shape == 1", "shape does not hold numbers"),
        ("nan > many", "'many' is not a number; write for example 0, -1.5, 1e-6 or inf"),
    ],
)
def test_a_condition_that_is_none_is_refused_with_the_remedy(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        Condition.parse(text)


def test_rows_are_sorted_by_one_column_and_then_the_next() -> None:
    rows = [TensorRow(name, nan=nan) for name, nan in [("b", 1), ("a", 1), ("c", 2)]]

    found = sort_columns(
        TensorRows(rows).columns(["file", "nan", "max"]), [SortKey.parse("nan:desc"), SortKey.parse("file")]
    )

    assert found["file"] == ["c", "a", "b"]


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
