"""What the map of a page draws."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dumpstream.diagnosis.dataflow.executions import find_executions
from dumpstream.diagnosis.dataflow.trace import Trace, trace_of
from dumpstream.simulation import Workload
from dumpstream.statistics.engine import measure_whole
from dumpstream.view.cells import Cells, cells_of
from dumpstream.view.packing import narrowed, pack, unpack


def _trace(text: str) -> Trace:
    files = [(file.name, file.data) for file in Workload.parse(text).expected_files("/dump")]
    return trace_of([measure_whole(files).columns])


def _cells(text: str) -> Cells:
    trace = _trace(text)
    return cells_of(trace, find_executions(trace))


@pytest.fixture(scope="module")
def cells() -> Cells:
    return _cells("models=2,ops=6,steps=8,nan=3@5,tensor_bytes=64-500")


def test_every_tensor_is_a_row(cells: Cells) -> None:
    assert len(cells) == 2 * 6 * 8 * 3
    assert len({*cells.columns["row"].tolist()}) == len(cells)


def test_operators_are_in_the_order_in_which_they_ran(cells: Cells) -> None:
    first = [it.op_name for it in cells.operators if it.model == "transformer_0"]

    assert [str(name).split("_")[1] for name in first] == list("012345")


def test_nan_is_at_its_operator_and_step(cells: Cells) -> None:
    bad = np.flatnonzero(cells.columns["nan"])

    places = {
        (cells.operators[cells.columns["operator"][i]].op_name, cells.steps[cells.columns["step"][i]])
        for i in bad
    }
    assert places == {("layer_3_Add", 5)}


def test_value_far_from_its_history_has_drifted() -> None:
    cells = _cells("models=1,ops=1,steps=8,shape=64,dtypes=float32,overflow=0@6")
    drift, step = cells.columns["drift"], cells.columns["step"]

    assert np.isnan(drift[step < 2]).all()
    assert not np.isnan(drift[step > 2]).any()


def test_run_without_tensors_has_no_cells() -> None:
    trace = trace_of([])

    assert len(cells_of(trace, find_executions(trace))) == 0


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        hnp.arrays(st.sampled_from(["<u1", "<u2", "<u4", "<f4", "<f8"]), st.integers(0, 20)),
        max_size=4,
    )
)
def test_columns_begin_where_the_header_says(columns: dict[str, np.ndarray]) -> None:
    data = pack({"a": "ü"}, columns)

    length = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + length])
    offset = 4 + length
    again, unpacked = unpack(data)
    assert again["a"] == "ü"
    assert [*unpacked] == [*columns]
    for name, values in unpacked.items():
        np.testing.assert_array_equal(values, columns[name])
    types = {"Uint8": "<u1", "Uint16": "<u2", "Uint32": "<u4", "Float32": "<f4", "Float64": "<f8"}
    for listed in header["columns"]:
        assert offset % 8 == 0
        found = np.frombuffer(data, types[listed["type"]], listed["length"], offset)
        np.testing.assert_array_equal(found, columns[listed["name"]])
        offset += -(-found.nbytes // 8) * 8
    assert offset == len(data)


def test_numbers_that_need_eight_bytes_are_not_cut_off() -> None:
    trace = _trace("models=1,ops=2,tensor_bytes=64-500")
    trace = replace(trace, counts={**trace.counts, "count": trace.counts["count"].astype(np.int64)})
    trace.counts["count"][0] = 2**40
    trace.reals["finite_max"][0] = 1e300

    columns = cells_of(trace, find_executions(trace)).columns

    assert columns["count"].max() == 2**40
    assert columns["max"].max() == 1e300
    assert columns["min"].dtype == np.float32


def test_missing_operator_does_not_change_the_order_of_the_others() -> None:
    files = [*Workload.parse("models=1,ops=5,steps=3,tensor_bytes=64-128").expected_files("/dump")]
    kept = [(file.name, file.data) for number, file in enumerate(files) if number not in {1, 8}]
    trace = trace_of([measure_whole(kept).columns])

    cells = cells_of(trace, find_executions(trace))

    assert [str(it.op_name).split("_")[1] for it in cells.operators] == [*"01234"]


def test_operators_of_which_some_are_missing_in_every_step_are_in_order() -> None:
    files = [*Workload.parse("models=2,ops=10,steps=8,tensor_bytes=64-128").expected_files("/dump")]
    kept = [
        (file.name, file.data) for number, file in enumerate(files) if number % 17 != 2 and number % 23 != 3
    ]
    trace = trace_of([measure_whole(kept).columns])

    cells = cells_of(trace, find_executions(trace))

    ran = [(str(it.model), int(str(it.op_name).split("_")[1])) for it in cells.operators]
    assert ran == sorted(ran)


def test_operators_that_ran_in_both_orders_are_all_there() -> None:
    files = [*Workload.parse("models=1,ops=4,steps=2,tensor_bytes=64-128").expected_files("/dump")]
    trace = trace_of([measure_whole([(file.name, file.data) for file in files]).columns])
    executions = find_executions(trace)
    swapped = executions.op_name.copy()
    swapped[5], swapped[6] = executions.op_name[6], executions.op_name[5]

    cells = cells_of(trace, replace(executions, op_name=swapped))

    assert len({it.op_name for it in cells.operators}) == 4


def test_whole_numbers_are_narrowed_to_what_holds_them() -> None:
    for largest, name in ((0, "u1"), (255, "u1"), (256, "u2"), (65535, "u2"), (65536, "u4")):
        values = np.array([0, largest], np.uint32)

        assert narrowed(values).dtype == np.dtype(name)
        assert narrowed(values).tolist() == [0, largest]
    assert narrowed(np.array([], np.uint32)).dtype == np.dtype("u4")
    assert narrowed(np.array([1.0], np.float32)).dtype == np.dtype("f4")
