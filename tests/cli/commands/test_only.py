"""What the reading commands say of files that a capture was not to store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dumpstream.cli import main

if TYPE_CHECKING:
    from pathlib import Path

_WORKLOAD = "models=1,ops=4,seed=3,device_threads=1"  # files in order


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Capture four files, of which one is stored."""
    path = tmp_path / "run"
    assert main(["capture", "--out", str(path), "--simulate", _WORKLOAD, "--only", "*MatMul*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " received, " in lines[0]
    assert lines[1:] == ["3 files not stored: filtered"]
    return path


def output(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    assert main([*map(str, words)]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_ls_shows_them(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "ls", run).splitlines()
    files = json.loads(output(capsys, "ls", run, "--json"))["files"]

    assert sum(" filtered " in line for line in lines) == 3
    assert lines[-1].endswith("; 3 files not stored: filtered")
    reasons = {"MatMul" in file["name"]: file["not_stored"] for file in files}
    assert (len(files), reasons) == (4, {True: None, False: "filtered"})


def test_verify_finds_everything_whole(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "3 files not stored: filtered: everything is whole" in output(capsys, "verify", run)
    assert json.loads(output(capsys, "verify", run, "--json"))["not_stored"] == 3


def test_extract_and_convert_leave_them_out(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extracted = output(capsys, "extract", run, "--out", tmp_path / "files")
    converted = output(capsys, "convert", run, "--out", tmp_path / "npy")
    named = output(capsys, "extract", run, "*Relu*", "--out", tmp_path / "more")

    assert extracted.startswith("extracted 1 of 1 file, ")
    assert extracted.endswith("; 3 files not stored: filtered\n")
    assert converted.endswith(" of 1 of 1 file; 3 files not stored: filtered\n")
    assert named == "extracted 0 of 0 files, 0 B; 1 file not stored: filtered\n"


def test_show_says_why_there_is_nothing_to_show(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = output(capsys, "show", run, "*Relu*", code=1)

    assert "was not stored: filtered (the capture had --only); see dumpstream stats" in error


def test_stats_counts_those_without_rows(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(run)]) == 0

    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "3 tensors"
    assert captured.err == (
        "dumpstream: 3 files not stored: filtered; with --sink stats: they would have rows all the same\n"
    )


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_stats_shows_all_rows_that_the_sink_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format_: str
) -> None:
    sinks = ["--sink", "zstd:", "--sink", f"stats:?format={format_}"]
    run = tmp_path / "run"
    assert main(["capture", "--out", str(run), "--simulate", _WORKLOAD, "--only", "*Relu*", *sinks]) == 0
    capsys.readouterr()

    assert main(["stats", str(run)]) == 0
    captured = capsys.readouterr()
    assert (captured.out.splitlines()[-1], captured.err) == ("12 tensors", "")


def test_a_pattern_that_no_file_matches_is_pointed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "capture",
        "--out",
        tmp_path / "run",
        "--simulate",
        _WORKLOAD,
        "--only",
        "MatMul",
        "--only",
        "A*",
    )

    lines = output(capsys, *words).splitlines()

    assert lines[1] == "4 files not stored: filtered"
    assert lines[2].startswith("no file matches --only; a pattern is that of a whole name")
