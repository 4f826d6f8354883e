"""Arrow tables: rows as typed columns, also from what was measured as columns.

Needs pyarrow, which is slow to import and optional: import this module where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dumpstream._errors import DumpstreamError
from dumpstream.statistics.columns import DIMS, FileColumns, join_columns
from dumpstream.statistics.condition import Comparison, Condition, Mask, mask_of
from dumpstream.statistics.parquet import EXACT
from dumpstream.statistics.table import COLUMNS, HOST, Kind, Provenance
from dumpstream.statistics.tensors import Tensors

_TYPES = {
    Kind.TEXT: pa.string(),
    Kind.WHOLE: pa.int64(),
    Kind.ADDRESS: pa.uint64(),
    Kind.REAL: pa.float64(),
    Kind.EXACT: pa.float64(),
    Kind.LIST: pa.list_(pa.uint64()),
}
_TEXT_TYPES = pa.string(), pa.large_string(), pa.binary(), pa.large_binary()
_INTEGER = pa.decimal128(20)
#: Bytes of a text, or dimensions of a shape; names and problems are shorter.
_LONGEST_VALUE = 16 << 10
#: What integers Arrow can hold, by their type.
_RANGES = {pa.int64(): range(-1 << 63, 1 << 63), pa.uint64(): range(1 << 64)}

_INTEGERS = {column: name for name, column in EXACT.items()}


@cache
def schema_of(columns: tuple[str, ...]) -> pa.Schema:
    """Return the schema of a table with *columns*."""
    fields = [(name, _TYPES[COLUMNS[name]]) for name in columns]
    fields += [(EXACT[name], _INTEGER) for name in columns if name in EXACT]
    return pa.schema(fields)


def table_of(
    columns: Mapping[str, Sequence[Any]], files: Sequence[FileColumns], schema: pa.Schema
) -> pa.Table:
    """Return the rows of *files*, and behind them those in *columns*, as a table."""
    tables = [_table_of_files(join_columns(files), schema)] if files else []
    return pa.concat_tables([*tables, _table_of_columns(columns, schema)])


def _table_of_columns(columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> pa.Table:
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        arrays[name] = _array(name, values)
        if name in EXACT:
            exact = [value if isinstance(value, int) else None for value in values]
            arrays[EXACT[name]] = pa.array(exact, _INTEGER)
    return pa.table(arrays, schema=schema)


def _table_of_files(files: FileColumns, schema: pa.Schema) -> pa.Table:
    arrays: dict[str, Any] = {}
    for name in schema.names:
        if (shared := files.shared(name)) is not None:
            arrays[name] = _array(name, shared[0]).take(pa.array(shared[1]))
        elif name in _INTEGERS:
            arrays[name] = _integers(*files.integers(_INTEGERS[name]))
        elif (numbers := files.numbers(name)) is not None:
            arrays[name] = _known(*numbers, schema.field(name).type)
        elif name in files.shapes:
            arrays[name] = _lists(files.tensors[DIMS[name]], files.shapes[name])
        else:
            arrays[name] = _array(name, files.columns([name])[name])
    return pa.table(arrays, schema=schema)


def table_of_tensors(tensors: Tensors, schema: pa.Schema) -> pa.Table:
    """Return *tensors*, however they are kept, as a table with all columns of *schema*."""
    if isinstance(tensors, ArrowTensors):
        return tensors.complete(schema)
    if isinstance(tensors, FileColumns):
        return _table_of_files(tensors, schema)
    return _table_of_columns(tensors.columns([name for name in schema.names if name in COLUMNS]), schema)


class ArrowTensors(NamedTuple):
    """Rows of a table, of which columns may be missing."""

    table: pa.Table
    prefix: str = ""  #: of `file`, if the rows are of one of several processes
    provenance: Provenance = Provenance()

    def where(self, conditions: Sequence[Condition]) -> ArrowTensors:
        """Return those rows of which all *conditions* are true."""
        if not conditions:
            return self
        return self._replace(table=self.table.filter(pa.array(mask_of(conditions, self._mask))))

    def columns(self, names: Iterable[str]) -> dict[str, list[Any]]:
        """Return the columns *names*, with the values that `TensorRow` has."""
        return {name: self._column(name) for name in names}

    def numbers(self, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        """Return the numbers of a column, and where they are known; None if they are kept otherwise."""
        column = self._stored(name)
        if column is None or not _is_number(column.type):
            return None
        known = np.asarray(column.is_valid())
        return np.asarray(column.fill_null(0) if column.null_count else column), known

    def shared(self, name: str) -> tuple[list[Any], NDArray[Any]] | None:
        """Return values that rows share, and which of them each row has; None if the column has others."""
        column = self._stored(name)
        if column is None:
            return [self._constant(name)], np.zeros(self.table.num_rows, np.intp)
        if not _is_text(column.type):
            return None
        texts = column.unify_dictionaries().combine_chunks()
        prefix = self.prefix if name == "file" else ""
        different = [prefix + text if prefix else text for text in texts.dictionary.to_pylist()]
        if texts.null_count:
            different.append(prefix or None)
        return different, np.asarray(texts.indices.fill_null(len(different) - 1)).astype(np.intp)

    def lists(self, name: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return the lengths of the lists of a column, and their values; None if not all are there."""
        column = self._stored(name)
        if column is None or column.null_count or not _is_list(column.type):
            return None
        whole = column.combine_chunks()
        return np.asarray(pc.list_value_length(whole)), np.asarray(whole.flatten())

    def join(self, others: Iterable[ArrowTensors]) -> ArrowTensors:
        """Return the rows of this and of *others*, which are of the same process."""
        return self._replace(table=pa.concat_tables([self.table, *(other.table for other in others)]))

    def complete(self, schema: pa.Schema) -> pa.Table:
        """Return the rows with all columns of *schema*, those that are not stored included."""
        return pa.table({field.name: self._filled(field) for field in schema}, schema=schema)

    def _filled(self, field: pa.Field) -> pa.ChunkedArray | pa.Array:
        column = self._stored(field.name)
        if column is None:
            return pa.repeat(pa.scalar(self._constant(field.name), field.type), self.table.num_rows)
        if field.name == "file" and self.prefix:
            return pc.binary_join_element_wise(pa.scalar(self.prefix), column.cast(field.type), "")
        return column.cast(field.type)

    def sorted_out(self) -> tuple[ArrowTensors, Iterable[tuple[str, str]]]:
        """Return the rows that are of tensors, and of all rows with a problem the file and the problem."""
        faulty = self._with("problem").columns(["file", "problem"])
        return self._with("io"), zip(faulty["file"], faulty["problem"], strict=True)

    def _with(self, name: str) -> ArrowTensors:
        """Return the rows that have a value in the column *name*."""
        column = self._stored(name)
        empty = self.table.slice(0, 0)
        return self._replace(table=empty if column is None else self.table.filter(column.is_valid()))

    def _mask(self, comparison: Comparison) -> Mask:
        name = comparison.column
        column = self._stored(name)
        if column is None:
            return np.repeat(comparison.mask_of([self._constant(name)]), self.table.num_rows)
        if comparison.suits_doubles and _is_number(column.type):
            values = column.cast(pa.float64(), safe=False).to_numpy()
            return comparison.mask_of_numbers(values, column.is_valid().to_numpy())
        if _is_string(column.type):
            return self._mask_of_texts(comparison, column.unify_dictionaries().combine_chunks())
        return comparison.mask_of(self._column(name))

    def _mask_of_texts(self, comparison: Comparison, texts: pa.DictionaryArray) -> Mask:
        """Return of which of *texts* the comparison is true: each different one is compared once."""
        prefix = self.prefix if comparison.column == "file" else ""
        different = [prefix + text for text in texts.dictionary.to_pylist()]
        places: NDArray[np.int32] = texts.indices.fill_null(len(different)).to_numpy()
        return comparison.mask_of([*different, None])[places]

    def _column(self, name: str) -> list[Any]:
        column = self._stored(name)
        if column is None:
            return [self._constant(name)] * self.table.num_rows
        chunks = [chunk.dictionary_decode() if _is_text(chunk.type) else chunk for chunk in column.chunks]
        values: list[Any] = [value for chunk in chunks for value in chunk.to_pylist()]
        if name == "file" and self.prefix:
            return [self.prefix + (value or "") for value in values]
        if COLUMNS[name] is Kind.LIST:
            return [None if value is None else tuple(value) for value in values]
        return self._exactly(name, values) if COLUMNS[name] is Kind.EXACT else values

    def _constant(self, name: str) -> Any:
        """Return the value that all rows have in a column that is not stored."""
        return {"file": self.prefix, "source": HOST, **self.provenance._asdict()}.get(name)

    def _exactly(self, name: str, values: list[Any]) -> list[Any]:
        """Return the extremes *values* with those of integers as they are, not as the nearest doubles."""
        of_all = name.removeprefix("finite_")
        integers = self._stored(EXACT[of_all])
        if integers is None or integers.null_count == len(integers):
            return values
        return [
            value if integer is None or (value is None and name != of_all) else int(integer)
            for value, integer in zip(values, integers.to_pylist(), strict=True)
        ]

    def _stored(self, name: str) -> pa.ChunkedArray | None:
        places = self.table.schema.get_all_field_indices(name)
        if not places or (name in {"host", "rank"} and self.prefix):
            return None
        column = self.table.column(places[-1])  # `stats --select` writes a column twice if asked to
        return None if name == "capture" and column.null_count == len(column) else column


