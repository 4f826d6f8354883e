"""Graph file: the data flow of a run as a table, for other programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.flow import Flow, Link
from dumpstream.diagnosis.dataflow.trace import OUTPUT, Trace
from dumpstream.statistics.parquet import require_pyarrow

#: The columns that each end of an edge has.
_TEXTS = ("file", "model", "op_type", "op_name")
_NUMBERS = ("iteration", "task", "stream", "index")
_ROWS = 65536


def write_graph(file: IO[bytes], trace: Trace, executions: Executions, flow: Flow, *, parquet: bool) -> int:
    """Write an edge of *flow* in each row, and return how many there are.

    *parquet* is the alternative to a list of JSON objects.
    """
    if parquet:
        return _write_parquet(file, trace, executions, flow)
    count = 0
    file.write(b"[")
    for block in _blocks(trace, executions, flow):
        for values in zip(*block.values(), strict=True):
            text = json.dumps(dict(zip(block, values, strict=True)))
            file.write((f",\n{text}" if count else f"\n{text}").encode())
            count += 1
    file.write(b"\n]\n" if count else b"]\n")
    return count


def graph_schema() -> Any:
    """Return the schema of Arrow that a graph has as Parquet."""
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional

    fields = [("host", pa.string()), ("rank", pa.int64()), ("link", pa.string())]
    fields += [("address", pa.uint64()), ("bytes", pa.uint64())]
    for end in ("from", "to"):
        fields += [(f"{end}_{name}", pa.string()) for name in (*_TEXTS, "io")]
        fields += [(f"{end}_{name}", pa.int64()) for name in (*_NUMBERS, "execution")]
    return pa.schema(fields)


def graph_tables(trace: Trace, executions: Executions, flow: Flow) -> Iterator[Any]:
    """Yield the edges of *flow* as tables of Arrow, some rows at a time."""
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional

    schema = graph_schema()
    for block in _blocks(trace, executions, flow):
        yield pa.table([pa.array(block[it.name], it.type) for it in schema], schema=schema)


def _write_parquet(file: IO[bytes], trace: Trace, executions: Executions, flow: Flow) -> int:
    require_pyarrow()
    import pyarrow.parquet  # noqa: PLC0415 - slow, and optional

    count = 0
    with pyarrow.parquet.ParquetWriter(file, graph_schema(), compression="zstd") as writer:
        for table in graph_tables(trace, executions, flow):
            writer.write_table(table)
            count += table.num_rows
    return count


def _blocks(trace: Trace, executions: Executions, flow: Flow) -> Iterator[dict[str, list[Any]]]:
    """Yield the columns of the edges, some rows at a time."""
    for start in range(0, len(flow.readers), _ROWS):
        some = slice(start, start + _ROWS)
        readers, sources = flow.readers[some], flow.sources[some]
        processes = [trace.processes[it] for it in trace.process[readers].tolist()]
        block: dict[str, list[Any]] = {
            "host": [it.host for it in processes],
            "rank": [it.rank for it in processes],
            "link": [Link(it).name.lower() for it in flow.links[some].tolist()],
            "address": flow.starts[some].tolist(),
            "bytes": (flow.stops[some] - flow.starts[some]).tolist(),
        }
        for end, rows in (("from", sources), ("to", readers)):
            for name in _TEXTS:
                texts = trace.texts[name]
                block[f"{end}_{name}"] = [_text(texts[it]) for it in trace.codes[name][rows].tolist()]
            block[f"{end}_io"] = ["output" if it else "input" for it in (trace.io[rows] == OUTPUT).tolist()]
            for name in _NUMBERS:
                numbers = trace.counts[name][rows].tolist()
                block[f"{end}_{name}"] = [None if it < 0 else it for it in numbers]
            block[f"{end}_execution"] = executions.of_row[rows].tolist()
        yield block


def _text(value: str | None) -> str | None:
    return None if value is None else value.encode("utf-8", "backslashreplace").decode()
