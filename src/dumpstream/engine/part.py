"""Part: what one task of a plan has found, as a Parquet file that says of itself what it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, Self

import xxhash

from dumpstream._errors import DumpstreamError
from dumpstream.engine.plan import Heading
from dumpstream.statistics.parquet import require_pyarrow

_HEADING, _RESULT = b"dumpstream.part", b"dumpstream.result"
_NAME = re.compile(r"part-([0-9a-f]{16})-([0-9]{1,9})-of-([0-9]{1,9})-([0-9a-f]{32})\.parquet", re.ASCII)
_READ_ROWS = 16384
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
        return None if match is None else cls(match[1], int(match[2]), int(match[3]), match[4])

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
            self._parquet = pyarrow.parquet.ParquetFile(file)
            about = self._parquet.metadata.metadata or {}
            self.heading = Heading.from_json(about[_HEADING])
            self.result: Mapping[str, Any] = dict(json.loads(about[_RESULT]))

    def tables(self) -> Iterator[Any]:
        """Yield its rows, a few thousand at a time, as tables of Arrow."""
        import pyarrow as pa  # noqa: PLC0415 - slow, and optional

        with self._explained():
            for batch in self._parquet.iter_batches(_READ_ROWS):
                yield pa.Table.from_batches([batch])

    @contextmanager
    def _explained(self) -> Iterator[None]:
        import pyarrow as pa  # noqa: PLC0415 - slow, and optional

        try:
            yield
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError) as exc:
            raise DumpstreamError(
                f"{self._name} is not a part of this version, or damaged; "
                "delete it and compute its shard again"
            ) from exc


def encoded(value: Any) -> Any:
    """Return texts as bytes, which keeps those that are not UTF-8."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def decoded(value: bytes | None) -> str | None:
    """Return the text that `encoded` made *value* of."""
    return None if value is None else value.decode("utf-8", "surrogatepass")
