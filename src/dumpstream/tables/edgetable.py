"""The data flow of runs as a temporary Parquet file: a row for each tensor that an operator read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile

import pyarrow as pa
import pyarrow.parquet

from dumpstream.diagnosis.dataflow.executions import find_executions
from dumpstream.diagnosis.dataflow.flow import find_flow
from dumpstream.diagnosis.dataflow.graphfile import graph_schema, graph_tables
from dumpstream.diagnosis.subject import read_subject
from dumpstream.system.location import Prefix


def open_edges(
    paths: Sequence[Path | Prefix],
    ranks: Sequence[int],
    hosts: Sequence[str],
    told: Callable[[int, int], None],
) -> int:
    """Return a descriptor of the file, which the caller closes.

    Raises:
        DumpstreamError: there is no run at a path, or its operators were not dumped as they ran.
    """
    with TemporaryFile() as file:
        schema = graph_schema().insert(0, pa.field("capture", pa.string()))
        with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            for path in paths:
                trace = read_subject(path, ranks, hosts, progress=told).trace
                executions = find_executions(trace)
                for table in graph_tables(trace, executions, find_flow(trace, executions)):
                    names = pa.array([str(path)] * table.num_rows, pa.string())
                    writer.write_table(table.add_column(0, schema.field(0), names))
        file.flush()
        return os.dup(file.fileno())