def may_hold_statistics(schema: pa.Schema) -> bool:
    """Whether all columns are known, and of the types that `TensorRow` has; texts as dictionaries."""
    return all(_suits(field.name, field.type) for field in schema)


def refuse_forged_values(batch: pa.RecordBatch) -> None:
    """Check the texts and lists of *batch*: a few bytes of a forged file can stand for very many.

    Raises:
        DumpstreamError: one is longer than any in a table of statistics.
        ArrowException: a text is not UTF-8, or damaged.
    """
    for column in batch.columns:
        if _is_text(column.type):
            column.validate(full=True)
            lengths = pc.binary_length(column.dictionary)
        elif _is_list(column.type):
            lengths = pc.list_value_length(column)
        else:
            continue
        longest = pc.max(lengths).as_py()
        if longest is not None and longest > _LONGEST_VALUE:
            raise DumpstreamError(f"is not a table of statistics: a value has a length of {longest}")


def _suits(name: str, type_: pa.DataType) -> bool:
    """Whether a column *name* may have values of this type."""
    kind = COLUMNS.get(name)
    if pa.types.is_null(type_):
        return kind is not None or name in _INTEGERS
    if name in _INTEGERS:
        return bool(pa.types.is_integer(type_) or pa.types.is_decimal(type_))
    if kind is Kind.LIST:
        return _is_list(type_) and bool(pa.types.is_integer(type_.value_type))
    if kind is Kind.TEXT:
        return _is_string(type_) if name == "file" else _is_text(type_)
    return kind is not None and (_is_number(type_) or bool(pa.types.is_decimal(type_)))


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _is_text(type_: pa.DataType) -> bool:
    """Whether values of this type are texts, or the bytes that another writer has in their place."""
    return bool(pa.types.is_dictionary(type_)) and type_.value_type in _TEXT_TYPES


