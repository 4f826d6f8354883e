"""Measuring captures whose statistics the sink has left in tables, for all or for some of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conftest import CaptureBuilder

from dumpstream.analysis.measurement import measure
from dumpstream.archive.rows import FileRow, StoredPart, parse_line
from dumpstream.format.verdict import Verdict
from dumpstream.reading import filelist
from dumpstream.simulation import Workload
from dumpstream.sinks.tables.parts import ParquetParts, TreeTables
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.system.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dumpstream.archive.rows import Row

FILES = {
    file.name: file.data
    for file in Workload.parse("models=1,ops=8,steps=2,tensor_bytes=64").expected_files("/dump")
}


TENSORS = 3  #: in each


def capture_in_tables(builder: CaptureBuilder, tables: Callable[[int], int | None]) -> Path:
    """Store `FILES`, each in the table that *tables* returns for its number, or with its bytes if None."""
    tree = Tree(
        builder.path, below=("stats",), suffix=".parquet", base=builder.path, directories=2, durable=False
    )
    outputs: Mapping[int, ParquetParts] = {
        number: ParquetParts(TreeTables(tree, sync=False)) for number in range(2)
    }
    for number, (name, data) in enumerate(FILES.items()):
        chosen = tables(number)
        if chosen is None:
            builder.add(name, data, Verdict.COMPLETE)
            continue
        (kept,) = outputs[chosen].add([(name, whole_file(origin_of(name), memoryview(data)))])
        part = StoredPart("stats", kept.path, 0, len(data), kept.bytes, None)
        builder.write(FileRow(name, len(data), 1, Verdict.COMPLETE, [part]).to_line())
    for output in outputs.values():
        output.close()
    return builder.finish()


@pytest.mark.parametrize(
    "tables",
    [
        lambda _: 0,
        lambda number: number % 2,
        lambda number: number // 8,
        lambda number: (0, None, 1)[number % 3],
    ],
    ids=["one", "alternating", "one after the other", "some in none"],
)
def test_every_file_is_measured_once_whatever_table_it_is_in(
    builder: CaptureBuilder, tables: Callable[[int], int | None]
) -> None:
    found = [*measure([capture_in_tables(builder, tables)])]

    assert not [problem for it in found for problem in it.problems]
    assert sorted(row.file for it in found for row in it.rows) == sorted([*FILES] * TENSORS)


def test_a_name_that_comes_again_outside_the_table_is_measured_there_too(builder: CaptureBuilder) -> None:
    name, data = next(iter(FILES.items()))
    path = capture_in_tables(builder, lambda _: 0)
    again = FileRow(name, len(data), 1, Verdict.COMPLETE, [builder.store("files/again.zst", data)])
    builder.write(again.to_line())

    found = [*measure([path])]

    assert [row.file for it in found for row in it.rows].count(name) == 2 * TENSORS


def test_files_of_a_table_that_is_read_are_not_looked_at(
    builder: CaptureBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Row] = []

    def parse(line: bytes) -> Row:
        parsed.append(parse_line(line))
        return parsed[-1]

    path = capture_in_tables(builder, lambda number: number // 8)
    monkeypatch.setattr(filelist, "parse_line", parse)

    found = [*measure([path])]

    assert sum(len(it.rows) for it in found) == TENSORS * len(FILES)
    assert [row.name for row in parsed if isinstance(row, FileRow)] == [*FILES][::8]


def test_forged_text_of_the_sink_is_not_read_to_its_end(builder: CaptureBuilder) -> None:
    name, size = next(iter(FILES)), 1 << 40
    part = StoredPart("stats", "stats/forged.csv", 0, 64, size, None)
    builder.write(FileRow(name, 64, 1, Verdict.COMPLETE, [part]).to_line())
    path = builder.finish()
    (path / "stats").mkdir(exist_ok=True)
    with (path / "stats" / "forged.csv").open("wb") as file:
        file.truncate(size)  # more bytes than there is memory, and none of them on the disk

    (found,) = measure([path])

    assert found.rows == []
    assert "a line has more than 65536 bytes" in found.problems[0]
