from __future__ import annotations

import gc
import math
from contextlib import suppress
from dataclasses import replace
from io import BytesIO

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream import DumpstreamError
from dumpstream.statistics.parquet import ParquetWriter, read_tensors, require_pyarrow
from dumpstream.statistics.table import COLUMNS, Address, TensorRow
from dumpstream.statistics.tensors import TensorRows, rows_of

FULL = TensorRow(
    "/dump/0//a",
    "Add",
    "add",
    "resnet",
    io="output",
    timestamp=1780159660546556,
    dtype="uint64",
    shape=(2, 3),
    count=6,
    max=2**64 - 1,
    min=2**63 + 1,
    mean=1.5,
    finite_max=2**64 - 1,
    finite_min=2**63 + 1,
    hash="0123456789abcdef",
    saturated=0.25,
    histogram=(1, 2, 3),
    original_shape=(),
    address=Address(2**64 - 1),
    model_id=7,
)


def written(*groups: list[TensorRow], columns: tuple[str, ...] = tuple(COLUMNS)) -> BytesIO:
    file = BytesIO()
    writer = ParquetWriter(file, columns)
    for group in groups:
        writer.write(TensorRows(group).columns(columns))
    writer.close()
    file.seek(0)
    return file


def read_rows(file: BytesIO) -> list[TensorRow]:
    return [row for tensors in read_tensors(file) for row in rows_of(tensors)]


def test_rows_come_back_as_they_were() -> None:
    rows = [FULL, TensorRow("b", problem="is damaged"), TensorRow("c", max=3, min=-3, source="device")]

    assert read_rows(written(rows[:1], rows[1:])) == rows


def test_not_a_number_is_told_from_unknown() -> None:
    (row,) = read_rows(written([TensorRow("a", max=math.nan, mean=math.inf)]))

    assert math.isnan(row.max or 0)
    assert (row.mean, row.min) == (math.inf, None)


def test_columns_have_types_that_others_can_compute_with() -> None:
    schema = pyarrow.parquet.read_schema(written([FULL]))

    types = {name: str(schema.field(name).type) for name in schema.names}
    assert {
        "op_name": "string",
        "nan": "int64",
        "mean": "double",
        "address": "uint64",
        "shape": "list<element: uint64>",
    }.items() <= types.items()
    assert (types["max"], types["max_integer"]) == ("double", "decimal128(20, 0)")
    assert [name for name in types if not name.endswith("_integer")] == [*COLUMNS]


def test_a_selection_of_columns_is_a_table_too() -> None:
    file = written([FULL], columns=("op_name", "max"))

    assert pyarrow.parquet.read_schema(file).names == ["op_name", "max", "max_integer"]
    assert [(row.op_name, row.max, row.count) for row in read_rows(file)] == [("add", 2**64 - 1, None)]


def test_a_column_may_come_twice() -> None:
    columns = ("file", "max", "max")

    assert read_rows(written([FULL], columns=columns)) == [TensorRow(FULL.file, max=FULL.max)]


def test_a_writer_that_is_discarded_writes_nothing_more() -> None:
    file = BytesIO()
    writer = ParquetWriter(file)
    writer.write(TensorRows([FULL]).columns(COLUMNS))
    file.close()
    writer.discard()

    del writer
    gc.collect()  # an error here would be a warning, and a warning fails the test


def test_names_that_are_not_utf8_are_written_as_the_journal_shows_them() -> None:
    (row,) = read_rows(written([TensorRow("a\udcff\u00e9")]))

    assert row.file == "a\\udcff\u00e9"


def test_numbers_of_more_than_64_bits_are_unknown() -> None:
    forged = TensorRow("a", task=10**20, size=2**64, stream=5, address=Address(2**64))

    (row,) = read_rows(written([forged]))

    assert (row.task, row.size, row.stream, row.address) == (None, None, 5, None)


def test_a_table_that_was_written_without_addresses_has_rows_without() -> None:
    columns = tuple(name for name in COLUMNS if name != "address")

    assert read_rows(written([FULL], columns=columns)) == [replace(FULL, address=None)]


