"""Rows of a comparison in Parquet files: typed columns, written a few thousand rows at a time.

`max_abs` is a double there; that of integers comes again, exactly, in `max_abs_integer`.
"""

from __future__ import annotations

from typing import IO, Any, get_type_hints

from dumpstream.comparison.table import COLUMNS, Agreement, ComparisonRow, Metrics, Worst, columns_of
from dumpstream.statistics.parquet import require_pyarrow
from dumpstream.statistics.table import Number

_GROUP_ROWS = 8192
_EXACT, _INTEGER = "max_abs", "max_abs_integer"
_REPEATED = ("model", "op_type", "op_name", "io", "dtype", "golden_dtype", "verdict", "reason")


class ComparisonParquet:
    """Writes rows to *file*, which the caller opens and closes; whole only after `close`."""

    def __init__(self, file: IO[bytes]) -> None:
        require_pyarrow()
        import pyarrow.parquet  # noqa: PLC0415 - slow, and optional

        self._schema = _schema()
        self._rows: list[ComparisonRow] = []
        self._writer = pyarrow.parquet.ParquetWriter(
            file, self._schema, compression="zstd", use_dictionary=[*_REPEATED]
        )

    def write(self, row: ComparisonRow) -> None:
        """Append a row."""
        self._rows.append(row)
        if len(self._rows) >= _GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the footer."""
        if self._rows:
            self._flush()
        self._writer.close()

    def discard(self) -> None:
        """Write no footer; pyarrow would do so when a writer that is not closed is collected as garbage."""
        self._writer.is_open = False

    def _flush(self) -> None:
        import pyarrow as pa  # noqa: PLC0415 - slow, and optional

        rows, self._rows = self._rows, []
        columns = columns_of(rows)
        columns["verdict"] = [*map(str, columns["verdict"])]
        columns["worst"] = [*map(_struct, columns["worst"])]
        exact = columns[_EXACT]
        columns[_INTEGER] = [it if isinstance(it, int) else None for it in exact]
        columns[_EXACT] = [None if it is None else float(it) for it in exact]
        self._writer.write_table(pa.table(columns, schema=self._schema))


def _struct(worst: Worst | None) -> dict[str, Any] | None:
    if worst is None:
        return None
    return {"index": [*worst.index], "mine": float(worst.mine), "golden": float(worst.golden)}


def _schema() -> Any:
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional

    types: dict[Any, Any] = {
        str | None: pa.string(),
        int | None: pa.int64(),
        float | None: pa.float64(),
        Number | None: pa.float64(),
        tuple[int, ...] | None: pa.list_(pa.int64()),
        Agreement: pa.string(),
        Worst | None: pa.struct(
            [("index", pa.list_(pa.int64())), ("mine", pa.float64()), ("golden", pa.float64())]
        ),
    }
    hints = get_type_hints(ComparisonRow) | get_type_hints(Metrics)
    fields = [(name, types[hints[name]]) for name in COLUMNS]
    return pa.schema([*fields, (_INTEGER, pa.decimal128(20))])
