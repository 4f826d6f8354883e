"""Arrow tables: rows as typed columns, also from what was measured as columns.

Needs pyarrow, which is slow to import and optional: import this module where it is used.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dumpstream.format.dtypes import dtype_of
from dumpstream.format.formats import format_of
from dumpstream.format.header import IO
from dumpstream.statistics.columns import join_columns
from dumpstream.statistics.parquet import EXACT
from dumpstream.statistics.table import COLUMNS, HOST, Kind, TensorRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from dumpstream.statistics.columns import FileColumns

_TYPES = {
    Kind.TEXT: pa.string(),
    Kind.WHOLE: pa.int64(),
    Kind.REAL: pa.float64(),
    Kind.EXACT: pa.float64(),
    Kind.LIST: pa.list_(pa.uint64()),
}
_INTEGER = pa.decimal128(20)
_INT64 = range(-(1 << 63), 1 << 63)

_IO = pa.array([io.value for io in IO])
_COUNTS = ("count", "nan", "pos_inf", "neg_inf", "zero", "negative", "subnormal")


@cache
def schema_of(columns: tuple[str, ...]) -> pa.Schema:
    """Return the schema of a table with *columns*."""
    fields = [(name, _TYPES[COLUMNS[name]]) for name in columns]
    fields += [(EXACT[name], _INTEGER) for name in columns if name in EXACT]
    return pa.schema(fields)


def table_of(rows: Sequence[TensorRow], files: Sequence[FileColumns], schema: pa.Schema) -> pa.Table:
    """Return the rows of *files*, and behind them *rows*, as a table."""
    tables = [_table_of_files(join_columns(files), schema)] if files else []
    if rows or not files:
        tables.append(_table_of_rows(rows, schema))
    return pa.concat_tables(tables)


def _table_of_rows(rows: Sequence[TensorRow], schema: pa.Schema) -> pa.Table:
    arrays: dict[str, Any] = {}
    for name in schema.names:
        if name not in COLUMNS:
            continue
        values = [*map(attrgetter(name), rows)]
        arrays[name] = _CONVERSIONS[COLUMNS[name]](values)
        if name in EXACT:
            exact = [value if isinstance(value, int) else None for value in values]
            arrays[EXACT[name]] = pa.array(exact, _INTEGER)
    return _table(arrays, schema)


def _table_of_files(files: FileColumns, schema: pa.Schema) -> pa.Table:
    tensors, rows = files.tensors, files.rows
    stored, counted, finite = tensors["stored"], tensors["count"] > 0, tensors["finite"] > 0
    file = pa.array(tensors["file"])
    arrays = {name: pa.nulls(rows, _TYPES[kind]) for name, kind in COLUMNS.items()}
    arrays["file"] = _texts(files.names).take(file)
    for name, said in files.said.items():
        arrays[name] = _CONVERSIONS[COLUMNS[name]](said).take(file)
    arrays |= {name: _naturals(tensors[name], stored) for name in _COUNTS}
    arrays |= {name: _known(tensors[name], counted) for name in ("max", "min", "mean", "std")}
    arrays |= {name: _known(tensors[name], finite) for name in ("finite_max", "finite_min", "finite_mean")}
    is_integer = counted & tensors["is_integer"]
    arrays |= {EXACT[name]: _integers(tensors[f"exact_{name}"], is_integer) for name in EXACT}
    everywhere = np.ones(rows, np.bool_)
    arrays |= {
        "io": _IO.take(pa.array(tensors["io"])),
        "index": _naturals(tensors["index"], everywhere),
        "dtype": _named(tensors["data_type"], lambda number: dtype_of(number).short),
        "format": _named(tensors["format"], lambda number: format_of(number).name),
        "shape": _lists(tensors["dims"], files.shapes),
        "l2norm": _known(tensors["l2norm"], stored),
        "hash": pa.array(files.hashes, pa.string()),
        "original_shape": _lists(tensors["original_dims"], files.original_shapes),
        "size": _naturals(tensors["size"], everywhere),
        "bytes": _naturals(np.where(stored, tensors["size"], 0), everywhere),
        "source": pa.repeat(HOST, rows),
    }
    return _table(arrays, schema)


def _table(arrays: dict[str, Any], schema: pa.Schema) -> pa.Table:
    return pa.table([arrays[name] for name in schema.names], schema=schema)


# From values, of which any may be None


def _texts(values: Sequence[str | None]) -> pa.Array:
    """Return *values* as UTF-8 can hold them: the bytes of a name that are not, as the journal shows them."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        shown = [value and value.encode("utf-8", "backslashreplace").decode() for value in values]
        return pa.array(shown, pa.string())


def _wholes(values: Sequence[int | None]) -> pa.Array:
    """Return *values* without those that have more than 64 bits, which only a forged name or header has."""
    try:
        return pa.array(values, pa.int64())
    except OverflowError:
        known = [value if value is None or value in _INT64 else None for value in values]
        return pa.array(known, pa.int64())


def _reals(values: Iterable[float | None]) -> pa.Array:
    return pa.array([None if value is None else float(value) for value in values], pa.float64())


_CONVERSIONS: dict[Kind, Callable[[Sequence[Any]], pa.Array]] = {
    Kind.TEXT: _texts,
    Kind.WHOLE: _wholes,
    Kind.REAL: _reals,
    Kind.EXACT: _reals,
    Kind.LIST: lambda values: pa.array(values, _TYPES[Kind.LIST]),
}


# From records


def _known(values: NDArray[Any], known: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=~known)


def _naturals(values: NDArray[Any], known: NDArray[np.bool_]) -> pa.Array:
    return _known(values.astype(np.int64), known & (values < _INT64.stop))


def _integers(values: NDArray[np.void], known: NDArray[np.bool_]) -> pa.Array:
    """Return integers of 128 bits, which is what a decimal without a fraction is."""
    bitmap = pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(_INTEGER, len(values), [bitmap, pa.py_buffer(values.tobytes())])


def _lists(lengths: NDArray[np.uint32], values: NDArray[np.uint64]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def _named(numbers: NDArray[np.int32], name_of: Callable[[int], str]) -> pa.Array:
    found, places = np.unique(numbers, return_inverse=True)
    return pa.array([name_of(number) for number in found.tolist()], pa.string()).take(pa.array(places))
