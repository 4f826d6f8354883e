"""Rows are the same however they are measured, kept and filtered."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING

import pytest

from dumpstream.simulation import Workload
from dumpstream.sinks import WholeFile
from dumpstream.statistics.conditionparser import parse_condition
from dumpstream.statistics.engine import SMALL_BYTES, measure_whole
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.statistics.parquet import ParquetWriter, read_tensors
from dumpstream.statistics.table import COLUMNS, Provenance, TensorRow
from dumpstream.statistics.tensors import TensorRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dumpstream.statistics.tensors import Tensors

FILES = [
    WholeFile(file.name, file.data)
    for text in ("faults,steps=1,tensor_bytes=16-300", "models=1,ops=8,shape=3x5,null_address=0.5,nan=3")
    for file in Workload.parse(text).expected_files("/dump")
]


def table_of(found: Sequence[TensorRow]) -> Tensors:
    """Return *found* after a way through a Parquet file."""
    file = BytesIO()
    writer = ParquetWriter(file)
    writer.write(TensorRows(found).columns(COLUMNS))
    writer.close()
    (tensors,) = read_tensors(file)
    return tensors


def test_the_rows_of_every_file_are_those_that_it_has_alone() -> None:
    found = measure_whole(FILES)

    assert len(FILES) / 2 < len(found.numbers) < len(FILES)
    assert [repr(of_file) for _, of_file in sorted(found.by_file().items())] == [
        repr(whole_file(origin_of(name), data)) for name, data in FILES
    ]


def test_labels_are_what_files_are_called() -> None:
    labels = [f"label{name}" for name, _ in FILES]

    found = measure_whole(FILES, labels=labels)

    expected = [
        replace(row, file=label)
        for label, (name, data) in zip(labels, FILES, strict=True)
        for row in whole_file(origin_of(name), data)
    ]
    assert repr([row for _, of_file in sorted(found.by_file().items()) for row in of_file]) == repr(expected)


def test_a_file_without_bytes_has_no_rows() -> None:
    found = measure_whole([FILES[0], ("Add.add.1.2.3", None), ("Add.add.1.2.4", b"")])

    assert found.by_file().keys() == {0, 2}


@pytest.mark.parametrize("histogram", [False, True])
def test_only_small_files_without_a_histogram_are_measured_together(*, histogram: bool) -> None:
    large = next(Workload.parse(f"models=1,ops=1,tensor_bytes={SMALL_BYTES}").expected_files("/dump"))

    found = measure_whole([(large.name, large.data), FILES[0]], histogram=histogram)

    assert found.numbers == ([] if histogram else [1])


def test_a_table_knows_only_the_columns_that_were_asked_for() -> None:
    file = BytesIO()
    writer = ParquetWriter(file)
    writer.write(TensorRows([TensorRow("a", io="input", max=2**64 - 1, nan=3)]).columns(COLUMNS))
    writer.close()

    (tensors,) = read_tensors(file, ["finite_max", "max"])

    assert tensors.table.schema.names == ["max", "finite_max", "max_integer"]
    assert tensors.columns(["max", "nan", "file"]) == {"max": [2**64 - 1], "nan": [None], "file": [""]}


def test_the_process_of_a_table_is_part_of_its_rows() -> None:
    tensors = table_of([TensorRow("a", io="input"), TensorRow("b", problem="is damaged")])

    of_rank, problems = tensors._replace(prefix="p/", provenance=Provenance(3)).sorted_out()  # type: ignore[attr-defined]

    assert of_rank.where([parse_condition("rank == 3")]).columns(["file", "rank"]) == {
        "file": ["p/a"],
        "rank": [3],
    }
    assert [*problems] == [("p/b", "is damaged")]
