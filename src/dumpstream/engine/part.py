"""Part: what one task of a plan has found, as a Parquet file that says of itself what it is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, Self

import xxhash

from dumpstream._errors import DumpstreamError
from dumpstream.engine.plan import Heading
from dumpstream.statistics.parquet import refuse_long_groups, require_pyarrow

_HEADING, _RESULT = b"dumpstream.part", b"dumpstream.result"
_NAME = re.compile(r"part-([0-9a-f]{16})-([0-9]{1,9})-of-([0-9]{1,9})-([0-9a-f]{32})\.parquet", re.ASCII)
_READ_ROWS = 16384
#: What the values of a part may take, in bytes: a few bytes of a forged one can stand for very many.
_LEAST_VALUES, _VALUES_PER_BYTE = 256 << 20, 200
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
_TOO_LONG = "the values are too long"
#: In the result of a part that is made of a slice: what it is a slice of, and the digest of that.
SLICED = "sliced"


class PartName(NamedTuple):
    """The name of a part: of which plan and task it is, and a hash of all that it depends on."""

    plan: str
    task: int
    tasks: int
    inputs: str

    @classmethod
    def of(cls, heading: Heading, digest: str) -> PartName:
        """Return the name of the part with this *heading*, made of input with this *digest*."""
        inputs = xxhash.xxh3_128_hexdigest(f"{heading.to_json()}{digest}".encode())
        return cls(heading.plan, heading.task, heading.tasks, inputs)

    @classmethod
    def parse(cls, name: str) -> PartName | None:
        """Return what the file *name* says; None if it is not that of a part."""
        match = _NAME.fullmatch(name)
        if match is None or not 1 <= int(match[2]) <= int(match[3]):
            return None
        return cls(match[1], int(match[2]), int(match[3]), match[4])

    def __str__(self) -> str:
        return f"part-{self.plan}-{self.task}-of-{self.tasks}-{self.inputs}.parquet"


class PartWriter:
    """Writes the tables of a part to *file*, which the caller opens and closes; use it in a ``with`` block.

    The part is whole only after `close`.
    """

    def __init__(self, file: IO[bytes], heading: Heading, schema: Any) -> None:
        require_pyarrow()
        import pyarrow.parquet  # noqa: PLC0415 - slow, and optional

        self.schema = schema
        self._heading = heading
        self._writer = pyarrow.parquet.ParquetWriter(file, schema, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.is_open = False  # if it was not closed: pyarrow would write a footer all the same

    def write(self, table: Any) -> None:
        """Append a table of Arrow."""
        if table.num_rows:
            self._writer.write_table(table)

    def write_columns(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append *columns*; texts become bytes, which the schema must have for them."""
        import pyarrow as pa  # noqa: PLC0415 - slow, and optional

        plain = {name: [encoded(it) for it in values] for name, values in columns.items()}
        self.write(pa.table(plain, schema=self.schema))

    def close(self, result: Mapping[str, Any]) -> None:
        """Write *result*, a JSON object with all that is not in the tables, and the footer."""
        about = {_HEADING: self._heading.to_json().encode(), _RESULT: json.dumps(result).encode()}
        self._writer.add_key_value_metadata(about)
        self._writer.close()


class Part:
    """A part that is read; *file* is that of the caller, and *name* what messages call it.

    Raises:
        DumpstreamError: it is not a part, or damaged, or one of another version.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        require_pyarrow()
        import pyarrow.parquet  # noqa: PLC0415 - slow, and optional

        self._name = name
        with self._explained():
            self._room = max(_LEAST_VALUES, file.seek(0, os.SEEK_END) * _VALUES_PER_BYTE)
            metadata = pyarrow.parquet.ParquetFile(file).metadata
            groups = range(metadata.num_row_groups)
            refuse_long_groups(metadata, groups)
            if sum(metadata.row_group(it).total_byte_size for it in groups) > self._room:
                raise ValueError(_TOO_LONG)
            # Values that come again and again stay as small as they are in the file.
            columns = [metadata.schema.column(it) for it in range(metadata.num_columns)]
            binary = [it.path for it in columns if it.physical_type == "BYTE_ARRAY"]
            self._parquet = pyarrow.parquet.ParquetFile(file, metadata=metadata, read_dictionary=binary)
            about = self._parquet.metadata.metadata or {}
            self.heading = Heading.from_json(about[_HEADING])
            self.result: Mapping[str, Any] = dict(json.loads(about[_RESULT]))

    def tables(self) -> Iterator[Any]:
        """Yield its rows, a few thousand at a time, as tables of Arrow."""
        import pyarrow as pa  # noqa: PLC0415 - slow, and optional

        with self._explained():
            for batch in self._parquet.iter_batches(_READ_ROWS):
                self._room -= sum(_bytes_of(column) for column in batch.columns)
                if self._room < 0:
                    raise ValueError(_TOO_LONG)
                yield pa.Table.from_batches([batch])

    @contextmanager
    def _explained(self) -> Iterator[None]:
        import pyarrow as pa  # noqa: PLC0415 - slow, and optional

        try:
            yield
        except (pa.ArrowException, OSError, *_DAMAGE) as exc:
            raise DumpstreamError(
                f"{self._name} is not a part of this version, or damaged; "
                "delete it and compute its shard again"
            ) from exc


def _bytes_of(column: Any) -> int:
    """Return what the values of *column* take, each by itself."""
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional
    import pyarrow.compute as pc  # noqa: PLC0415 - likewise

    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    column.validate(full=True)
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)


def encoded(value: Any) -> Any:
    """Return texts as bytes, which keeps those that are not UTF-8."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def decoded(value: bytes | None) -> str | None:
    """Return the text that `encoded` made *value* of."""
    return None if value is None else value.decode("utf-8", "surrogatepass")
