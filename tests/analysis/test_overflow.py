from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.analysis.overflow import BadRecord, Overflow, OverflowRecord, match_overflows, read_records
from dumpstream.format.opname import OpName, Scheme
from dumpstream.format.verdict import Verdict
from dumpstream.reading.inputs import find_inputs
from dumpstream.statistics.table import TensorRow

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.conftest import CaptureBuilder, DumpBuilder

NAME = "Opdebug.Node_OpDebug.99.98.1780159660546556"


def older(**places: list[int]) -> bytes:
    record = bytearray(2048)
    for at, words in places.items():
        struct.pack_into(f"<{len(words)}Q", record, int(at.removeprefix("at_")), *words)
    return bytes(record)


def newer(words: list[int], *, acc_type: int = 0, valid: int = 1) -> bytes:
    head = struct.pack("<6I", 0x5A5A5A5A, 1, valid, acc_type, 0, 8 * len(words))
    return (head + struct.pack(f"<{len(words)}Q", *words)).ljust(2048, b"\0")


class TestRecords:
    @pytest.fixture
    def read(self, tmp_path: Path, overflow_dump: DumpBuilder) -> Any:
        def _read(record: bytes) -> list[OverflowRecord | BadRecord]:
            data = overflow_dump.output(np.frombuffer(record, np.uint8)).build()
            (tmp_path / NAME).write_bytes(data)
            return list(read_records(find_inputs([tmp_path])))

        return _read

    def test_task_and_stream_are_those_inside(self, read: Any) -> None:
        (record,) = read(newer([1, 2, 3, *range(4, 12)]))

        assert (record.task, record.stream) == (3, 2)
        assert (record.name.task, record.name.stream) == (99, 98)
        assert record.units["AIC"]["status"] == 11

    def test_older_layout_has_the_units_that_wrote_something(self, read: Any) -> None:
        (record,) = read(older(at_256=[1, 2, 3, 4, 5, 6], at_1024=[7, 8, 9]))

        assert (list(record.units), record.task, record.stream) == (["ai_core"], 3, 2)

    def test_units_with_the_same_task_are_one_overflow_and_others_are_another(self, read: Any) -> None:
        first, second = read(older(at_0=[1, 2, 3], at_128=[1, 2, 3], at_256=[1, 2, 4]))

        assert list(first.units) == ["dha_atomic_add", "l2_atomic_add"]
        assert (second.task, list(second.units)) == (4, ["ai_core"])

    @pytest.mark.parametrize("record", [older(), newer([], valid=0)], ids=["older", "newer"])
    def test_record_in_which_nothing_was_written_names_no_task(self, read: Any, record: bytes) -> None:
        (found,) = read(record)

        assert (found.units, found.task) == ({}, None)

    def test_accelerator_that_is_not_known_names_no_task(self, read: Any) -> None:
        (found,) = read(newer([1, 2], acc_type=9))

        assert (found.units, found.task) == ({"unknown_9": {"words": ["0x1", "0x2"]}}, None)

    def test_record_that_is_too_short_is_told(self, read: Any) -> None:
        (found,) = read(bytes(100))

        assert isinstance(found, BadRecord)
        assert "ends before its status" in found.problem

    def test_record_that_came_incomplete_is_told(
        self, builder: CaptureBuilder, overflow_dump: DumpBuilder
    ) -> None:
        data = overflow_dump.output(np.frombuffer(older(), np.uint8)).build()
        builder.add(NAME, data, Verdict.NEVER_CLOSED)

        assert list(read_records(find_inputs([builder.finish()]))) == [
            BadRecord(NAME, "is not whole (never_closed)")
        ]

    def test_file_without_bytes_is_told(self, tmp_path: Path, overflow_dump: DumpBuilder) -> None:
        empty, record = np.zeros(0, np.uint8), np.zeros(2048, np.uint8)
        data = overflow_dump.input(empty).output(record, address=0).build()
        (tmp_path / NAME).write_bytes(data)

        (found,) = read_records(find_inputs([tmp_path]))

        assert isinstance(found, BadRecord)


def record(
    task: int, time: int, *, directory: str = "/d/0", iteration: int | None = None, device: int | None = None
) -> OverflowRecord:
    name = OpName(
        scheme=Scheme.OVERFLOW, task=99, stream=98, timestamp=time, iteration=iteration, device=device
    )
    file = f"{directory}/Opdebug.Node_OpDebug.99.98.{time}"
    return OverflowRecord(file=file, name=name, units={"AIC": {}}, decoded={}, task=task, stream=1)


