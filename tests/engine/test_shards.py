"""Shards: computed apart and merged, they are what one process prints."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dumpstream.engine import portion
from dumpstream.engine.part import PartName

from .jobs import DumpedFile, Job, Rank, jobs, leave, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import CaptureBuilder

    from .jobs import Ended

_COMMANDS = [
    ["stats", "--format", "csv"],
    ["stats", "--format", "json"],
    ["stats", "--format", "json", "--sort", "host,rank,file,io,index"],
    ["stats", "--sort", "max:desc,file", "--limit", "5"],
    ["stats", "--where", "nan > 0 or problem is not null"],
    ["stats", "--select", "file,finite_max,finite_min,histogram,shape", "--histogram"],
    ["verify"],
    ["verify", "--json"],
]
_WHOLE = Rank([DumpedFile("whole", number, (1.0, 2.0)) for number in range(3)], "finished")


@contextmanager
def portions_of(size: int) -> Iterator[None]:
    """Cut captures that have more than *size* bytes into slices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portion, "_PORTION_BYTES", size)
        yield


def shards(capsys: pytest.CaptureFixture[str], parts: Path, count: int, *arguments: object) -> list[Ended]:
    numbers = range(1, count + 1)
    return [run(capsys, *arguments, "--shard", f"{it}/{count}", "--parts", parts) for it in numbers]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return leave(tmp_path / "job", Job([_WHOLE] * 4))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    job=jobs,
    count=st.integers(1, 4),
    command=st.sampled_from(_COMMANDS),
    size=st.sampled_from([1, 300, 1 << 20]),
)
def test_merged_shards_are_what_one_process_prints(
    capsys: pytest.CaptureFixture[str], job: Job, count: int, command: list[str], size: int
) -> None:
    with TemporaryDirectory() as directory, portions_of(size):
        path, parts = leave(Path(directory) / "job", job), Path(directory) / "parts"
        name, *flags = command
        one = run(capsys, name, path, *flags)

        ended = shards(capsys, parts, count, name, path, *flags)
        merged = run(capsys, "merge", parts)

    assert [it.code for it in ended] == [0] * count
    assert merged == one


def test_merged_parquet_has_the_same_rows_in_the_same_order(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "stats", job, "--format", "parquet", "--out", tmp_path / "one.parquet")
    shards(capsys, tmp_path / "parts", 3, "stats", job, "--format", "parquet")

    run(capsys, "merge", tmp_path / "parts", "--out", tmp_path / "merged.parquet")

    one, merged = (pyarrow.parquet.read_table(tmp_path / f"{it}.parquet") for it in ("one", "merged"))
    assert merged.num_rows == 24
    assert merged.equals(one)


def test_several_paths_and_a_directory_without_a_capture_are_merged_as_one_process_reads_them(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "Add.a.1.0.1780000000000000").write_bytes(_WHOLE.files[0].data)
    arguments = ["stats", job, tmp_path / "dumps", "*Add*", "--format", "csv", "--select", "capture,rank,Max"]
    one = run(capsys, *arguments)

    shards(capsys, tmp_path / "parts", 2, *arguments)

    assert run(capsys, "merge", tmp_path / "parts") == one


