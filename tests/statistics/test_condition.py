"""Conditions are true of the same rows wherever the rows are, and as plain Python has it."""

from __future__ import annotations

import math
import operator
import re
from contextlib import suppress
from fnmatch import fnmatchcase
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.simulation import Workload
from dumpstream.statistics.condition import Bounds, may_hold
from dumpstream.statistics.conditionparser import ConditionError, parse_condition
from dumpstream.statistics.engine import measure_whole
from dumpstream.statistics.parquet import ParquetWriter, read_tensors
from dumpstream.statistics.table import COLUMNS, Kind, Provenance, TensorRow
from dumpstream.statistics.tensors import TensorRows, rows_of

ROW = TensorRow(
    "f",
    op_name="layer_5",
    io="output",
    iteration=4,
    shape=(8, 128),
    nan=2,
    max=math.nan,
    min=-0.5,
    count=2**63 - 1,
    capture="run2",
)


def is_true(text: str, row: TensorRow = ROW) -> bool:
    return bool(TensorRows([row]).where([parse_condition(text)]))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("nan > 0", True),
        ("nan>0", True),
        (" nan >= 2 ", True),
        ("nan != 2", False),
        ("nan = 2.0", True),
        ("0 < nan", True),
        ("2 < nan", False),
        ("min <= -1e-3", True),
        ("min > -.6", True),
        ("min >= -inf", True),
        ("count == 9223372036854775807", True),
        ("count == 9223372036854775806", False),
        ("count == 9_223_372_036_854_775_807", True),
        ("3 <= iteration <= 7", True),
        ("4 < iteration <= 7", False),
        ("7 >= iteration >= 4", True),
        ("iteration == 4 == 4", False),
        ("op_name == 'layer_5'", True),
        ('op_name == "layer_5"', True),
        ("'layer_5' == op_name", True),
        ("op_name != 'layer_5'", False),
        ("op_name ~ 'layer_*'", True),
        ("op_name ~ 'layer'", False),  # a pattern is that of the whole text
        ("op_name ~ 'Layer_*'", False),
        ("op_name ~ 'layer_[0-5]'", True),
        ("op_name !~ '*MatMul*'", True),
        ("shape == '8x128'", True),
        ("shape ~ '*x128'", True),
        ("capture == 'run2'", True),
        ("nan > 2 or io == 'output'", True),
        ("nan > 2 and io == 'output'", False),
        ("nan > 2 and nan > 3 or nan > 1", True),  # and binds more tightly
        ("nan > 2 and (nan > 3 or nan > 1)", False),
        ("not nan > 2", True),
        ("not not nan > 2", False),
        ("NOT (nan > 2 OR io == 'input')", True),
        ("not nan > 1 or nan > 1", True),  # not binds most tightly
    ],
)
def test_a_condition_compares_numbers_and_text(text: str, holds: bool) -> None:  # noqa: FBT001 - a parameter
    if text == "iteration == 4 == 4":
        with pytest.raises(ConditionError, match="needs a column"):
            parse_condition(text)
    else:
        assert is_true(text) is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("max >= 0", False),
        ("max < inf", False),
        ("max == max", None),
        ("max != 0", True),
        ("not max >= 0", True),
        ("max is nan", True),
        ("max is not nan", False),
        ("max is null", False),
        ("std > 0", False),
        ("std != 0", False),
        ("not std > 0", True),
        ("std is null", True),
        ("std is nan", False),
        ("op_type == 'Add'", False),
        ("op_type != 'Add'", False),
        ("op_type !~ 'Add'", False),
        ("op_type is null", True),
        ("op_name IS NOT NULL", True),
    ],
)
def test_nan_and_what_is_not_known(text: str, holds: bool | None) -> None:  # noqa: FBT001 - a parameter
    if holds is None:
        with pytest.raises(ConditionError, match="not with another column"):
            parse_condition(text)
    else:
        assert is_true(text) is holds


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("", "^", "a column belongs there, but the condition ends; write for example nan > 0"),
        ("nan", "   ^", "<, <=, >, >=, ==, != or is belongs behind nan, but the condition ends"),
        ("nan > 0 or 1", "            ^", "belongs behind 1"),
        ("nan > 0 und 1", "        ^^^", "'und' does not belong there; did you mean and?"),
        ("nan > 0, max > 1", "       ^", "',' does not belong there; join conditions by and, or"),
        ("__import__('os') > 0", "^^^^^^^^^^", "no column '__import__'; the columns are file, op_type"),
        ("nan > 0 and iterations < 3", "            ^^^^^^^^^^", "'iterations'; did you mean iteration?"),
        ("Op_Name == 'a'", "^^^^^^^", "no column 'Op_Name'; did you mean op_name?"),
        ("op_name == 1", "           ^", "op_name holds text; put it in quotes: '1'"),
        ("op_name == layer_5", "           ^^^^^^^", "put text in quotes: 'layer_5'"),
        ("op_name < 'a'", "        ^", "op_name holds text; compare it by ==, !=, ~, !~"),
        ("op_name nan", "        ^^^", "==, !=, ~, !~ or is belongs behind op_name, not 'nan'"),
        ("'a*' ~ op_name", "     ^", "the column comes in front of ~"),
        ("shape == 8x128", "         ^^^^^", "put text in quotes: '8x128'"),
        ("nan == '3'", "       ^^^", "nan holds numbers; write the number without quotes"),
        ("nan ~ '3'", "    ^", "nan holds numbers; compare it by <, <=, >, >=, ==, !="),
        ("nan > many", "      ^^^^", "'many' is not a number; write for example 0, -1.5, 1e-6 or inf"),
        ("nan > zero", "      ^^^^", "a column is compared with a number, not with another column"),
        ("max == nan", "       ^^^", "nothing equals nan; write max is nan"),
        ("max == NULL", "       ^^^^", "nothing equals NULL; write max is null"),
        ("op_name is nan", "           ^^^", "op_name does not hold numbers"),
        ("op_name is empty", "           ^^^^^", "behind is comes null or nan"),
        ("3 is null", "^", "a comparison needs a column"),
        ("nan > 0 && max > 1", "        ^^", "'&&' is not known here; write and"),
        ("nan => 0", "    ^^", "write >="),
        ("op_name LIKE 'a%'", "        ^^^^", "write ~ and a pattern"),
        ("op_name =~ 'a*'", "        ^^", "write ~ and a pattern"),
        ("iteration in 3..7", "          ^^", "write a range as 3 <= iteration <= 7"),
        ("iteration == 3..7", "              ^^", "write a range as 3 <= iteration <= 7"),
        ("(nan > 0", "^", "this bracket is not closed; add )"),
        ("nan > 0)", "       ^", "')' does not belong there"),
        ("op_name == 'a", "           ^", "this text has no end; add '"),
        ("nan > -", "      ^", "a number, or text in quotes, belongs there, not '-'"),
        ("nan > 1.2.3", "         ^^", "'.3' does not belong there"),
        ("(" * 101 + "nan > 0" + ")" * 101, " " * 100 + "^", "too many brackets"),
        ("nan > 1__0", "      ^^^^", "'1__0' is not a number; write for example 0, -1.5"),
    ],
)
def test_what_is_not_a_condition_is_refused_at_its_place(text: str, place: str, problem: str) -> None:
    with pytest.raises(ConditionError, match=re.escape(problem)) as raised:
        parse_condition(text)

    assert raised.value.__notes__ == [f"  {text}", f"  {place}"]