def _is_string(type_: pa.DataType) -> bool:
    return _is_text(type_) and type_.value_type in _TEXT_TYPES[:2]


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _array(name: str, values: Sequence[Any]) -> pa.Array:
    """Return the *values* of the column *name*."""
    type_ = _TYPES[COLUMNS[name]]
    if pa.types.is_floating(type_):
        values = [None if value is None else float(value) for value in values]
    return array_of(values, type_)


def array_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return *values*, of which any may be None, as far as Arrow can hold them."""
    try:
        return pa.array(values, type_)
    except UnicodeEncodeError:  # the bytes of a name that are not UTF-8, as the journal shows them
        values = [value and value.encode("utf-8", "backslashreplace").decode() for value in values]
    except OverflowError:  # without those of more than 64 bits, which only a forged name or header has
        values = [value if value in _RANGES[type_] else None for value in values]
    return pa.array(values, type_)


# From records


def _known(values: NDArray[Any], known: NDArray[np.bool_], type_: pa.DataType) -> pa.Array:
    if values.dtype.kind == "u" and type_ == pa.int64():
        # without those beyond 63 bits, which only a forged header has
        values, known = values.astype(np.int64), known & (values < _RANGES[type_].stop)
    return pa.array(values, mask=~known)


def _integers(values: NDArray[np.void], known: NDArray[np.bool_]) -> pa.Array:
    """Return integers of 128 bits, which is what a decimal without a fraction is."""
    bitmap = pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(_INTEGER, len(values), [bitmap, pa.py_buffer(values.tobytes())])


def _lists(lengths: NDArray[np.uint32], values: NDArray[np.uint64]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
