"""Sides of which statistics are known: tables in captures, tables by themselves, and CANN's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.comparison.runs import Dumped, both, capture, compared, pairs_of, write
from tests.conftest import CaptureBuilder

from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.format.verdict import Verdict
from dumpstream.sinks.tables.parts import ParquetParts, TreeTables
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.system.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

RUN = [Dumped("Add", "add", 0), Dumped("Mul", "mul", 1, value=3), Dumped("Add", "add", 2)]
ONLY_STATISTICS = "has only statistics, so only these are compared"


def tabled(path: Path, files: Iterable[Dumped], *, stored: bool = True) -> Path:
    """Leave a capture of *files*, with the table of the statistics sink."""
    builder = CaptureBuilder(path)
    tree = Tree(path, below=("stats",), suffix=".parquet", base=path, directories=2, durable=False)
    output = ParquetParts(TreeTables(tree, sync=False))
    for file in files:
        (kept,) = output.add([(file.name, whole_file(origin_of(file.name), memoryview(file.data)))])
        parts = [StoredPart("stats", kept.path, 0, len(file.data), kept.bytes, None)]
        if stored:
            parts.append(builder.store(f"files/{file.name}.zst", file.data))
        builder.write(FileRow(file.name, len(file.data), 1, Verdict.COMPLETE, parts).to_line())
    output.close()
    return builder.finish()


def test_tensors_with_the_same_hash_are_identical_whatever_their_files_are_called(tmp_path: Path) -> None:
    mine = tabled(tmp_path / "a", RUN)
    golden = tabled(tmp_path / "b", [RUN[0]._replace(time=7), RUN[1]._replace(value=4, time=8)])
    executions, notes = compared(mine, golden)
    pairs = pairs_of(executions)
    assert [pair.known_identical for pair in pairs[:4]] == [True, True, False, False]
    assert [execution.identical for execution in executions] == [True, False, False]
    assert notes == []
    tensor = pairs[2].mine
    assert tensor is not None
    assert tensor.statistics is not None
    assert (tensor.statistics.mean, tensor.count, tensor.shape, tensor.dtype) == (3, 6, (2, 3), "float32")


def test_the_bytes_of_a_file_in_a_table_are_read_if_they_are_wanted(tmp_path: Path) -> None:
    executions, _ = compared(tabled(tmp_path / "a", RUN), tabled(tmp_path / "b", RUN))
    tensor = pairs_of(executions)[2].golden
    assert tensor is not None
    assert tensor.open is not None
    with tensor.open() as elements:
        assert sum(map(len, elements.blocks())) == 24


def test_a_capture_of_statistics_alone_says_so(tmp_path: Path) -> None:
    executions, notes = compared(tabled(tmp_path / "a", RUN, stored=False), capture(tmp_path / "b", RUN))
    assert notes == [f"mine {ONLY_STATISTICS}"]
    assert all(pair.mine and pair.mine.open is None and pair.mine.statistics for pair in pairs_of(executions))


def test_a_damaged_table_is_replaced_by_the_headers_of_its_files(tmp_path: Path) -> None:
    mine, golden = tabled(tmp_path / "a", RUN), tabled(tmp_path / "b", RUN)
    table = next(golden.glob("stats/*.parquet"))
    table.write_bytes(b"PAR1" + b"\0" * 100)
    executions, notes = compared(mine, golden)
    assert all(mine == golden for mine, golden in both(pairs_of(executions)))
    assert len(pairs_of(executions)) == 6
    (note,) = notes
    assert note.startswith(f"the golden: {table.relative_to(golden)}: cannot be read as Parquet")
    assert note.endswith("the headers of its files are read instead")


def test_a_table_that_is_not_there_is_replaced_by_the_headers_of_its_files(tmp_path: Path) -> None:
    mine, golden = tabled(tmp_path / "a", RUN), tabled(tmp_path / "b", RUN[:2])
    next(golden.glob("stats/*.parquet")).unlink()
    pairs = pairs_of(compared(mine, golden)[0])
    assert [pair.golden is not None for pair in pairs] == [True] * 4 + [False] * 2
    assert not any(pair.golden.problem for pair in pairs if pair.golden)


def test_a_name_that_came_again_is_two_executions(tmp_path: Path) -> None:
    mine = CaptureBuilder(tmp_path / "a")
    for value in (1, 2):
        file = RUN[0]._replace(value=value)
        part = mine.store(f"files/{value}.zst", file.data)
        mine.write(FileRow(file.name, len(file.data), 1, Verdict.COMPLETE, [part]).to_line())
    executions, _ = compared(mine.finish(), capture(tmp_path / "b", RUN[:1]))
    assert [(it.occurrence, it.identical, len(it.pairs)) for it in executions] == [
        (0, True, 2),
        (1, False, 2),
    ]
    tensor = executions[1].pairs[0].mine
    assert tensor is not None
    assert tensor.open is not None
    with tensor.open() as elements:
        assert bytes(next(elements.blocks())[:4]) == b"\0\0\0\x40"


def test_a_table_by_itself_is_compared_by_its_statistics(tmp_path: Path) -> None:
    table = next(tabled(tmp_path / "run", RUN).glob("stats/*.parquet"))
    executions, notes = compared(table, tabled(tmp_path / "b", RUN))
    assert len(pairs_of(executions)) == 6
    assert all(pair.known_identical for pair in pairs_of(executions))
    assert notes == [f"mine {ONLY_STATISTICS}"]


HEADER = "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count"


def test_the_text_of_cann_is_compared_by_its_statistics(tmp_path: Path) -> None:
    golden = write(tmp_path / "b", [])
    path = golden / f"{RUN[0].name}.csv"
    path.parent.mkdir(parents=True)
    line = "0,24,DT_FLOAT,ND,2x3,1,1,1,6,0"
    path.write_text(f"{HEADER}\nInput,{line}\nOutput,{line}\n")
    executions, notes = compared(write(tmp_path / "a", RUN[:1]), golden)
    pairs = pairs_of(executions)
    assert [pair.golden is not None and pair.mine is not None for pair in pairs] == [True, True]
    assert all(pair.golden and pair.golden.open is None and pair.golden.statistics for pair in pairs)
    assert notes == [f"the golden {ONLY_STATISTICS}"]


@pytest.mark.parametrize("time", ["1780159660000000", "1780159660000009"])
def test_text_with_the_operators_in_its_lines_has_an_execution_for_each(tmp_path: Path, time: str) -> None:
    path = tmp_path / "statistic.csv"
    line = "0,24,DT_FLOAT,ND,2x3,1,1,1,6,0"
    path.write_text(
        f"Op Type,Op Name,Task ID,Stream ID,Timestamp,{HEADER}\n"
        f"Add,add,1,3,{time},Input,{line}\nAdd,add,1,3,{time},Output,{line}\n"
        f"Mul,mul,1,3,1780159660000020,Output,{line}\n"
    )
    executions, _ = compared(path, write(tmp_path / "b", RUN[:2]))
    assert [(it.op_name, [pair.mine is not None for pair in it.pairs]) for it in executions] == [
        ("add", [True, True]),
        ("mul", [False, True]),
    ]