@given(st.text(st.sampled_from("na>0=~!'\"() .-+einfordltu_x\n\0é"), max_size=30))
@settings(max_examples=500)
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with suppress(ConditionError):
        TensorRows([ROW]).where([parse_condition(text)])


# Random conditions, as text and as a function of a row

NUMERIC = [name for name, kind in COLUMNS.items() if kind.numeric]
TEXTUAL = [name for name, kind in COLUMNS.items() if kind is Kind.TEXT]
#: Also where doubles and integers part.
NUMBERS = [
    *(0, 1, -1, 3, 0.5, -0.0, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1, 2**63, 2.0**63, -(2**63), 2**64 - 1),
    *(1e308, math.inf, -math.inf, 10**400),
]
TEXTS = ["", "layer_5", "Layer_5", "input", "output", "host", "float32", "é\u4e00", "\udcff", "run"]
PATTERNS = ["*", "layer_?", "*put", "[a-l]*", "?*", "run", "*5*"]
ORDERING: dict[str, Any] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
Drawn = tuple[str, Any]  # the text, and the function


def shown(text: str) -> str:
    """Return *text* as the journal shows what is not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def of_number(column: str, sign: str, number: float) -> Drawn:
    def reference(row: TensorRow) -> bool:
        value = getattr(row, column)
        return value is not None and bool(ORDERING[sign](value, number))

    return f"{column} {sign} {number}", reference


def of_range(column: str, low: float, high: float) -> Drawn:
    def reference(row: TensorRow) -> bool:
        value = getattr(row, column)
        return value is not None and low <= value < high

    return f"{low} <= {column} < {high}", reference


def of_text(column: str, sign: str, text: str) -> Drawn:
    def reference(row: TensorRow) -> bool:
        value = getattr(row, column)
        if value is None:
            return False
        equal = fnmatchcase(shown(value), shown(text)) if "~" in sign else value == text
        return equal is not sign.startswith("!")

    return f"{column} {sign} '{text}'", reference


def of_state(column: str, words: str) -> Drawn:
    def reference(row: TensorRow) -> bool:
        value = getattr(row, column)
        true = value is None if "null" in words else isinstance(value, float) and math.isnan(value)
        return true is not ("not" in words)

    return f"{column} {words}", reference


def of_shape(sign: str, dims: tuple[int, ...]) -> Drawn:
    def reference(row: TensorRow) -> bool:
        return row.shape is not None and (row.shape == dims) is (sign == "==")

    return f"shape {sign} '{'x'.join(map(str, dims))}'", reference


def joined(word: str, parts: list[Drawn]) -> Drawn:
    function = all if word == "and" else any
    return f"({f' {word} '.join(text for text, _ in parts)})", lambda row: function(
        it(row) for _, it in parts
    )


def negated(part: Drawn) -> Drawn:
    return f"not {part[0]}", lambda row: not part[1](row)


numeric, textual = st.sampled_from(NUMERIC), st.sampled_from(TEXTUAL)
numbers = st.sampled_from(NUMBERS)
comparisons = st.one_of(
    st.builds(of_number, numeric, st.sampled_from([*ORDERING]), numbers),
    st.builds(of_range, numeric, numbers, numbers),
    st.builds(of_text, textual, st.sampled_from(["==", "!="]), st.sampled_from(TEXTS)),
    st.builds(of_text, textual, st.sampled_from(["~", "!~"]), st.sampled_from(PATTERNS)),
    st.builds(of_state, st.sampled_from([*COLUMNS]), st.sampled_from(["is null", "is not null"])),
    st.builds(of_state, numeric, st.sampled_from(["is nan", "is not nan"])),
    st.builds(of_shape, st.sampled_from(["==", "!="]), st.sampled_from([(8, 128), (), (3, 5)])),
)
conditions = st.recursive(
    comparisons,
    lambda parts: st.one_of(
        st.builds(joined, st.sampled_from(["and", "or"]), st.lists(parts, min_size=1, max_size=3)),
        st.builds(negated, parts),
    ),
    max_leaves=6,
)

VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.WHOLE: st.sampled_from([None, 0, 1, 3, 2**53, 2**53 + 1, 2**63 - 1]),
    Kind.ADDRESS: st.sampled_from([None, 1, 2**53, 2**53 + 1, 2**64 - 1]),
    Kind.REAL: st.sampled_from([None, 0.0, -0.0, 0.5, 3.0, 2.0**53, 1e308, math.inf, -math.inf, math.nan]),
    Kind.TEXT: st.sampled_from([None, *TEXTS]),
    Kind.LIST: st.sampled_from([None, (), (8, 128), (3, 5)]),
}
VALUES[Kind.EXACT] = VALUES[Kind.REAL] | st.sampled_from([0, 1, 2**53 + 1, 2**64 - 1, -(2**63)])


@st.composite
def rows(draw: st.DrawFn) -> TensorRow:
    values: dict[str, Any] = {name: draw(VALUES[kind]) for name, kind in COLUMNS.items()}
    for name in ("file", "source"):
        values[name] = values[name] or ""
    values["io"] = values["io"] or "input"
    for name in ("max", "min"):  # the extremes of integers are finite
        if isinstance(values[name], int) or isinstance(values[f"finite_{name}"], int):
            values[f"finite_{name}"] = values[name]
    return TensorRow(**values)


def in_parquet(groups: list[list[TensorRow]]) -> BytesIO:
    file = BytesIO()
    writer = ParquetWriter(file)
    for group in groups:
        writer.write(TensorRows(group).columns(COLUMNS))
    writer.close()
    return file


def shown_rows(found: list[TensorRow]) -> list[str]:
    return [shown(repr(row)).replace("\\\\", "\\") for row in found]


@given(st.lists(st.lists(rows(), min_size=1, max_size=4), min_size=1, max_size=4), conditions)
@settings(max_examples=300, deadline=None)
def test_a_condition_is_true_of_rows_and_tables_as_in_plain_python(
    groups: list[list[TensorRow]], condition: Drawn
) -> None:
    text, reference = condition
    wanted = [parse_condition(text)]
    everything = [row for group in groups for row in group]
    expected = shown_rows([row for row in everything if reference(row)])

    of_rows = rows_of(TensorRows(everything).where(wanted))
    tables = read_tensors(in_parquet(groups), conditions=wanted)
    of_table = [row for table in tables for row in rows_of(table.where(wanted))]

    assert shown_rows(of_rows) == expected
    assert shown_rows(of_table) == expected


FILES = [
    (file.name, file.data)
    for text in ("faults,steps=1,tensor_bytes=16-300", "models=1,ops=8,shape=3x5,null_address=0.5,nan=3")
    for file in Workload.parse(text).expected_files("/dump")
]


@given(conditions)
@settings(max_examples=200, deadline=None)
def test_a_condition_is_true_of_measured_columns_as_in_plain_python(condition: Drawn) -> None:
    text, reference = condition
    columns = measure_whole(FILES).columns._replace(provenance=Provenance(1, "run"))
    expected = [row for row in rows_of(columns) if reference(row)]

    assert repr(rows_of(columns.where([parse_condition(text)]))) == repr(expected)


def test_groups_in_which_no_row_can_be_meant_are_not_read() -> None:
    clean = [TensorRow("a", io="input", nan=0, op_name="a", iteration=1)] * 3
    faulty = [TensorRow("b", io="input", nan=7, op_name="b", iteration=2)]
    damaged = [TensorRow("c", problem="is damaged")]
    file = in_parquet([clean, faulty, clean, damaged])

    def read(text: str) -> list[str]:
        tensors = read_tensors(file, conditions=[parse_condition(text)])
        return [name for it in tensors for name in it.columns(["file"])["file"]]

    assert read("nan > 0") == ["b", "c"]
    assert read("nan > 7") == ["c"]
    assert read("op_name == 'b' or iteration == 9") == ["b", "c"]
    assert read("nan > 0 and iteration < 2") == ["c"]
    assert len(read("not nan > 0")) == 8


@pytest.mark.parametrize(
    ("text", "bounds", "may"),
    [
        ("max > 3", None, True),
        ("max > 3", Bounds(0.0, 3.0), False),
        ("op_name == 'b'", Bounds("a", "c"), True),
        ("op_name == 'b'", Bounds("c", "d"), False),
        ("op_name == 'b'", Bounds(b"c", b"d"), True),
        ("op_name == 'b'", Bounds(3, 4), True),
        ("count == 9007199254740993", Bounds(0, 1), True),  # doubles do not tell
        ("count is null", Bounds(0, 1), True),
        ("not count > 3", Bounds(9, 9), True),
    ],
)
def test_bounds_say_where_no_row_can_be_meant(text: str, bounds: Bounds | None, may: bool) -> None:  # noqa: FBT001 - a parameter
    assert may_hold([parse_condition(text)], lambda _: bounds) is may


def test_a_table_of_another_writer_may_have_other_types() -> None:
    file = BytesIO()
    table = {"op_name": [b"a", b"b"], "io": ["input", "output"], "max": [math.nan, 1.0]}
    pyarrow.parquet.write_table(pa.table(table), file)

    for text, count in (("op_name == 'b'", 0), ("max >= 1", 1), ("max is nan", 1), ("not nan > 0", 2)):
        wanted = [parse_condition(text)]
        found = [it.where(wanted) for it in read_tensors(file, conditions=wanted)]
        assert sum(it.table.num_rows for it in found) == count, text
