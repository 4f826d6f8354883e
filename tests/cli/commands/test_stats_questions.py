"""Which rows `stats` shows: conditions, patterns, the limit, and several captures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.conftest import CaptureBuilder

from dumpstream.analysis import sources
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.cli import main
from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload
from dumpstream.sinks.tables.parts import ParquetParts, TreeTables
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.system.tree import Tree

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

FILES = {
    file.name: file.data
    for file in Workload.parse("models=1,ops=6,steps=3,nan=3@1,tensor_bytes=64-5000").expected_files("/dump")
}


def make_capture(path: Path, *, table: bool = False) -> Path:
    """Capture `FILES`; with a *table*, store only what the statistics sink keeps."""
    path.mkdir()
    builder = CaptureBuilder(path)
    if not table:
        for name, data in FILES.items():
            builder.add(name, data, Verdict.COMPLETE)
        return builder.finish()
    tree = Tree(path, below=("stats",), suffix=".parquet", base=path, directories=2, durable=False)
    output = ParquetParts(TreeTables(tree, sync=False))
    for name, data in FILES.items():
        (kept,) = output.add([(name, whole_file(origin_of(name), memoryview(data)))])
        part = StoredPart("stats", kept.path, 0, len(data), kept.bytes, None)
        builder.write(FileRow(name, len(data), 1, Verdict.COMPLETE, [part]).to_line())
    output.close()
    return builder.finish()


def objects(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    """Return what ``stats --format json`` prints for *arguments*, which must succeed."""
    assert main(["stats", "--format", "json", *map(str, arguments)]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("table", [False, True])
def test_conditions_choose_rows_by_text_ranges_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, table: bool
) -> None:
    capture = make_capture(tmp_path / "run", table=table)

    found = objects(capsys, capture, "--where", "1 <= iteration <= 2 and (op_name ~ 'layer_3_*' or nan > 0)")

    assert {(row["iteration"], row["op_name"]) for row in found} == {(1, "layer_3_Add"), (2, "layer_3_Add")}
    assert len(found) == 2 * 3
    assert (
        objects(capsys, capture, "--where", "io == 'output' and nan > 0", "--where", "iteration != 1") == []
    )


@pytest.mark.parametrize("table", [False, True])
def test_patterns_choose_files_as_in_ls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, table: bool
) -> None:
    capture = make_capture(tmp_path / "run", table=table)
    exact = next(iter(FILES))

    found = objects(capsys, capture, "*/1/Add.*", exact)

    assert main(["ls", str(capture), "*/1/Add.*", exact, "--json"]) == 0
    listed = {file["name"] for file in json.loads(capsys.readouterr().out)["files"]}
    assert {row["file"] for row in found} == listed
    assert len(listed) == 2


def test_patterns_choose_files_of_a_directory_and_rows_of_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = make_capture(tmp_path / "run")
    assert main(["extract", str(capture), "--out", str(tmp_path / "dumps")]) == 0
    table = tmp_path / "run.parquet"
    assert main(["stats", str(capture), "--format", "parquet", "--out", str(table)]) == 0
    capsys.readouterr()

    for place in (tmp_path / "dumps", table):
        found = objects(capsys, place, "*Add.layer_3*")
        assert len(found) == 3 * 3
        assert {row["op_name"] for row in found} == {"layer_3_Add"}


def test_a_pattern_that_no_file_matches_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = make_capture(tmp_path / "run")

    assert main(["stats", str(capture), "*Add*", "run2"]) == 1

    error = capsys.readouterr().err
    assert error == (
        "dumpstream: no file matches 'run2'; for a part of a name write '*run2*'; "
        "`dumpstream ls` shows the names\n"
    )


@pytest.mark.parametrize("table", [False, True])
def test_rows_of_several_paths_say_which_they_are_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, table: bool
) -> None:
    first = make_capture(tmp_path / "a", table=table)
    second = make_capture(tmp_path / "b", table=table)
    half = 3 * len(FILES)

    found = objects(capsys, first, second)

    assert [row["capture"] for row in found] == [str(first)] * half + [str(second)] * half
    assert {row["capture"] for row in objects(capsys, first)} == {None}
    chosen = objects(capsys, first, second, "--where", f"capture == '{second}' and nan > 0")
    assert [row["capture"] for row in chosen] == [str(second)]
    assert main(["stats", str(first), str(second), "--limit", "1"]) == 0
    assert capsys.readouterr().out.split()[0] == "capture"


def test_tables_keep_the_captures_that_their_rows_are_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_capture(tmp_path / name) for name in ("a", "b")]
    both, one = tmp_path / "both.parquet", tmp_path / "one.parquet"
    assert main(["stats", *map(str, runs), "--format", "parquet", "--out", str(both)]) == 0
    assert main(["stats", str(runs[0]), "--format", "parquet", "--out", str(one)]) == 0

    assert {row["capture"] for row in objects(capsys, both)} == {*map(str, runs)}
    assert {row["capture"] for row in objects(capsys, both, one)} == {*map(str, runs), str(one)}


def test_dump_files_that_are_named_are_told_apart_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = make_capture(tmp_path / "run")
    assert main(["extract", str(capture), "--out", str(tmp_path / "dumps")]) == 0
    files = sorted(map(str, (path for path in (tmp_path / "dumps").rglob("*") if path.is_file())))
    capsys.readouterr()

    assert {row["capture"] for row in objects(capsys, *files)} == {None}
    assert main(["stats", *files, "--limit", "1"]) == 0
    assert "capture" not in capsys.readouterr().out


def test_the_limit_ends_the_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = make_capture(tmp_path / "run")
    read: list[int] = []
    monkeypatch.setattr(sources, "read_small", _counting(read))
    monkeypatch.setattr("dumpstream.analysis.measurement._BATCH_FILES", 1)

    assert len(objects(capsys, capture, "--limit", "2", "--workers", "1")) == 2
    assert 1 <= len(read) < len(FILES)
    assert len(objects(capsys, capture, "--limit", "1000")) == 3 * len(FILES)
    everything = objects(capsys, capture)
    assert objects(capsys, capture, "--limit", "4") == everything[:4]
    assert objects(capsys, capture, "--limit", "1", "--sort", "count:desc") == [
        max(everything, key=lambda row: row["count"])
    ]


def _counting(read: list[int]) -> Any:
    def read_small(stored: Any, rows: Any) -> Any:
        read.extend(1 for _ in rows)
        return original(stored, rows)

    original = sources.__dict__["read_small"]
    return read_small


def test_the_table_says_that_it_ends_at_the_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = make_capture(tmp_path / "run")

    assert main(["stats", str(capture), "--limit", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 tensors, the limit"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--sort", "nan:down"], "no order 'down'"),
        (["--select", "Max"], "no column 'Max'"),
        (["--format", "csv", "--select", "Median"], "no column 'Median'"),
        (["--format", "parquet"], "name a file with --out"),
        (["--workers", "0"], "--workers must be at least 1"),
        (["--limit", "0"], "--limit must be at least 1"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    code = main(["stats", str(make_capture(tmp_path / "run")), *arguments])

    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line


def test_a_wrong_condition_is_shown_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["stats", str(make_capture(tmp_path / "run")), "--where", "nan > 0 and iterations < 3"])

    assert code == 2
    assert capsys.readouterr().err.splitlines() == [
        "dumpstream: no column 'iterations'; did you mean iteration?",
        "dumpstream:   nan > 0 and iterations < 3",
        "dumpstream:               ^^^^^^^^^^",
    ]
