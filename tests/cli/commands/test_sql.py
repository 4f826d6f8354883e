"""`sql`: what it prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from tests.conftest import CaptureBuilder

from dumpstream.cli import main
from dumpstream.format.verdict import Verdict

_QUERY = "select name, bytes from files order by name"


@pytest.fixture
def run(builder: CaptureBuilder) -> Path:
    for name in ("a", "b\n", "c"):
        builder.add(name, b"text", Verdict.UNPARSED)
    return builder.finish()


def test_table_is_printed_with_escaped_names(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(run), _QUERY]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "name  bytes",
        "a         4",
        "b\\n       4",
        "c         4",
        "3 rows",
    ]


def test_json_has_the_exact_names(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(run), _QUERY, "--format", "json"]) == 0

    assert json.loads(capsys.readouterr().out)[1] == {"name": "b\n", "bytes": 4}


def test_csv_quotes_what_needs_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(run), _QUERY, "--format", "csv"]) == 0

    assert capsys.readouterr().out == 'name,bytes\na,4\n"b\n",4\nc,4\n'


def test_parquet_goes_to_a_file_that_is_not_replaced(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.parquet"
    arguments = ["sql", str(run), _QUERY, "--format", "parquet"]

    assert main(arguments) == 2
    assert main([*arguments, "--out", str(out)]) == 0
    assert pyarrow.parquet.read_table(out).to_pydict() == {"name": ["a", "b\n", "c"], "bytes": [4, 4, 4]}
    assert main([*arguments, "--out", str(out)]) == 1
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--out", str(out), "--force"]) == 0


def test_tables_are_listed_without_a_query(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(run)]) == 0

    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == ["tensors", "problems", "files", "processes", "losses", "alerts", "edges"]


@pytest.mark.parametrize("query", [[], ["select count(*) from files"], ["from processes"], ["select 1"]])
def test_run_that_is_missing_is_no_answer(
    query: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", str(tmp_path / "nothing"), *query]) == 1
    assert "nothing does not exist; name a capture" in capsys.readouterr().err


def test_mistake_is_wrong_usage_with_a_mark_below_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(run), "fetch 1"]) == 2

    problem, line, mark = capsys.readouterr().err.splitlines()
    assert "fetch" in problem
    assert line.index("fetch") == mark.index("^")


def test_path_in_place_of_the_query_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(run), str(run)]) == 2

    assert "is the query" in capsys.readouterr().err


def test_columns_of_the_same_name_are_both_shown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(run), "select 1 as a, 2 as a"]) == 0

    assert capsys.readouterr().out.splitlines()[:2] == ["a  a'", "1   2"]


def test_json_keeps_what_is_not_finite_in_lists_and_columns_of_the_same_name(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "select ['nan'::double, 1] as a, {'b': 'inf'::double} as s, 2 as a, 1.5::decimal(9, 2) as d"

    assert main(["sql", str(run), query, "--format", "json"]) == 0

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == [{"a": ["NaN", 1.0], "s": {"b": "Infinity"}, "a'": 2, "d": "1.50"}]