def row(
    task: int,
    time: int,
    *,
    io: str = "output",
    directory: str = "/d/0",
    iteration: int | None = None,
    device: int | None = None,
) -> TensorRow:
    return TensorRow(
        f"{directory}/Relu.r{task}.{task}.1.{time}",
        "Relu",
        f"r{task}",
        task=task,
        stream=1,
        timestamp=time,
        io=io,
        index=0,
        iteration=iteration,
        device=device,
    )


def pairs(overflows: list[Overflow]) -> list[tuple[int | None, list[int | None]]]:
    """Return the times of each record and of the tensors beside it."""
    return [
        (it.record.name.timestamp if it.record else None, [row.timestamp for row in it.rows])
        for it in overflows
    ]


def matched(records: Iterable[OverflowRecord], rows: Iterable[TensorRow]) -> list[Overflow]:
    """Match what one process left."""
    return match_overflows(records, {"": rows})


class TestMatching:
    def test_record_is_matched_by_what_is_inside_it(self) -> None:
        found = matched([record(7, 20)], [row(99, 19), row(7, 10)])

        assert pairs(found) == [(20, [10]), (None, [19])]

    def test_inputs_and_outputs_in_files_of_their_own_belong_together(self) -> None:
        found = matched([record(7, 20)], [row(7, 10, io="input"), row(7, 11)])

        assert pairs(found) == [(20, [10, 11])]

    def test_iterations_are_told_apart_by_directories(self) -> None:
        rows = [row(7, 10, directory="/d/0"), row(7, 50, directory="/d/1")]

        found = matched([record(7, 49, directory="/d/0"), record(7, 11, directory="/d/1")], rows)

        assert pairs(found) == [(49, [10]), (11, [50])]

    def test_record_of_another_directory_is_matched_by_device_and_iteration(self) -> None:
        rows = [row(7, 10, iteration=1, device=0), row(7, 11, iteration=2, device=0)]
        rows += [row(7, 12, iteration=2, device=1)]

        found = matched([record(7, 10, directory="/e", iteration=2, device=0)], rows)

        assert pairs(found) == [(None, [10]), (10, [11]), (None, [12])]

    def test_nearest_in_time_is_taken_if_nothing_tells_iterations_apart(self) -> None:
        rows = [row(7, time) for time in (10, 20, 30)]

        found = matched([record(7, time) for time in (31, 11, 21)], rows)

        assert pairs(found) == [(11, [10]), (21, [20]), (31, [30])]

    def test_operator_that_came_again_does_not_share_a_record(self) -> None:
        found = matched([record(7, 11)], [row(7, 10), row(7, 12), row(7, 30)])

        assert pairs(found) == [(11, [10]), (None, [12]), (None, [30])]

    def test_other_iteration_never_fits(self) -> None:
        rows = [row(7, 10, iteration=1)]

        found = matched([record(7, 10, directory="/e", iteration=2)], rows)

        assert pairs(found) == [(10, []), (None, [10])]

    def test_record_that_names_no_task_is_kept(self) -> None:
        nobody = OverflowRecord(file="f", name=OpName(timestamp=5), units={}, decoded={})

        assert pairs(matched([nobody], [row(7, 10)])) == [(5, []), (None, [10])]

    def test_files_without_a_record_are_one_operator_as_long_as_they_have_other_tensors(self) -> None:
        found = matched([], [row(7, 10, io="input"), row(7, 11), row(7, 12)])

        assert pairs(found) == [(None, [10, 11]), (None, [12])]

    def test_tensors_of_the_records_themselves_are_left_out(self) -> None:
        own = TensorRow("/d/0/Opdebug.Node_OpDebug.9.9.9", "Opdebug", "Node_OpDebug", io="output", index=0)

        assert matched([], [own]) == []

    @given(
        records=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), max_size=12),
        files=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), max_size=12, unique=True),
    )
    @settings(max_examples=150, deadline=None)
    def test_nothing_is_lost_and_nothing_is_given_to_another_task(
        self, records: list[tuple[int, int]], files: list[tuple[int, int]]
    ) -> None:
        rows = [row(*file) for file in files]
        kept = [record(*it) for it in records]

        found = matched(kept, rows)

        assert sorted(id(it.record) for it in found if it.record) == sorted(map(id, kept))
        assert sorted(row.file for it in found for row in it.rows) == sorted(row.file for row in rows)
        assert all(row.task == it.record.task for it in found if it.record for row in it.rows)
        assert [it.timestamp for it in found] == sorted(it.timestamp for it in found)
