"""Captures that may have files which are on no list: what commands say that read them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import CaptureBuilder, CollectionBuilder, DumpBuilder

from dumpstream.cli import main
from dumpstream.format.verdict import Verdict

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


def test_a_process_that_has_just_begun_is_not_told(
    collection: CollectionBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    collection.end(collection.begin(rank=0))
    shutil.rmtree(collection.begin(rank=1).path)

    for command in (["stats"], ["stats", "--shard", "1/1", "--parts", str(out / "parts")], ["extract"]):
        flags = ["--out", str(out / "files")] if command == ["extract"] else []
        assert main([command[0], str(collection.path), *command[1:], *flags]) == 0
    assert main(["merge", str(out / "parts")]) == 0
    assert "rank-1" not in capsys.readouterr().err
    collection.close()
    assert main(["stats", str(collection.path)]) == 3
    assert "rank-1: " in capsys.readouterr().err


@pytest.mark.parametrize("command", ["stats", "verify", "ls"])
def test_a_host_that_cannot_be_read_is_told_whatever_the_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    for host in ("node-a", "node-b"):
        collection = CollectionBuilder(tmp_path / "job", host)
        collection.end(collection.begin(rank=0))
        collection.finish()
    (tmp_path / "job" / "node-b" / "manifest.json").write_text("{")

    code = main([command, str(tmp_path / "job"), "--rank", "0"])

    told = capsys.readouterr()
    assert "node-b" in told.out + told.err
    assert code == (0 if command == "ls" else 3)


def test_watch_tells_it(
    builder: CaptureBuilder, dump_of: Callable[[str], DumpBuilder], capsys: pytest.CaptureFixture[str]
) -> None:
    for task, name in enumerate(("C", "B_To_C")):
        data = dump_of(name).output(np.zeros(4, np.float32)).build()
        path = f"/dump/20260530164725/0/net/1/2/Relu.{name}.{task}.1.178015966000000{task}"
        builder.add(path, data, Verdict.COMPLETE)
    builder.write('{"type":"file","name":}')

    assert main(["watch", str(builder.finish())]) == 3

    told = capsys.readouterr()
    assert "1 clean" in told.out
    assert "journal.jsonl: 1 unreadable lines" in told.err


@pytest.mark.parametrize("together", [False, True])
def test_of_several_captures_each_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, together: bool
) -> None:
    for name in ("a", "b"):
        builder = CaptureBuilder(tmp_path / "runs" / name)
        builder.write('{"type":"file","name":}')
        builder.finish()
    paths = [tmp_path / "runs"] if together else [tmp_path / "runs" / name for name in ("a", "b")]

    assert main(["stats", *map(str, paths)]) == 3
    assert main(["stats", *map(str, paths), "--shard", "1/1", "--parts", str(tmp_path / "parts")]) == 0
    one = capsys.readouterr().err
    assert main(["merge", str(tmp_path / "parts")]) == 3

    prefix = "" if together else f"{tmp_path}/runs/"
    for told in (one, capsys.readouterr().err):
        assert all(f"{prefix}{name}/journal.jsonl: 1 unreadable lines" in told for name in ("a", "b"))


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
