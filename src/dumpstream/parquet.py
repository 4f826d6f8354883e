"""Rows of the table in Parquet files: typed columns, integers exact.

`max` and `min` are doubles there, for those who compute with them; the extremes of integers come again,
exactly, in `max_integer` and `min_integer`.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any

from dumpstream._errors import DumpstreamError
from dumpstream.table import COLUMNS, Kind, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

_EXACT = {"max": "max_integer", "min": "min_integer"}
_INT64 = range(-(1 << 63), 1 << 63)
_READ_ROWS = 4096


def require_pyarrow() -> None:
    """Check that Parquet can be written, without importing what does it.

    Raises:
        DumpstreamError: it cannot; the message names the extra that is missing.
    """
    if find_spec("pyarrow") is None:
        raise DumpstreamError(
            "Parquet needs pyarrow; pip install 'dumpstream[parquet]', or use another format"
        )


class ParquetWriter:
    """Writes rows to *file*, which the caller opens and closes; whole only after `close`."""

    def __init__(self, file: IO[bytes], columns: Sequence[str] = tuple(COLUMNS)) -> None:
        require_pyarrow()
        import pyarrow.parquet  # noqa: PLC0415 - slow, and optional

        self._columns = columns
        self._schema = _schema(tuple(columns))
        self._writer = pyarrow.parquet.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, rows: Sequence[Row]) -> None:
        """Append *rows* as a row group."""
        self._writer.write_table(_table(rows, self._columns, self._schema))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


def read_rows(file: IO[bytes]) -> Iterator[Row]:
    """Yield the rows in *file*, of which columns may be missing.

    Raises:
        DumpstreamError: it is no Parquet file with such rows, or a damaged one.
    """
    require_pyarrow()
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional
    import pyarrow.parquet  # noqa: PLC0415 - likewise

    try:
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(_READ_ROWS):
            values = batch.to_pydict()
            if not COLUMNS.keys() >= values.keys() - set(_EXACT.values()):
                raise DumpstreamError("is no table of statistics: it has other columns")
            yield from _rows(values)
    except (pa.ArrowInvalid, OSError) as exc:
        raise DumpstreamError(f"cannot be read as Parquet: {exc}".splitlines()[0]) from exc


@cache
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional

    types = {
        Kind.TEXT: pa.string(),
        Kind.WHOLE: pa.int64(),
        Kind.REAL: pa.float64(),
        Kind.EXACT: pa.float64(),
        Kind.LIST: pa.list_(pa.uint64()),
    }
    fields = [(name, types[COLUMNS[name]]) for name in columns]
    fields += [(_EXACT[name], pa.decimal128(20)) for name in columns if name in _EXACT]
    return pa.schema(fields)


def _table(rows: Sequence[Row], columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional

    values: dict[str, list[Any]] = {}
    for name in columns:
        column = [getattr(row, name) for row in rows]
        values[name] = _CONVERSIONS[COLUMNS[name]](column)
        if name in _EXACT:
            values[_EXACT[name]] = [value if isinstance(value, int) else None for value in column]
    return pa.table(values, schema=schema)


def _texts(values: Iterable[str | None]) -> list[str | None]:
    """Return *values* as UTF-8 can hold them: the bytes of a name that are not, as the journal shows them."""
    return [
        value if value is None or value.isascii() else value.encode("utf-8", "backslashreplace").decode()
        for value in values
    ]


def _wholes(values: Iterable[int | None]) -> list[int | None]:
    """Return *values* without those that have more than 64 bits, which only a forged name or header has."""
    return [value if value is None or value in _INT64 else None for value in values]


def _reals(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else float(value) for value in values]


_CONVERSIONS: dict[Kind, Callable[[Iterable[Any]], list[Any]]] = {
    Kind.TEXT: _texts,
    Kind.WHOLE: _wholes,
    Kind.REAL: _reals,
    Kind.EXACT: _reals,
    Kind.LIST: list,
}


def _rows(values: dict[str, list[Any]]) -> Iterator[Row]:
    exact = {name: values.pop(column, None) for name, column in _EXACT.items()}
    for number, cells in enumerate(zip(*values.values(), strict=True)):
        fields = {"file": ""} | dict(zip(values, cells, strict=True))
        for name in ("shape", "original_shape", "histogram"):
            if fields.get(name) is not None:
                fields[name] = tuple(fields[name])
        for name, column in exact.items():
            if column is None or column[number] is None:
                continue
            fields[name] = int(column[number])
            if fields.get(f"finite_{name}") is not None:  # the same, as integers are finite
                fields[f"finite_{name}"] = fields[name]
        yield Row(**fields)