def test_what_is_no_table_is_refused() -> None:
    other = BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"loss": [1.0]}), other)

    with pytest.raises(DumpstreamError, match="is not a table of statistics"):
        [*read_tensors(other)]
    texts = BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"file": ["a"], "count": ["3"]}), texts)
    with pytest.raises(DumpstreamError, match="is not a table of statistics"):
        [*read_tensors(texts)]
    with pytest.raises(DumpstreamError, match="cannot be read as Parquet"):
        [*read_tensors(BytesIO(b"PAR1 or so"))]


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumpstream.statistics.parquet.find_spec", lambda _: None)

    with pytest.raises(DumpstreamError, match=r"pip install 'dumpstream\[parquet\]'"):
        require_pyarrow()


def table_with(**columns: object) -> BytesIO:
    file = BytesIO()
    table = pyarrow.table({"io": ["input"] * 3, "nan": [1, 1, 1], **columns})
    pyarrow.parquet.write_table(table, file, compression="zstd")
    return file


def repeated(value: object, type_: pyarrow.DataType) -> pyarrow.Array:
    """Return a column of three rows in which *value* is once."""
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 0, 0]), pyarrow.array([value], type_))


@pytest.mark.parametrize(
    "column",
    [
        {"file": repeated("x" * (1 << 20), pyarrow.string())},
        {"problem": pyarrow.array([None, None, "x" * (1 << 20)])},
        {"op_name": repeated("x" * (1 << 20), pyarrow.large_string())},
        {"op_name": repeated(b"x" * (1 << 20), pyarrow.binary())},
        {"shape": pyarrow.array([[], [], [1] * 100_000], pyarrow.list_(pyarrow.uint64()))},
    ],
    ids=["file", "problem", "large", "binary", "shape"],
)
def test_a_value_that_would_take_much_memory_in_every_row_is_refused(column: dict[str, object]) -> None:
    with pytest.raises(DumpstreamError, match="a value has a length of"):
        read_rows(table_with(**column))


@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array([["a"], ["a"], ["a"]]),
        pyarrow.array([{"a": 1}] * 3),
        pyarrow.array([1, 2, 3]),
    ],
    ids=["list", "struct", "number"],
)
def test_a_column_of_text_has_texts(column: pyarrow.Array) -> None:
    with pytest.raises(DumpstreamError, match="other columns"):
        read_rows(table_with(op_name=column))


@pytest.mark.parametrize(
    "column",
    [{"file": [b"a", b"b", b"c"]}, {"max_integer": ["1", "2", "3"]}, {"max_integer": [1.0, math.nan, 2.0]}],
    ids=["bytes as names", "texts as integers", "floats as integers"],
)
def test_names_are_text_and_integers_are_integers(column: dict[str, list[object]]) -> None:
    with pytest.raises(DumpstreamError, match="other columns"):
        read_rows(table_with(**column))


def test_shapes_may_be_the_lists_of_another_writer() -> None:
    shapes = pyarrow.array([[2, 3], [], None], pyarrow.large_list(pyarrow.int64()))

    assert [row.shape for row in read_rows(table_with(shape=shapes))] == [(2, 3), (), None]


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_damaged_table_is_read_or_one_error(data: st.DataObject) -> None:
    whole = written([FULL, replace(FULL, op_name="other")], [FULL]).getvalue()
    damaged = bytearray(whole)
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=8)):
        damaged[place] = data.draw(st.integers(0, 255))

    with suppress(DumpstreamError):
        read_rows(BytesIO(damaged))


def test_a_row_group_of_very_many_rows_is_refused() -> None:
    file = BytesIO()
    count = (1 << 21) + 1
    table = pyarrow.table({"nan": pyarrow.repeat(pyarrow.scalar(0), count)})
    pyarrow.parquet.write_table(table, file, row_group_size=count)

    with pytest.raises(DumpstreamError, match="in smaller row groups"):
        read_rows(file)


def test_text_that_is_not_utf_8_is_one_error() -> None:
    forged = pyarrow.Array.from_buffers(
        pyarrow.string(), 3, pyarrow.array([b"a", b"\xff\xfe", b"c"]).buffers()
    )

    with pytest.raises(DumpstreamError, match="cannot be read as Parquet"):
        read_rows(table_with(op_name=forged))
