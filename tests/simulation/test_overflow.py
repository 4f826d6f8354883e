"""Overflow dumps: only what overflows, with a record of each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dumpstream import DumpFile
from dumpstream.format.opname import OpName, Scheme, parse_name
from dumpstream.format.overflowrecord import decode_overflow
from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from .conftest import Dump

WORKLOAD = Workload(models=2, ops=4, steps=3, single_ops=2, overflow="2@1", tensor_bytes="64-1024")


def dumped(dump: Dump, workload: Workload, **settings: Any) -> list[tuple[OpName, DumpFile]]:
    names = dump.run(workload, dump_debug="on", **settings)
    files = dump.recorder.files()
    assert sorted(names) == sorted(
        file.name for file in workload.expected_files("", config=dump.config.read_text())
    )
    return sorted(
        ((parse_name(name), DumpFile.open(files[name])) for name in names),
        key=lambda one: one[0].timestamp or 0,
    )


@pytest.mark.parametrize("layout", ["older", "newer"])
def test_overflowing_operators_come_with_a_record_that_names_their_task(dump: Dump, layout: str) -> None:
    files = dumped(dump, replace(WORKLOAD, opdebug=layout), dump_mode="input", dump_step="9")

    assert [(name.model, name.iteration, name.op_name) for name, _ in files] == [
        (f"transformer_{model}", 1, name)
        for model in range(2)
        for name in ("layer_2_LayerNorm", "Node_OpDebug")
    ]
    for (op, tensors), (debug, record) in zip(files[::2], files[1::2], strict=True):
        (tensor,) = record.tensors
        said = decode_overflow(record.bytes(tensor))
        found = said["ai_core"] if layout == "older" else said["entry"]
        assert [str(one.io) for one in tensors.tensors] == ["input", "input", "output"]
        assert debug.scheme == Scheme.OVERFLOW
        assert (tensor.dtype.name, tensor.shape, tensor.size) == ("DT_UINT8", (2048,), 2048)
        assert (found["task_id"], found["stream_id"]) == (op.task, op.stream)
        assert (found["task_id"], found["stream_id"]) != (debug.task, debug.stream)
        assert found["model_id"] == op.model_id
        assert found["status"]


def test_the_first_output_of_what_overflows_is_partly_infinite(dump: Dump) -> None:
    for dtype in ("float32", "float16", "bfloat16", "int32"):
        files = dumped(dump, replace(WORKLOAD, models=1, dtypes=dtype))

        (_, file), _ = files
        output = file.tensors[-1]
        assert 0 < np.isinf(file.array(output).astype(np.float32)).mean() < 0.1
        assert not np.isinf(file.array(file.tensors[0]).astype(np.float32)).any()


def test_inputs_and_outputs_may_be_in_files_of_their_own(dump: Dump) -> None:
    files = dumped(dump, replace(WORKLOAD, models=1, io_files="separate"))

    assert [[str(tensor.io) for tensor in file.tensors] for _, file in files] == [
        ["input", "input"],
        ["output"],
        ["output"],
    ]


def test_operators_off_the_ai_core_are_not_looked_at(dump: Dump) -> None:
    workload = replace(WORKLOAD, op_types="Data+Relu+HcomAllReduce", models=1, ops=3, steps=1, overflow="1.0")

    files = dumped(dump, workload)

    assert [name.op_type for name, _ in files] == ["Relu", "Opdebug"]


def test_nothing_is_dumped_if_nothing_overflows(dump: Dump) -> None:
    assert dumped(dump, replace(WORKLOAD, overflow="")) == []
