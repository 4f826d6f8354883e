"""Statistics whose tables are not where the capture left them."""

from __future__ import annotations

import shutil
import sys
from subprocess import run
from typing import TYPE_CHECKING

import pytest

from dumpstream.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def capture(*sinks: str) -> None:
    flags = [word for sink in sinks for word in ("--sink", sink)]
    assert main(["capture", "--out", "run", "--simulate", "small", *flags]) == 0


def stats(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], list[str]]:
    capsys.readouterr()
    code = main(["stats", *arguments])
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err.splitlines()


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_tables_that_are_elsewhere_are_told_in_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], format_: str
) -> None:
    capture(f"stats:{here}/tables?format={format_}")
    (here / "tables").rename(here / "copy")

    code, _, said = stats(capsys, "run")

    (line,) = [line for line in said if "statistics" in line]
    assert code == 3
    assert f"the statistics of 16 files are in {here}/tables" in line
    assert "which is not here; run the command where it is, or name a copy of it" in line
    assert len(said) == 1
    assert stats(capsys, "copy")[0] == 0  # as the line says


def test_tables_that_are_elsewhere_and_there_are_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(f"stats:{here}/tables")

    code, printed, said = stats(capsys, "run")

    assert (code, said) == (0, [])
    assert "tensors" in printed[-1]


def test_missing_tables_do_not_matter_where_the_bytes_are(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture("zstd:", f"stats:{here}/tables")
    expected = stats(capsys, "run", "--sort", "file,io,index")
    shutil.rmtree(here / "tables")

    assert stats(capsys, "run", "--sort", "file,io,index") == expected


def test_table_that_is_missing_in_the_capture_is_told_in_one_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture("stats:")
    shutil.rmtree(here / "run" / "stats")

    code, _, said = stats(capsys, "run")

    assert code == 3
    assert len(said) == 1
    assert "the statistics of 16 files were in a table in stats that is missing" in said[0]


def test_every_process_says_where_its_tables_are(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumpstream = [sys.executable, "-m", "dumpstream"]
    flags = ["--out", "run", "--sink", f"stats:{here}/tables"]
    run([*dumpstream, "capture", *flags, "--", *dumpstream, "simulate", "--ranks", "2"], check=True)
    shutil.rmtree(here / "tables")

    code, _, said = stats(capsys, "run")

    assert code == 3
    assert [f"rank-{rank}/the statistics" in said[rank] for rank in range(2)] == [True, True]
    assert len(said) == 2
