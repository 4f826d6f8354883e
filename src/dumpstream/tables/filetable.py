"""The files, the processes and the losses of captures, as tables of Arrow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from dumpstream.format.opname import parse_name
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.inputs import is_capture
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile
from dumpstream.statistics.arrow import array_of
from dumpstream.system.location import Prefix

_GROUP_ROWS = 8192

_OF = [*((name, pa.string()) for name in ("capture", "host", "process")), ("rank", pa.int64())]
FILES = pa.schema(
    [
        *_OF,
        *((name, pa.string()) for name in ("name", "op_type", "op_name", "model")),
        *((name, pa.int64()) for name in ("step", "device", "task", "stream", "timestamp")),
        *((name, pa.string()) for name in ("verdict", "cause", "not_stored", "path")),
        *((name, pa.int64()) for name in ("bytes", "stored_bytes", "chunks", "parts")),
    ]
)
PROCESSES = pa.schema(
    [
        *_OF,
        *((name, pa.int64()) for name in ("device", "pid", "parent")),
        *((name, pa.string()) for name in ("command", "started", "ended", "ending", "problem", "state")),
        *((name, pa.int64()) for name in ("files", "bytes", "stored_bytes")),
    ]
)
ALERTS = pa.schema(
    [
        *_OF,
        *((name, pa.string()) for name in ("time", "sentence", "kind", "blame", "reason", "file", "model")),
        *((name, pa.string()) for name in ("op_type", "op_name", "io")),
        *((name, pa.int64()) for name in ("device", "step", "index", "count", "bad")),
        ("corrects", pa.bool_()),
    ]
)
LOSSES = pa.schema([*_OF, ("cause", pa.string()), ("chunks", pa.int64()), ("bytes", pa.int64())])


def open_files(paths: Sequence[Path | Prefix], ranks: Sequence[int] = (), hosts: Sequence[str] = ()) -> int:
    """Return a descriptor of a temporary Parquet file with the files of the captures among *paths*.

    Raises:
        DumpstreamError: a capture cannot be read.
    """
    with TemporaryFile() as file:
        with pyarrow.parquet.ParquetWriter(file, FILES, compression="zstd") as writer:
            rows = _files(paths, ranks, hosts)
            while group := list(islice(rows, _GROUP_ROWS)):
                writer.write_table(_table(group, FILES))
        file.flush()
        return os.dup(file.fileno())


def processes_of(
    paths: Sequence[Path | Prefix], ranks: Sequence[int] = (), hosts: Sequence[str] = ()
) -> pa.Table:
    """Return a row for each captured process; none of a capture that a program made of itself."""
    rows = [
        (*of, *_process_cells(member))
        for of, member in _members(paths, ranks, hosts)
        if member.process is not None
    ]
    return _table(rows, PROCESSES)


def losses_of(
    paths: Sequence[Path | Prefix], ranks: Sequence[int] = (), hosts: Sequence[str] = ()
) -> pa.Table:
    """Return a row for each cause of loss of each process."""
    rows = [
        (*of, *loss)
        for of, member in _members(paths, ranks, hosts)
        if member.capture is not None
        for loss in member.capture.losses
    ]
    return _table(rows, LOSSES)


def alerts_of(
    paths: Sequence[Path | Prefix], ranks: Sequence[int] = (), hosts: Sequence[str] = ()
) -> pa.Table:
    """Return a row for each alert that a capture has in its journal, also for those that were corrected."""
    rows = [
        (*of, *(alert[name] for name in ALERTS.names[len(of) :]))
        for of, member in _members(paths, ranks, hosts)
        if member.capture is not None
        for alert in member.capture.totals.alerts
    ]
    return _table(rows, ALERTS)


def _members(
    paths: Sequence[Path | Prefix], ranks: Sequence[int], hosts: Sequence[str]
) -> Iterator[tuple[tuple[str, str | None, str | None, int | None], Member]]:
    """Yield every capture, and before it what tells it from the others."""
    for path in paths:
        if is_capture(path):
            for member in Collection.open(path, ranks, hosts).members():
                yield (str(path), member.host, member.prefix.removesuffix("/") or None, member.rank), member


def _files(
    paths: Sequence[Path | Prefix], ranks: Sequence[int], hosts: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    for of, member in _members(paths, ranks, hosts):
        if member.capture is not None:
            for file in member.capture.files:
                yield (*of, *_file_cells(file, member.prefix))


def _file_cells(file: StoredFile, prefix: str) -> tuple[Any, ...]:
    said = parse_name(file.name)
    step = file.step if said.iteration is None else said.iteration
    return (
        prefix + file.name,
        *(said.op_type, said.op_name, said.model, step, said.device, said.task, said.stream, said.timestamp),
        *(str(file.verdict), file.cause, file.not_stored, file.path),
        *(file.bytes, file.stored_bytes, file.chunks, len(file.parts)),
    )


def _process_cells(member: Member) -> tuple[Any, ...]:
    process, capture = member.process, member.capture
    assert process is not None
    return (
        *(process.device, process.pid, process.parent, " ".join(process.command)),
        *(process.started, process.ended, process.ending, member.problem or process.problem),
        *((None,) * 4 if capture is None else _sums(capture)),
    )


def _sums(capture: StoredCapture) -> tuple[Any, ...]:
    totals = capture.totals
    return str(capture.state), totals.files, totals.bytes, totals.stored_bytes


def _table(rows: Sequence[Iterable[Any]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [array_of(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)