def test_a_pattern_that_no_file_of_any_shard_matches_is_refused(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = run(capsys, "stats", job, "*Add*", "nowhere", "--format", "csv")
    shards(capsys, tmp_path / "parts", 2, "stats", job, "*Add*", "nowhere", "--format", "csv")

    merged = run(capsys, "merge", tmp_path / "parts")

    assert (merged.code, merged.err) == (one.code, one.err)
    assert "no file matches 'nowhere'" in merged.err


def test_a_shard_that_is_run_again_computes_nothing_and_changes_nothing(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tmp_path / "parts"
    first = shards(capsys, parts, 1, "verify", job)
    before = {it.name: it.stat().st_mtime_ns for it in parts.iterdir()}

    second = shards(capsys, parts, 1, "verify", job)

    assert "5 parts" in first[0].out
    assert "5 of them there before" in second[0].out
    assert {it.name: it.stat().st_mtime_ns for it in parts.iterdir()} == before


def test_a_shard_that_is_resumed_computes_only_what_is_missing(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tmp_path / "parts"
    one = run(capsys, "stats", job)
    shards(capsys, parts, 2, "stats", job)
    next(parts.iterdir()).unlink()

    resumed = run(capsys, "stats", job, "--shard", "1/1", "--parts", parts)

    assert "4 parts" in resumed.out
    assert "3 of them there before" in resumed.out
    assert run(capsys, "merge", parts) == one


@pytest.mark.parametrize("command", [["stats", "--format", "csv"], ["verify"]], ids=lambda it: it[0])
def test_a_large_capture_of_one_process_is_cut_into_slices(
    tmp_path: Path, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    name, *flags = command
    for file in _WHOLE.files:
        builder.add(file.name, file.data, file.verdict)
    capture = builder.finish()
    one = run(capsys, name, capture, *flags)

    with portions_of(len(_WHOLE.files[0].data)):
        (ended,) = shards(capsys, tmp_path / "parts", 1, name, capture, *flags)

    assert "3 parts" in ended.out
    assert run(capsys, "merge", tmp_path / "parts") == one


def test_rows_of_a_table_come_once_however_the_capture_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [DumpedFile("whole", number, (1.0, 2.0)) for number in range(8)]
    job = leave(tmp_path / "job", Job([Rank(files, "finished", has_tables=True)]))
    one = run(capsys, "stats", job, "--format", "csv")

    with portions_of(1):
        (ended,) = shards(capsys, tmp_path / "parts", 1, "stats", job, "--format", "csv")

    assert "8 parts" in ended.out
    assert run(capsys, "merge", tmp_path / "parts") == one


def test_problems_come_in_the_order_of_the_files_however_the_capture_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [DumpedFile(kind, number, (1.0,)) for number, kind in enumerate(["missing", "short"] * 2)]
    job = leave(tmp_path / "job", Job([Rank(files, "finished")]))
    one = run(capsys, "verify", job)

    with portions_of(1):
        shards(capsys, tmp_path / "parts", 1, "verify", job)

    kinds = [line.split()[0] for line in one.out.splitlines()]
    assert kinds[:4] == ["missing", "verdict"] * 2
    assert run(capsys, "merge", tmp_path / "parts") == one


def test_slices_of_a_capture_that_has_changed_in_between_are_refused(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with portions_of(1):
        run(capsys, "stats", job, "--shard", "1/2", "--parts", tmp_path / "parts")
        with (job / "rank-1" / "journal.jsonl").open("a", encoding="ascii") as journal:
            journal.write('{"type":"loss","cause":"ring_full","chunks":1,"bytes":8}\n')
        run(capsys, "stats", job, "--shard", "2/2", "--parts", tmp_path / "parts")

    refused = run(capsys, "merge", tmp_path / "parts")

    assert refused.code == 1
    assert "rank-1 has changed while its slices were computed" in refused.err


def test_missing_parts_are_refused_by_their_numbers(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "stats", job, "--shard", "1/4", "--parts", tmp_path)

    refused = run(capsys, "merge", tmp_path)

    assert refused.code == 1
    assert "of 4 parts, 2-4 are missing" in refused.err


def test_parts_of_different_plans_are_refused_by_name(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards(capsys, tmp_path / "parts", 1, "stats", job)
    shards(capsys, tmp_path / "parts", 1, "stats", job, "--where", "nan > 0")

    refused = run(capsys, "merge", tmp_path / "parts")

    assert refused.code == 1
    assert refused.err.count("part-") == 2
    assert "are of different plans" in refused.err


def test_the_same_part_in_two_places_is_refused(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        shards(capsys, tmp_path / name, 1, "stats", job)

    refused = run(capsys, "merge", tmp_path / "a", tmp_path / "b")

    assert refused.code == 1
    assert "are the same part" in refused.err


def test_parts_of_a_capture_that_has_changed_in_between_are_refused(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards(capsys, tmp_path / "parts", 1, "stats", job)
    with (job / "rank-0" / "journal.jsonl").open("a", encoding="ascii") as journal:
        journal.write('{"type":"loss","cause":"ring_full","chunks":1,"bytes":8}\n')
    run(capsys, "stats", job, "--shard", "1/4", "--parts", tmp_path / "parts")

    refused = run(capsys, "merge", tmp_path / "parts")

    assert refused.code == 1
    assert "whose capture has changed in between" in refused.err


@pytest.mark.parametrize("damage", ["cut", "renamed", "other"])
def test_a_part_that_is_not_what_its_name_says_is_refused(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    shards(capsys, tmp_path / "parts", 1, "stats", job)
    first, second, *_ = sorted((tmp_path / "parts").iterdir())
    if damage == "cut":
        first.write_bytes(first.read_bytes()[:-20])
    elif damage == "renamed":
        first.write_bytes(second.read_bytes())
    else:
        run(capsys, "stats", job, "--format", "parquet", "--out", first, "--force")

    refused = run(capsys, "merge", tmp_path / "parts")

    assert refused.code == 1
    assert first.name in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"dumpstream.part", {"request": ["stats"]}),
        (b"dumpstream.part", {"request": {"command": ["stats"]}}),
        (b"dumpstream.part", {"request": {"command": "os"}}),
        (b"dumpstream.part", {"request": {"command": "stats", "output": 3, "patterns": []}}),
        (b"dumpstream.part", {"format": 2}),
        (b"dumpstream.result", 3),
        (b"dumpstream.result", {"skipped": None}),
        (b"dumpstream.result", {"sliced": 7}),
    ],
    ids=str,
)
def test_what_no_task_has_written_is_refused_in_a_line(
    tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str], key: bytes, value: Any
) -> None:
    shards(capsys, tmp_path / "parts", 1, "stats", job)
    for path in (tmp_path / "parts").iterdir():
        table = pyarrow.parquet.read_table(path)
        about = dict(pyarrow.parquet.read_metadata(path).metadata)
        about[key] = json.dumps({**json.loads(about[key]), **value} if isinstance(value, dict) else value)
        pyarrow.parquet.write_table(table.replace_schema_metadata(about), path)

    refused = run(capsys, "merge", tmp_path / "parts")

    assert (refused.code, refused.out) == (1, "")
    assert refused.err.count("\n") == 1


def test_a_place_without_parts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = run(capsys, "merge", tmp_path)

    assert refused.code == 1
    assert "holds no parts" in refused.err


def test_the_name_of_a_part_says_of_which_task_it_is() -> None:
    name = PartName("0123456789abcdef", 3, 16, "f" * 32)

    assert PartName.parse(str(name)) == name
    assert PartName.parse("part-3.parquet") is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["--shard", "1/2"],
        ["--parts", "x"],
        ["--shard", "1/2", "--engine", "dask"],
        ["--shard", "1/2", "--parts", "x", "--out", "y"],
        ["--engine", "dask=tcp://127.0.0.1:1"],
    ],
)
def test_flags_that_do_not_go_together_are_wrong_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    refused = run(capsys, "stats", ".", *arguments)

    assert refused.code == 2


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "-1/2"])
def test_what_is_not_a_shard_is_refused(capsys: pytest.CaptureFixture[str], shard: str) -> None:
    with pytest.raises(SystemExit):
        run(capsys, "stats", ".", f"--shard={shard}", "--parts", "x")

    assert "write K/N" in capsys.readouterr().err
