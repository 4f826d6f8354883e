from __future__ import annotations

import gc
import json
import os
import sys
import tracemalloc
from io import StringIO
from threading import Event
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest
import zstandard
from tests.conftest import CaptureBuilder

from dumpstream.analysis import measurement, sources
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.cli import main
from dumpstream.format.verdict import Verdict
from dumpstream.reading.smallfiles import read_small
from dumpstream.simulation import Workload
from dumpstream.sinks.tables.parts import CsvFiles, ParquetParts, TreeTables
from dumpstream.statistics.canncsv import CannCsv
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.statistics.table import COLUMNS
from dumpstream.system.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from dumpstream.reading.stored import StoredCapture
    from dumpstream.sinks.tables.parts import Output

WORKLOAD = Workload.parse("models=1,ops=6,nan=3,stats_text=4,tensor_bytes=64-5000")
FILES = {file.name: file.data for file in WORKLOAD.expected_files("/dump")}
NAMES = [*FILES]
SHORT = next(file for file in Workload.parse("models=1,ops=1,truncated=0").expected_files("/dump"))


def write_dumps(root: Path) -> Path:
    """Write the files as the runtime does without a callback: to the paths in their names."""
    for name, data in FILES.items():
        path = root / name.strip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def objects(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    """Return what ``stats --format json`` prints for *arguments*, which must succeed."""
    assert main(["stats", "--format", "json", *map(str, arguments)]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def add_to(builder: CaptureBuilder, name: str, data: bytes, *, output: Output, store: bool) -> StoredPart:
    """Write the rows of a file to *output*, its bytes if *store*, and a line in the journal."""
    (kept,) = output.add([(name, whole_file(origin_of(name), memoryview(data)))])
    part = StoredPart("stats", kept.path, 0, len(data), kept.bytes, None)
    parts = [builder.store(f"files{name}.zst", data)] if store else []
    builder.write(FileRow(name, len(data), 1, Verdict.COMPLETE, [*parts, part]).to_line())
    return part


def tables_of(builder: CaptureBuilder, suffix: str = ".parquet") -> TreeTables:
    root = builder.path
    tree = Tree(root, below=("stats",), suffix=suffix, base=root, directories=2, durable=False)
    return TreeTables(tree, sync=False)


def test_json_is_a_list_of_all_columns_of_all_tensors(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in FILES.items():
        builder.add(name, data, Verdict.COMPLETE)

    found = objects(capsys, builder.finish())

    assert len(found) == 3 * len(FILES)
    assert [*found[0]] == [*COLUMNS]
    assert [row["file"] for row in found[::3]] == NAMES
    assert {row["source"] for row in found if row["file"].endswith(".csv")} == {"device"}
    (nan,) = [row for row in found if row["source"] == "host" and row["nan"]]
    assert (nan["io"], nan["max"], nan["op_name"]) == ("output", "NaN", "layer_3_Add")


@pytest.mark.parametrize("kind", ["directory", "files", "compressed"])
def test_files_of_the_runtimes_own_dump_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    root = write_dumps(tmp_path / "dumps")
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    if kind == "compressed":
        for path in paths:
            path.with_name(f"{path.name}.zst").write_bytes(zstandard.compress(path.read_bytes()))
            path.unlink()

    found = objects(capsys, *(paths if kind == "files" else [root]))

    assert len(found) == 3 * len(FILES)
    assert {row["device"] for row in found} == {0}
    assert {row["model"] for row in found} == {"transformer_0"}
    assert all(row["file"].startswith(str(root)) for row in found)


def test_a_name_that_was_too_long_is_found_in_the_mapping(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "123456").write_bytes(FILES[NAMES[0]])
    (tmp_path / "mapping.csv").write_text(f"123456,{NAMES[0].rpartition('/')[2]}\n")

    found = objects(capsys, tmp_path)

    assert {row["op_type"] for row in found} == {"MatMulV2"}
    assert {row["file"] for row in found} == {str(tmp_path / "123456")}


def test_a_mapping_that_is_damaged_does_not_stop_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "123456").write_bytes(FILES[NAMES[0]])
    (tmp_path / "mapping.csv").write_text(f"123456,{NAMES[0].rpartition('/')[2]}\nshort,{'long' * 100_000}\n")

    assert {row["op_type"] for row in objects(capsys, tmp_path)} == {"MatMulV2"}


def test_a_mapping_of_one_endless_line_takes_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "123456").write_bytes(FILES[NAMES[0]])
    mapping = tmp_path / "mapping.csv"
    mapping.write_text(f"123456,{NAMES[0].rpartition('/')[2]}\n")
    os.truncate(mapping, 256 << 20)

    tracemalloc.start()
    try:
        found = objects(capsys, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert {row["op_type"] for row in found} == {"MatMulV2"}
    assert peak < 64 << 20


def test_only_rows_that_meet_all_conditions_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_dumps(tmp_path)

    found = objects(capsys, root, "--where", "nan > 0", "--where", "index = 0", "--select", "io,nan")

    assert [[*row] for row in found] == [["io", "nan"]] * len(found)
    assert found
    assert all(row["nan"] > 0 for row in found)


def test_paths_may_go_on_behind_a_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = write_dumps(tmp_path / "a"), write_dumps(tmp_path / "b")

    found = objects(capsys, first, "--where", "nan > 0", second)

    assert {row["file"].removeprefix(f"{tmp_path}/")[0] for row in found} == {"a", "b"}


def test_rows_are_sorted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_dumps(tmp_path)

    found = objects(capsys, root, "--sort", "op_type, count:desc", "--select", "op_type,count")

    keys = [(row["op_type"], -row["count"]) for row in found]
    assert keys == sorted(keys)


def test_no_rows_are_an_empty_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert objects(capsys, write_dumps(tmp_path), "--where", "nan > 1e9") == []


def test_csv_is_what_the_runtime_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = [path for path in write_dumps(tmp_path).rglob("*.csv") if path.is_file()]

    assert main(["stats", "--format", "csv", str(text)]) == 0

    assert capsys.readouterr().out == text.read_text()


def test_csv_takes_the_runtimes_selections_and_columns_in_front(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_dumps(tmp_path)

    main(["stats", "--format", "csv", "--select", "op_name,L2norm, Negative Inf", str(root)])

    header, first = capsys.readouterr().out.splitlines()[:2]
    described = "Input/Output,Index,Data Size,Data Type,Format,Shape"
    assert header == f"op_name,{described},Count,Negative Inf Count,l2norm"
    assert len(first.split(",")) == 10


def test_parquet_is_written_to_a_file_and_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, table = write_dumps(tmp_path / "dumps"), tmp_path / "table.parquet"

    code = main(["stats", "--format", "parquet", "--out", str(table), str(root)])

    assert code == 0
    assert pyarrow.parquet.read_table(table).num_rows == 3 * len(FILES)
    assert objects(capsys, table) == objects(capsys, root)
    assert table.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("format_", ["table", "csv", "json"])
def test_what_goes_to_a_file_is_what_would_be_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format_: str
) -> None:
    root, out = write_dumps(tmp_path / "dumps"), tmp_path / "out"
    command = ["stats", "--format", format_, str(root)]

    main(command)
    printed = capsys.readouterr().out
    main([*command, "--out", str(out)])

    assert out.read_text() == printed
    assert not capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_file_is_replaced_only_by_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = write_dumps(tmp_path / "dumps"), tmp_path / "out"
    out.write_text("mine")
    command = ["stats", str(root), "--out", str(out)]

    assert main(command) == 1
    assert out.read_text() == "mine"
    assert "already exists; replace it with --force" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert out.read_text() != "mine"


def test_the_table_shows_numbers_shapes_and_a_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_dumps(tmp_path)

    main(
        ["stats", str(root), "--select", "op_name,shape,nan,max", "--where", "nan > 0", "--where", "std != 1"]
    )

    header, row, count = capsys.readouterr().out.splitlines()
    assert header.split() == ["op_name", "shape", "nan", "max"]
    assert row.split()[0] == "layer_3_Add"
    assert "x" in row.split()[1]
    assert row.split()[3] == "nan"
    assert count == "1 tensor"


def test_what_the_sink_left_is_read_and_the_rest_computed(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, lost = ParquetParts(tables_of(builder)), ParquetParts(tables_of(builder))
    for name in NAMES[:2]:
        part = add_to(builder, name, FILES[name], output=kept, store=False)
    for name in NAMES[2:4]:
        gone = add_to(builder, name, FILES[name], output=lost, store=True)
    builder.add(NAMES[4], FILES[NAMES[4]], Verdict.COMPLETE)
    kept.close()
    lost.close()
    (builder.path / (gone.path or "")).unlink()

    found = objects(capsys, builder.finish())

    assert (builder.path / (part.path or "")).exists()
    assert [row["file"] for row in found[::3]] == NAMES[:5]


def test_captures_below_a_directory_are_captures(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ParquetParts(tables_of(builder))
    add_to(builder, NAMES[0], FILES[NAMES[0]], output=output, store=True)
    output.close()
    builder.finish()
    write_dumps(builder.path.parent / "others")
    (builder.path.parent / "others" / "manifest.json").write_text("of something else")

    found = objects(capsys, builder.path.parent)

    assert len(found) == 3 + 3 * len(FILES)


def test_a_histogram_is_computed_where_there_are_bytes(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ParquetParts(tables_of(builder))
    add_to(builder, NAMES[3], FILES[NAMES[3]], output=output, store=True)
    output.close()
    capture = builder.finish()

    plain, counted = objects(capsys, capture), objects(capsys, capture, "--histogram")

    assert len(plain) == len(counted) == 3
    assert not any(row["histogram"] for row in plain)
    assert sum(counted[2]["histogram"]) == counted[2]["count"]


def test_the_sinks_csv_is_read_where_there_is_nothing_else(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    add_to(
        builder,
        NAMES[0],
        FILES[NAMES[0]],
        output=CsvFiles(tables_of(builder, ".csv"), CannCsv()),
        store=False,
    )

    found = objects(capsys, builder.finish())

    assert {(row["file"], row["source"]) for row in found} == {(NAMES[0], "host")}
    assert found[0]["hash"] is None


def test_files_that_cannot_be_read_are_named_and_the_others_shown(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = builder.add(NAMES[0], FILES[NAMES[0]], Verdict.COMPLETE)
    (builder.path / (damaged.path or "")).write_bytes(b"?" * damaged.stored_bytes)
    builder.write(FileRow("lost", 0, 1, Verdict.LOST, [], cause="ring_full", lost_bytes=5).to_line())
    builder.add("cut", SHORT.data, Verdict.NEVER_CLOSED)
    builder.add(NAMES[1], FILES[NAMES[1]], Verdict.COMPLETE)

    code = main(["stats", "--format", "json", str(builder.finish())])

    captured = capsys.readouterr()
    assert code == 3
    assert {row["file"] for row in json.loads(captured.out)} == {"cut", NAMES[1]}
    first, second, third = captured.err.splitlines()
    assert f"{NAMES[0]}: files" in first
    assert second == "dumpstream: lost: nothing is stored that statistics could be computed from"
    assert third.startswith("dumpstream: cut: ")
    assert third.endswith("bytes")


def test_files_that_are_not_dumps_are_skipped_unless_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (write_dumps(tmp_path) / "notes.txt").write_text("nothing to see")
    scheme = tmp_path / "Add.add.1.2.1780159660546556"
    scheme.write_text("nothing to see either, but its name says that there should be")

    code = main(["stats", str(tmp_path)])

    lines = capsys.readouterr().err.splitlines()
    assert code == 3
    assert lines[0].startswith(f"dumpstream: {scheme}: is not a dump file")
    assert lines[1:] == ["dumpstream: 1 file without a dump header skipped"]
    assert main(["stats", str(tmp_path / "notes.txt")]) == 3


def test_a_path_with_nothing_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(tmp_path / "missing")]) == 1

    assert (
        "missing does not exist; name a capture, a dump file, or a directory of them"
        in capsys.readouterr().err
    )


def test_a_table_that_fails_halfway_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumps = write_dumps(tmp_path / "dumps")
    arguments = ["stats", str(dumps), str(tmp_path / "no"), "--format", "parquet"]

    assert main([*arguments, "--out", str(tmp_path / "t.parquet")]) == 1
    gc.collect()  # an error here would be a warning, and a warning fails the test

    assert len(capsys.readouterr().err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["dumps"]


def test_several_workers_keep_the_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_dumps(tmp_path)
    for number in range(200):
        (root / f"Add.add.1.2.{number:016}").write_bytes(FILES[NAMES[0]])

    assert objects(capsys, root, "--workers", 4) == objects(capsys, root, "--workers", 1)


class Terminal(StringIO):
    """A standard output that tells when the first row is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.has_row = Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if "layer_" in text:
            self.has_row.set()
        return super().write(text)


@pytest.mark.parametrize("format_", ["table", "csv", "json"])
def test_the_first_rows_are_shown_before_the_last_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    builder = CaptureBuilder(tmp_path / "run")
    for number in range(20):
        for name, data in FILES.items():
            builder.add(f"{name}{number}", data, Verdict.COMPLETE)
    capture, terminal = builder.finish(), Terminal()
    last = f"{NAMES[-1]}19"

    def read_late(stored: StoredCapture, rows: Sequence[FileRow]) -> list[Any]:
        if any(row.name == last for row in rows):
            assert terminal.has_row.wait(60)
        return [*read_small(stored, rows)]

    monkeypatch.setattr(measurement, "_BATCH_FILES", 5)
    monkeypatch.setattr(sources, "read_small", read_late)
    monkeypatch.setattr(sys, "stdout", terminal)
    select = ["--select", "op_name"] if format_ == "csv" else []

    assert main(["stats", str(capture), "--format", format_, "--workers", "1", *select]) == 0
    assert terminal.getvalue().count("layer_") >= 20 * (len(NAMES) - 1)
