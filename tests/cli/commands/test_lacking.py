"""Captures that may have files which are on no list: what commands say that read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import CollectionBuilder

from dumpstream.cli import main

WRITING = [["extract", "--out", "out"], ["convert", "--out", "out"]]
PRINTING = [["stats"], ["stats", "--where", "nan > 0"], ["stats", "--format", "csv"]]
SHARD = ["stats", "--shard", "1/1", "--parts", "parts"]


@pytest.fixture
def run(collection: CollectionBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A capture of two processes, and of one that was not captured."""
    for rank in (0, 1):
        collection.end(collection.begin(rank=rank))
    collection.refuse(pid=2)
    monkeypatch.chdir(tmp_path)
    return collection.finish()


def break_lists(run: Path) -> None:
    (run / "rank-0/manifest.json").write_text("{")
    with (run / "rank-1/journal.jsonl").open("a") as journal:
        journal.write('{"type":"file","name":}\n')


def tells(errors: str) -> bool:
    return (
        "rank-0: " in errors
        and "its manifest.json is not dumpstream's" in errors
        and "rank-1/journal.jsonl: 1 unreadable lines" in errors
    )


@pytest.mark.parametrize("words", [*WRITING, *PRINTING])
def test_lists_that_cannot_be_read_are_told(
    run: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    command, *flags = words
    assert main([command, str(run), *flags]) == 0
    assert not tells(capsys.readouterr().err)
    break_lists(run)

    assert main([command, str(run), *flags]) == 3

    assert tells(capsys.readouterr().err)


def test_merged_shards_tell_it_too(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    break_lists(run)
    command, *flags = SHARD
    assert main([command, str(run), *flags]) == 0

    assert main(["merge", "parts"]) == 3

    assert tells(capsys.readouterr().err)


def test_they_are_among_the_problems_that_sql_has(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    break_lists(run)

    assert main(["sql", str(run), "SELECT file, problem FROM problems", "--format", "json"]) == 0

    problems = {row["file"]: row["problem"] for row in json.loads(capsys.readouterr().out)}
    assert "unreadable lines" in problems["rank-1/journal.jsonl"]
    assert "is not dumpstream's" in problems["rank-0"]
