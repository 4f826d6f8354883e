"""The tensors of a run in one Parquet file, read or measured once.

Behind the tensors, each file that could not be read has a row with nothing but `file` and `problem`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pyarrow as pa

from dumpstream.analysis.measurement import measure_batches
from dumpstream.analysis.sources import Wanted
from dumpstream.reading.collection import Collection
from dumpstream.reading.inputs import is_capture
from dumpstream.reading.stored import State
from dumpstream.statistics.arrow import schema_of, table_of_tensors
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.table import COLUMNS
from dumpstream.system.cache import open_cached
from dumpstream.system.location import Prefix

#: Changes when the rows of the same run would be others.
_FORMAT = "tensors 3"
_GROUP_ROWS = 1 << 16

#: Is told how many tensors, and how many bytes of files, are done.
Told = Callable[[int, int], None]


def open_tensors(
    paths: Sequence[Path | Prefix],
    ranks: Sequence[int] = (),
    hosts: Sequence[str] = (),
    *,
    told: Told = lambda *_: None,
) -> int:
    """Return a descriptor of the Parquet file with all tensors that *paths*, *ranks* and *hosts* stand for.

    The table of captures that are finished is kept in the cache. The caller closes the descriptor.

    Raises:
        DumpstreamError: there is nothing at a path, or it cannot be read.
    """

    def write(file: IO[bytes]) -> None:
        _write(file, paths, ranks, hosts, told)

    version = _version(paths, ranks, hosts)
    if version is not None:
        return open_cached(f"{_FORMAT} {paths} {sorted(ranks)} {sorted(hosts)}", version, write)
    with TemporaryFile() as file:
        write(file)
        file.flush()
        return os.dup(file.fileno())


def _version(paths: Sequence[Path | Prefix], ranks: Sequence[int], hosts: Sequence[str]) -> str | None:
    """Return what changes whenever the rows may; None if that cannot be told, or is not worth it."""
    found: list[object] = []
    for path in paths:
        if not is_capture(path):
            return None
        collection = Collection.open(path, ranks, hosts)
        members = [member.capture for member in collection.members() if member.capture is not None]
        if collection.state(member.state for member in members) is State.RUNNING:
            return None
        found.append([member.version for member in members])
    return str(found)


def _write(
    file: IO[bytes], paths: Sequence[Path | Prefix], ranks: Sequence[int], hosts: Sequence[str], told: Told
) -> None:
    writer = ParquetWriter(file)
    try:
        for group in _groups(_tables(paths, ranks, hosts, told)):
            writer.write_table(group)
        writer.close()
    except BaseException:
        writer.discard()
        raise


def _tables(
    paths: Sequence[Path | Prefix], ranks: Sequence[int], hosts: Sequence[str], told: Told
) -> Iterator[pa.Table]:
    schema = schema_of(tuple(COLUMNS))
    problems: list[tuple[str, str]] = []
    tensors = size = 0
    for batch in measure_batches(paths, Wanted(), ranks=ranks, hosts=hosts):
        table = table_of_tensors(batch.tensors, schema)
        yield table
        for file in batch.files:
            problems += [(file.label, problem) for problem in file.problems]
            size += file.bytes
        tensors += table.num_rows
        told(tensors, size)
    if problems:
        files, texts = zip(*problems, strict=True)
        known = pa.table({"file": files, "problem": texts})
        yield pa.table(
            {
                name: known[name] if name in known.column_names else pa.nulls(len(files), field.type)
                for name, field in zip(schema.names, schema, strict=True)
            },
            schema=schema,
        )


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of *tables*, many at a time."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(it.num_rows for it in waiting) >= _GROUP_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
