"""The tables of a run, and what SQL may and may not do with them."""

from __future__ import annotations

import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import CaptureBuilder, CollectionBuilder, DumpBuilder

from dumpstream._errors import DumpstreamError
from dumpstream.analysis.measurement import measure
from dumpstream.archive.alertrow import AlertRow
from dumpstream.archive.rows import JOURNAL, FileRow
from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload
from dumpstream.statistics.table import COLUMNS, TensorRow
from dumpstream.tables.database import QueryError, columns_of_tables, open_database

_WORKLOAD = Workload.parse("models=1,ops=6,steps=3,nan=3@1,tensor_bytes=64-5000")
_FILES = {file.name: file.data for file in _WORKLOAD.expected_files("/dump")}
_PAGE = Path(__file__).parents[2] / "docs" / "sql.md"


@pytest.fixture
def run(builder: CaptureBuilder) -> Path:
    for name, data in _FILES.items():
        builder.add(name, data, Verdict.COMPLETE)
    return builder.finish()


def ask(path: Path, query: str) -> list[tuple[Any, ...]]:
    with open_database([path], query=query) as database:
        batches = [batch.to_pydict() for batch in database.ask(query)]
    return [row for batch in batches for row in zip(*batch.values(), strict=True)]


def test_tensors_are_those_that_stats_measures(run: Path) -> None:
    extremes = {"max", "min", "finite_max", "finite_min"}  # which are doubles in the table
    columns = [name for name in COLUMNS if name not in extremes]
    measured = [row for file in measure([run]) for row in file.rows]

    found = ask(run, f"select {', '.join(columns)} from tensors")

    def cells(row: TensorRow) -> tuple[Any, ...]:
        values = [getattr(row, name) for name in columns]
        return tuple([*it] if isinstance(it, tuple) else it for it in values)

    assert sorted(map(repr, found)) == sorted(repr(cells(row)) for row in measured)


def test_extremes_of_integers_are_exact(builder: CaptureBuilder, dump: DumpBuilder) -> None:
    largest = 2**31 - 1
    builder.add("Op.op.1.2.3", dump.output(np.array([largest], np.int32)).build(), Verdict.COMPLETE)

    (found,) = ask(builder.finish(), "select max_integer, min_integer from tensors")

    assert found == (largest, largest)


def test_table_of_a_finished_run_is_made_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask(run, "select count(*) from tensors")

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("the run is measured again")

    monkeypatch.setattr("dumpstream.tables.tensortable.measure_batches", refuse)

    assert ask(run, "select count(*) from tensors") == first


def test_run_that_has_changed_is_measured_again(builder: CaptureBuilder) -> None:
    first, second, *_ = _FILES
    builder.add(first, _FILES[first], Verdict.COMPLETE)
    part = builder.store("files/later.zst", _FILES[second])
    run = builder.finish()
    before = ask(run, "select count(distinct file) from tensors")
    row = FileRow(second, part.bytes, 1, Verdict.COMPLETE, [part])
    with (run / JOURNAL).open("a") as journal:
        journal.write(row.to_line() + "\n")

    after = ask(run, "select count(distinct file) from tensors")

    assert (before, after) == ([(1,)], [(2,)])


def test_files_that_cannot_be_read_are_problems_each_time(builder: CaptureBuilder) -> None:
    name = next(iter(_FILES))
    part = builder.add(name, _FILES[name], Verdict.COMPLETE)
    run = builder.finish()
    assert part.path is not None
    (run / part.path).write_bytes(b"damaged")

    first, second = (ask(run, "select file, problem from problems") for _ in range(2))

    assert first == second
    assert [file for file, _ in first] == [name]
    assert ask(run, "select count(*) from tensors") == [(0,)]


def test_files_have_what_their_names_say(run: Path) -> None:
    found = ask(run, "select name, op_name, step, verdict, bytes from files order by name")

    assert [(name, size) for name, *_, size in found] == sorted((n, len(d)) for n, d in _FILES.items())
    assert {step for _, _, step, *_ in found} == {0, 1, 2}
    assert {verdict for *_, verdict, _ in found} == {"complete"}


def test_processes_of_several_ranks_are_told_apart(collection: CollectionBuilder) -> None:
    for rank in (0, 1):
        capture = collection.begin(rank=rank, pid=rank + 1)
        capture.add("a", b"text", Verdict.UNPARSED)
        collection.end(capture)
    run = collection.close()

    assert ask(run, "select process, rank, pid, ending, files from processes order by all") == [
        ("rank-0", 0, 1, "exit code 0", 1),
        ("rank-1", 1, 2, "exit code 0", 1),
    ]
    assert ask(run, "select name, rank from files order by all") == [("rank-0/a", 0), ("rank-1/a", 1)]
    assert ask(run, "select count(*) from losses") == [(0,)]


