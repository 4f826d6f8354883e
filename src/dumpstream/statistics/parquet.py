"""Rows of the table in Parquet files: typed columns, integers exact.

`max` and `min` are doubles there, for programs that compute with them; the extremes of integers come again,
exactly, in `max_integer` and `min_integer`.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any

from dumpstream._errors import DumpstreamError
from dumpstream.statistics.columns import FileColumns
from dumpstream.statistics.condition import Bounds, Condition, may_hold
from dumpstream.statistics.table import COLUMNS, Kind, Provenance

if TYPE_CHECKING:
    from dumpstream.statistics.arrow import ArrowTensors

#: The columns in which the extremes of integers come again, exactly.
EXACT = {"max": "max_integer", "min": "min_integer"}

#: The columns that depend on where the table is.
_PROVENANCE = {"file", "source", *Provenance._fields}
_READ_ROWS = 8192
#: Rows of a group: pyarrow itself writes at most half as many.
_MOST_ROWS = 1 << 21
_TEXTS = {name for name, kind in COLUMNS.items() if kind is Kind.TEXT}
#: The metadata of the files that are being read, by what changes with every change of a file. A file is read
#: a few row groups at a time, and the metadata of thousands of row groups takes long to read.
_known: OrderedDict[tuple[int, ...], Any] = OrderedDict()
_MOST_KNOWN = 4
# The columns whose values come again and again: only for them is a dictionary worth its time.
_REPEATED = _TEXTS - {"file", "hash"}


def require_pyarrow(what: str = "Parquet", otherwise: str = ", or use another format") -> None:
    """Check that pyarrow is there, which *what* needs, without importing it.

    Raises:
        DumpstreamError: it is not; the message names the extra that is missing, and what to do *otherwise*.
    """
    if find_spec("pyarrow") is None:
        raise DumpstreamError(f"{what} needs pyarrow; pip install 'dumpstream[parquet]'{otherwise}")


class ParquetWriter:
    """Writes rows to *file*, which the caller opens and closes; whole only after `close`."""

    def __init__(self, file: IO[bytes], columns: Sequence[str] = tuple(COLUMNS)) -> None:
        require_pyarrow()
        import pyarrow.parquet  # noqa: PLC0415 - slow, and optional

        from dumpstream.statistics.arrow import schema_of  # noqa: PLC0415 - likewise

        self._schema = schema_of(tuple(columns))
        repeated = [name for name in columns if name in _REPEATED]
        self._writer = pyarrow.parquet.ParquetWriter(
            file, self._schema, compression="zstd", use_dictionary=repeated
        )

    def write(self, columns: Mapping[str, Sequence[Any]], files: Sequence[FileColumns] = ()) -> None:
        """Append the rows of *files*, and behind them those in *columns*, as a row group."""
        from dumpstream.statistics.arrow import table_of  # noqa: PLC0415 - needs pyarrow

        self._writer.write_table(table_of(columns, files, self._schema))

    def write_table(self, table: Any) -> None:
        """Append a table of Arrow, with all columns, as a row group."""
        self._writer.write_table(table)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()

    def discard(self) -> None:
        """Write no footer; pyarrow would do so when a writer that is not closed is collected as garbage."""
        self._writer.is_open = False


def row_groups(file: IO[bytes]) -> list[range]:
    """Return the numbers of the row groups in *file*, a few at a time: what is read at one go.

    Raises:
        DumpstreamError: it is not a Parquet file, or a damaged one.
    """
    with _opened(file) as parquet:
        groups = range(parquet.metadata.num_row_groups)
        rows = max((parquet.metadata.row_group(number).num_rows for number in groups), default=0)
        step = max(1, _READ_ROWS // max(1, rows))
        return [groups[start : start + step] for start in groups[::step]]


def read_tensors(
    file: IO[bytes],
    columns: Iterable[str] = COLUMNS,
    groups: Sequence[int] | None = None,
    conditions: Sequence[Condition] = (),
) -> Iterator[ArrowTensors]:
    """Yield the rows in *file*, of which columns may be missing; reads no more than *columns* and *groups*.

    Groups are left out if their statistics say that no row has a problem or meets the *conditions*.

    Raises:
        DumpstreamError: it is not a Parquet file with such rows, or a damaged one.
    """
    require_pyarrow()
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional

    from dumpstream.statistics.arrow import (  # noqa: PLC0415 - likewise
        ArrowTensors,
        may_hold_statistics,
        refuse_forged_values,
    )

    wanted = {*columns}
    wanted |= {exact for name, exact in EXACT.items() if not wanted.isdisjoint({name, f"finite_{name}"})}
    with _opened(file) as parquet:
        names = [name for name in parquet.schema_arrow.names if name in wanted]
        if parquet.metadata.num_rows and not may_hold_statistics(parquet.schema_arrow):
            raise DumpstreamError("is not a table of statistics: it has other columns")
        chosen = range(parquet.num_row_groups) if groups is None else groups
        chosen = [number for number in chosen if _is_wanted(parquet.metadata.row_group(number), conditions)]
        refuse_long_groups(parquet.metadata, chosen)
        for batch in parquet.iter_batches(_READ_ROWS, row_groups=chosen, columns=names):
            refuse_forged_values(batch)
            yield ArrowTensors(pa.Table.from_batches([batch]))


def refuse_long_groups(metadata: Any, groups: Iterable[int]) -> None:
    """Raise `DumpstreamError` if one of *groups* has very many rows: what is read of a group is in memory."""
    if any(metadata.row_group(number).num_rows > _MOST_ROWS for number in groups):
        raise DumpstreamError(
            f"has more than {_MOST_ROWS} rows in a row group; write it again in smaller row groups"
        )


def _is_wanted(group: Any, conditions: Sequence[Condition]) -> bool:
    """Whether a row of *group*, by its metadata, may have a problem, or *conditions* may be true of it."""
    if not conditions:
        return True
    columns = [group.column(number) for number in range(group.num_columns)]
    found = {column.path_in_schema: column.statistics for column in columns}
    if "problem" in found and (found["problem"] is None or found["problem"].null_count != group.num_rows):
        return True
    return may_hold(conditions, lambda name: None if name in _PROVENANCE else _bounds(found.get(name)))


def _bounds(statistics: Any) -> Bounds | None:
    """Return what *statistics* of a column, if there are any, say of its values."""
    if statistics is None or not statistics.has_min_max:
        return None
    low, high = statistics.min, statistics.max
    # Other writers than pyarrow may count a NaN as an extreme.
    return Bounds(low, high) if low == low and high == high else None  # noqa: PLR0124 - only NaN differs


@contextmanager
def _opened(file: IO[bytes]) -> Iterator[Any]:
    """Have the Parquet *file* while the block runs; what fails there is a `DumpstreamError`."""
    require_pyarrow()
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional
    import pyarrow.parquet  # noqa: PLC0415 - likewise

    try:
        metadata = _metadata_of(file)
        texts = [number for number, column in enumerate(metadata.schema) if column.path in _TEXTS]
        # Texts that come again and again stay as small as they are in the file.
        yield pyarrow.parquet.ParquetFile(file, metadata=metadata, read_dictionary=texts)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:  # the names of columns may be damaged
        raise DumpstreamError(f"cannot be read as Parquet: {exc}".splitlines()[0]) from exc


def _metadata_of(file: IO[bytes]) -> Any:
    import pyarrow.parquet  # noqa: PLC0415 - slow, and optional

    try:
        status = os.fstat(file.fileno())
    except (OSError, AttributeError):  # it is in memory, or in an object store
        return pyarrow.parquet.ParquetFile(file).metadata
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    found = _known.get(key)
    if found is None:
        found = _known[key] = pyarrow.parquet.ParquetFile(file).metadata
        while len(_known) > _MOST_KNOWN:
            with suppress(KeyError):  # several threads may do so
                _known.popitem(last=False)
    return found
