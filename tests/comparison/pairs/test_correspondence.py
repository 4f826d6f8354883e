"""Ranks, models and steps of mine and of the golden: as told, and as the names suggest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.comparison.runs import Dumped, both, capture, compared, pairs_of, write
from tests.conftest import CollectionBuilder

from dumpstream import DumpstreamError
from dumpstream.comparison.pairs.correspondence import Ties
from dumpstream.comparison.pairs.pairing import PairingOptions
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dumpstream.comparison.execution import Execution


def output(time: int = 0, **more: object) -> Dumped:
    return Dumped(time=time, inputs=0, **more)  # type: ignore[arg-type]


def collect(path: Path, ranks: Iterable[int]) -> Path:
    """Leave a capture of several processes, each with one file."""
    builder = CollectionBuilder(path)
    for rank in ranks:
        member = builder.begin(rank=rank, pid=rank + 1)
        member.add(output(rank).name, output(rank).data, Verdict.COMPLETE)
        builder.end(member)
    return builder.close()


def ranks_of(executions: Iterable[Execution]) -> list[tuple[int | None, int | None]]:
    pairs = pairs_of(executions)
    return [
        (pair.mine.identity.rank if pair.mine else -1, pair.golden.identity.rank if pair.golden else -1)
        for pair in pairs
    ]


def test_ranks_are_paired_by_number(tmp_path: Path) -> None:
    mine, golden = collect(tmp_path / "a", [0, 1, 3]), collect(tmp_path / "b", [0, 1, 2])
    executions, _ = compared(mine, golden)
    assert ranks_of(executions) == [(0, 0), (1, 1), (3, -1), (-1, 2)]
    assert [pair.reason for pair in pairs_of(executions)] == [
        None,
        None,
        "rank 3 is not in the golden",
        "rank 2 is not in mine",
    ]


def test_ranks_are_paired_as_told_and_others_left_out(tmp_path: Path) -> None:
    mine, golden = collect(tmp_path / "a", [0, 1]), collect(tmp_path / "b", [2, 3])
    options = PairingOptions(ranks=Ties.parse(["0:3"], "rank"))
    assert ranks_of(compared(mine, golden, options)[0]) == [(0, 3)]


def test_a_rank_that_is_told_must_be_there(tmp_path: Path) -> None:
    mine = collect(tmp_path / "a", [0, 1])
    with pytest.raises(DumpstreamError, match="the golden has no rank 7; it has 0, 1"):
        compared(mine, mine, PairingOptions(ranks=Ties.parse(["0:7"], "rank")))


def test_one_process_is_compared_with_the_first_of_several_and_that_is_said(tmp_path: Path) -> None:
    mine, golden = collect(tmp_path / "a", [1, 2]), capture(tmp_path / "b", [output()])
    executions, notes = compared(mine, golden)
    assert ranks_of(executions) == [(1, None), (2, -1)]
    assert notes == [
        "the golden has no ranks, and is compared with rank 1 of mine; --rank chooses another",
    ]
    assert pairs_of(executions)[1].reason == "rank 2 is not in the golden"


def test_a_rank_is_chosen_for_a_golden_without_ranks(tmp_path: Path) -> None:
    mine, golden = collect(tmp_path / "a", [1, 2]), capture(tmp_path / "b", [output()])
    executions, _ = compared(mine, golden, PairingOptions(ranks=Ties.parse(["2"], "rank")))
    assert ranks_of(executions) == [(2, None)]


def test_several_devices_without_ranks_are_ranks(tmp_path: Path) -> None:
    run = [output(device=0), output(device=1)]
    executions, notes = compared(write(tmp_path / "a", run), write(tmp_path / "b", run))
    assert ranks_of(executions) == [(0, 0), (1, 1)]
    assert notes == []


def test_steps_are_paired_as_told(tmp_path: Path) -> None:
    mine = write(tmp_path / "a", [output(1, step=4), output(2, step=5), output(3, step=6)])
    golden = write(tmp_path / "b", [output(7, step=0), output(8, step=1)])
    options = PairingOptions(steps=Ties.parse(["5:0,6:1"], "step"))
    assert both(pairs_of(compared(mine, golden, options)[0])) == [
        ("add output 0 at 2", "add output 0 at 7"),
        ("add output 0 at 3", "add output 0 at 8"),
    ]


def test_the_only_step_of_either_side_is_paired_and_that_is_said(tmp_path: Path) -> None:
    mine, golden = write(tmp_path / "a", [output(step=5)]), write(tmp_path / "b", [output(9, step=0)])
    executions, notes = compared(mine, golden)
    assert both(pairs_of(executions)) == [("add output 0 at 0", "add output 0 at 9")]
    assert notes == ["step 5 of mine is compared with step 0 of the golden, the only ones"]


def test_steps_that_only_one_side_has_are_ignored_and_that_is_said(tmp_path: Path) -> None:
    mine = write(tmp_path / "a", [output(1, step=4), output(2, step=5)])
    golden = write(tmp_path / "b", [output(7, step=None), output(8, step=None), output(9, step=None)])
    executions, notes = compared(mine, golden)
    assert both(pairs_of(executions)) == [
        ("add output 0 at 1", "add output 0 at 7"),
        ("add output 0 at 2", "add output 0 at 8"),
        (None, "add output 0 at 9"),
    ]
    assert notes == ["the golden has no steps: executions are paired in the order in which they ran"]
    assert [it.occurrence for it in executions] == [0, 0, 2]
    assert pairs_of(executions)[2].reason == "ran twice in mine"


def test_models_of_another_name_are_paired_as_told(tmp_path: Path) -> None:
    mine = write(tmp_path / "a", [output(model="a"), output(1, model="b")])
    golden = write(tmp_path / "b", [output(5, model="x"), output(6, model="y")])
    options = PairingOptions(models=Ties.parse(["a:y"], "model", whole=False))
    assert both(pairs_of(compared(mine, golden, options)[0])) == [("add output 0 at 0", "add output 0 at 6")]
    executions, _ = compared(mine, golden, PairingOptions(guess=False))
    assert {pair.reason for pair in pairs_of(executions)} == {
        "model a is not in the golden",
        "model b is not in the golden",
        "model x is not in mine",
        "model y is not in mine",
    }


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["x"], "ranks are numbers"),
        (["1:"], "write RANK, or MINE:GOLDEN"),
        ([":1"], "write RANK, or MINE:GOLDEN"),
        (["0:1,2:1"], "has 1 twice"),
        (["0", "0:2"], "has 0 twice"),
        (["9" * 30], "ranks are numbers"),
    ],
)
def test_ties_that_make_no_sense_are_refused(texts: list[str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Ties.parse(texts, "rank")