@pytest.mark.parametrize(
    "query",
    [
        "from read_text('/etc/passwd')",
        "from read_csv('/etc/passwd')",
        "from glob('/*')",
        "copy tensors to '{directory}/out.csv'",
        "attach '{directory}/other.db'",
        "install httpfs",
        "set enable_external_access = true",
        "set allowed_paths = ['/etc/passwd']",
        "from '/proc/self/environ'",
        "export database '{directory}/all'",
        "pragma database_list",
        "reset allowed_paths",
        "from query('copy (select 1) to ''{directory}/out.csv''')",
        "from sqlite_scan('{directory}/other.db', 'x')",
        "select getenv('HOME')",
    ],
)
def test_nothing_but_the_tables_can_be_reached(run: Path, tmp_path: Path, query: str) -> None:
    before = {*tmp_path.iterdir()}

    with open_database([run], query="tensors files") as database, pytest.raises(QueryError):
        [*database.ask(query.format(directory=tmp_path))]

    assert {*tmp_path.iterdir()} == before


def test_rows_that_do_not_fit_into_memory_wait_in_a_directory_that_goes_away(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.iterdir()}
    query = "select current_setting('temp_directory') as spill from tensors limit 1"

    with open_database([run], query=query) as database:
        (batch,) = database.ask(query)
        spill = Path(batch["spill"][0].as_py())
        assert stat.S_IMODE(spill.stat().st_mode) == 0o700
        assert tmp_path not in spill.parents

    assert not spill.exists()
    assert {*tmp_path.iterdir()} == before


def test_file_behind_a_table_cannot_be_written(run: Path) -> None:
    query = "select file, io, index from tensors"
    before = ask(run, query)
    writing = "copy (select 1 as a) to '/proc/self/fd/{}' (format parquet, use_tmp_file false)"
    with open_database([run], query=query) as database:
        (allowed,) = database.ask("select current_setting('allowed_paths')[1] as path")
        fd = allowed["path"][0].as_py().rpartition("/")[2]
        for statement in (writing.format(fd), f"explain analyze {writing.format(fd)}"):
            with pytest.raises(QueryError, match="SELECT"):
                database.ask(statement)

    assert ask(run, query) == before


@pytest.mark.parametrize("query", ["", "select 1; select 2", "create table x as select 1", "drop view files"])
def test_query_is_one_select(run: Path, query: str) -> None:
    with open_database([run], query="files") as database, pytest.raises(QueryError, match="one SELECT"):
        database.ask(query)


def test_objects_of_the_program_are_not_tables(run: Path) -> None:
    secret = {"a": [1]}  # DuckDB would find it by its name, unless told otherwise

    with open_database([run], query="tensors files") as database, pytest.raises(QueryError, match="secret"):
        database.ask("from secret")
    assert secret


def test_mistake_is_told_with_its_place(run: Path) -> None:
    with open_database([run], query="tensors files") as database, pytest.raises(QueryError) as raised:
        database.ask("select nan frm tensors where")

    assert any("^" in note for note in raised.value.__notes__)


def test_value_that_cannot_be_computed_is_an_error_of_the_query(run: Path) -> None:
    with open_database([run], query="tensors files") as database, pytest.raises(QueryError):
        [*database.ask("select cast(op_name as integer) from tensors")]


def test_path_without_anything_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DumpstreamError), open_database([tmp_path / "nothing"], query="tensors"):
        pass


def test_edges_lead_from_what_was_written_to_what_was_read(builder: CaptureBuilder) -> None:
    files = Workload.parse("models=1,ops=6,steps=2,flow=on,tensor_bytes=64-500").expected_files("/dump")
    for file in files:
        builder.add(file.name, file.data, Verdict.COMPLETE)
    run = builder.finish()

    proven = ask(
        run,
        "select count(*) from edges "
        "join tensors as read on (read.file = to_file and read.io = to_io and read.index = to_index) "
        "join tensors as made on (made.file = from_file and made.io = from_io and made.index = from_index) "
        "where link = 'proven' and made.hash = read.hash",
    )

    assert proven == ask(run, "select count(*) from edges where link = 'proven'")
    assert proven > [(0,)]


def test_listed_columns_are_those_of_the_tables(run: Path) -> None:
    for table, columns in columns_of_tables().items():
        query = f"from {table}"
        with open_database([run], query=query) as database:
            assert database.ask(query).schema.names == columns


def _examples() -> list[str]:
    return re.findall(r"^```sql\n(.*?)^```", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("query", _examples())
def test_example_of_the_documents_is_answered(run: Path, query: str) -> None:
    ask(run, query)


def test_alerts_of_the_journal_are_a_table(builder: CaptureBuilder) -> None:
    first = AlertRow(
        time="2026-01-01T00:00:00+00:00",
        sentence="It's the first.",
        kind="nan",
        blame="made",
        reason="clean inputs",
        corrects=False,
        file="a",
        op_name="add",
        step=3,
        bad=7,
    )
    for row in (first, replace(first, sentence="It's the second.", corrects=True)):
        builder.write(row.to_line())

    found = ask(builder.finish(), "select sentence, op_name, step, bad, device, corrects from alerts")

    assert found == [
        ("It's the first.", "add", 3, 7, None, False),
        ("It's the second.", "add", 3, 7, None, True),
    ]


def test_run_without_alerts_has_an_empty_table(run: Path) -> None:
    assert ask(run, "select count(*) from alerts") == [(0,)]
