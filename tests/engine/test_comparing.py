"""Comparisons that are cut into tasks: merged, they are what one process prints."""

from __future__ import annotations

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import DumpBuilder

from dumpstream.engine import comparing

from .jobs import DumpedFile, Job, Rank, comparable_jobs, leave, run

if TYPE_CHECKING:
    from .jobs import Ended

_FLAGS = [
    ["--json"],
    ["--format", "csv"],
    [],
    ["--all", "--rows", "0", "--order", "run"],
    ["--rtol", "0.5"],
    ["--rank", "0:1"],
]


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "_TASK_EXECUTIONS", 2)


def merged(capsys: pytest.CaptureFixture[str], directory: Path, count: int, *arguments: object) -> Ended:
    parts = directory / "parts"
    for number in range(1, count + 1):
        ended = run(capsys, *arguments, "--shard", f"{number}/{count}", "--parts", parts)
        assert ended.code in {0, 1}
        if ended.code:
            return ended
    return run(capsys, "merge", parts)


def whole(value: float, ranks: int = 2) -> Job:
    files = [DumpedFile("whole", number, (value, float(number))) for number in range(5)]
    return Job([Rank(files, "finished")] * ranks)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(mine=comparable_jobs, golden=comparable_jobs, count=st.integers(1, 3), flags=st.sampled_from(_FLAGS))
def test_a_comparison_in_shards_is_that_of_one_process(
    capsys: pytest.CaptureFixture[str], mine: Job, golden: Job, count: int, flags: list[str]
) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        sides = leave(root / "mine", mine), leave(root / "golden", golden)
        one = run(capsys, "compare", *sides, *flags)

        found = merged(capsys, root, count, "compare", *sides, *flags)

    assert found == one


@pytest.mark.parametrize("changed", [0, 3])
def test_the_first_difference_is_found_in_whichever_shard_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: int
) -> None:
    golden = whole(1.0)
    files = [it._replace(values=(2.0,)) if it.number == changed else it for it in golden.ranks[0].files]
    mine = golden._replace(ranks=[golden.ranks[0], Rank(files, "finished")])
    sides = leave(tmp_path / "mine", mine), leave(tmp_path / "golden", golden)
    one = run(capsys, "compare", *sides)

    found = merged(capsys, tmp_path, 3, "compare", *sides)

    assert found == one
    assert found.code == 3
    assert f"layer_{changed}" in found.out
    assert "rank 1" in found.out


def test_the_csv_of_msaccucmp_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = leave(tmp_path / "mine", whole(1.0)), leave(tmp_path / "golden", whole(1.5))
    run(capsys, "compare", *sides, "--as", "msaccucmp", "--out", tmp_path / "one")
    for number in (1, 2):
        run(
            capsys,
            "compare",
            *sides,
            "--as",
            "msaccucmp",
            "--shard",
            f"{number}/2",
            "--parts",
            tmp_path / "parts",
        )

    ended = run(capsys, "merge", tmp_path / "parts", "--out", tmp_path / "merged")

    (one,), (found,) = ([*(tmp_path / it).glob("*.csv")] for it in ("one", "merged"))
    assert ended.code == 3
    assert found.read_bytes() == one.read_bytes()


def test_runs_without_a_capture_are_compared_in_shards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("mine", 1), ("golden", 2)):
        (tmp_path / name).mkdir()
        for number in range(4):
            data = DumpBuilder(f"op{number}").output(np.array([value, number], np.float32)).build()
            (tmp_path / name / f"Add.op{number}.{number}.0.178000000000000{number}").write_bytes(data)
    sides = tmp_path / "mine", tmp_path / "golden"
    one = run(capsys, "compare", *sides, "--json")

    assert merged(capsys, tmp_path, 2, "compare", *sides, "--json") == one


def test_a_run_that_has_changed_between_two_shards_is_another_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = leave(tmp_path / "mine", whole(1.0)), leave(tmp_path / "golden", whole(1.5))
    run(capsys, "compare", *sides, "--shard", "1/2", "--parts", tmp_path / "parts")
    with (sides[0] / "rank-0" / "journal.jsonl").open("a", encoding="ascii") as journal:
        journal.write('{"type":"loss","cause":"ring_full","chunks":1,"bytes":8}\n')
    run(capsys, "compare", *sides, "--shard", "2/2", "--parts", tmp_path / "parts")

    refused = run(capsys, "merge", tmp_path / "parts")

    assert refused.code == 1
    assert "are of different plans" in refused.err


def test_what_a_task_reads_can_be_sent_and_has_no_capture_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dumpstream.comparison.comparison import compare  # noqa: PLC0415 - only here

    sides = leave(tmp_path / "mine", whole(1.0)), leave(tmp_path / "golden", whole(1.5))
    with compare(*sides) as comparison:
        executions = [*comparison.pairing]

    restored = pickle.loads(pickle.dumps(executions))

    tensor = restored[0].pairs[-1].mine
    with tensor.open() as elements:
        assert b"".join(map(bytes, elements.blocks())) == np.array([1, 0], np.float32).tobytes()


def test_a_mesh_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = run(capsys, "compare", tmp_path, tmp_path, "--mesh", "tp=2", "--engine", "dask")

    assert refused.code == 2
    assert "--mesh does not go with" in refused.err
