"""The same trace comes of rows, of columns that were measured, and of a table that was written."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpstream.diagnosis.dataflow.trace import Trace, trace_of
from dumpstream.simulation import Workload
from dumpstream.statistics.arrow import ArrowTensors, schema_of, table_of_tensors
from dumpstream.statistics.engine import measure_whole
from dumpstream.statistics.parquet import ParquetWriter, read_tensors
from dumpstream.statistics.table import COLUMNS, Provenance, TensorRow
from dumpstream.statistics.tensors import TensorRows, Tensors, rows_of

_WORKLOADS = (
    "models=2,ops=6,steps=3,flow=on,nan=3@1,tensor_bytes=64-500",
    "models=1,ops=4,steps=2,dtypes=int8+int64+float16+bfloat16,tensor_bytes=16-64",
)


def _measured(text: str) -> Tensors:
    files = [(file.name, file.data) for file in Workload.parse(text).expected_files("/dump")]
    return measure_whole(files).columns


def _written(tensors: Tensors) -> ArrowTensors:
    """Return *tensors* as they are read back from a table."""
    file = io.BytesIO()
    writer = ParquetWriter(file)
    writer.write_table(table_of_tensors(tensors, schema_of(tuple(COLUMNS))))
    writer.close()
    first, *others = read_tensors(file, set(COLUMNS), None, ())
    return first.join(others)


def _facts(trace: Trace) -> list[tuple[object, ...]]:
    """Return everything that the trace says, row by row."""
    return [
        (
            *(trace.text(name, row) for name in trace.texts),
            *(trace.number(name, row) for name in trace.counts),
            *(repr(float(trace.reals[name][row])) for name in trace.reals),
            *(int(it[row]) for it in (trace.io, trace.hash, trace.hashed, trace.address)),
            trace.shapes[int(trace.shape[row])],
            trace.processes[int(trace.process[row])],
        )
        for row in range(len(trace))
    ]


@pytest.mark.parametrize("workload", _WORKLOADS)
def test_columns_give_the_same_trace_as_rows(workload: str) -> None:
    measured = _measured(workload)
    expected = _facts(trace_of([TensorRows(rows_of(measured))]))

    assert _facts(trace_of([measured])) == expected
    assert _facts(trace_of([_written(measured)])) == expected


def test_prefix_and_rank_of_a_process_are_those_of_the_rows() -> None:
    measured = _measured(_WORKLOADS[0])
    rows = [replace(row, file=f"rank-3/{row.file}", rank=3, capture="run") for row in rows_of(measured)]
    written = _written(measured)._replace(prefix="rank-3/", provenance=Provenance(3, "run"))

    assert _facts(trace_of([written])) == _facts(trace_of([TensorRows(rows)]))


_ROWS = st.lists(
    st.builds(
        TensorRow,
        file=st.sampled_from(["a/20260101000000/0/x", "b", "/d/20260101000000/1/y"]),
        op_name=st.none() | st.text(max_size=3),
        iteration=st.none() | st.integers(0, 3),
        device=st.none() | st.integers(0, 2),
        rank=st.none() | st.integers(0, 2),
        io=st.sampled_from(["input", "output", "buffer"]),
        index=st.integers(0, 2),
        shape=st.none() | st.lists(st.integers(0, 1 << 62), max_size=18).map(tuple),
        count=st.none() | st.integers(0, (1 << 63) - 1),
        mean=st.none() | st.floats(),
        hash=st.none() | st.integers(0, (1 << 64) - 1).map("{:016x}".format),
        address=st.none() | st.integers(1, (1 << 64) - 1),
    ),
    max_size=12,
)


@given(_ROWS)
def test_every_value_survives_the_way_through_a_table(rows: list[TensorRow]) -> None:
    tensors = TensorRows(rows)

    assert _facts(trace_of([_written(tensors)] if rows else [])) == _facts(trace_of([tensors]))


def test_rows_of_several_portions_share_numbers() -> None:
    measured = _measured(_WORKLOADS[0])

    trace = trace_of([measured, _written(measured)])

    half = len(trace) // 2
    for codes in (*trace.codes.values(), trace.shape, trace.process):
        np.testing.assert_array_equal(codes[:half], codes[half:])
