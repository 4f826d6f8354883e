"""Copies of captures: their tensors are counted, and only looked at if one of them may not be whole."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.comparison.runs import Dumped, capture, pairing, write
from tests.comparison.sides.test_statistics import tabled

from dumpstream import compare
from dumpstream._native import count_tensors
from dumpstream.comparison.pairs.correspondence import Ties
from dumpstream.comparison.pairs.pairing import PairingOptions
from dumpstream.comparison.table import Agreement

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUN = [Dumped("Add", "add", 0), Dumped("Mul", "mul", 1, inputs=2), Dumped("Add", "add", 2)]
TENSORS = 7


def counted(mine: Path, golden: Path, options: PairingOptions | None = None) -> int | None:
    with pairing(mine, golden, options) as found:
        return found.count_copied(lambda _: None)


def copied(mine: Path) -> Path:
    return shutil.copytree(mine, mine.with_name("copy"))


@pytest.mark.parametrize("make", [capture, tabled])
def test_the_tensors_of_a_copy_are_counted(tmp_path: Path, make: Callable[..., Path]) -> None:
    mine = make(tmp_path / "a", RUN)
    assert counted(mine, copied(mine)) == TENSORS


@pytest.mark.parametrize("make", [capture, tabled])
def test_a_copy_has_the_counts_of_its_rows(tmp_path: Path, make: Callable[..., Path]) -> None:
    mine = make(tmp_path / "a", RUN)
    golden = copied(mine)
    told: list[int] = []
    with compare(mine, golden) as quick:
        assert [*quick.findings(agreeing=False, tell=lambda tensors, _: told.append(tensors))] == []
    with compare(mine, golden) as thorough:
        assert len([*thorough]) == TENSORS
    assert quick.summary == thorough.summary
    assert quick.notes == thorough.notes
    assert quick.summary.counts[Agreement.IDENTICAL] == told[-1] == TENSORS


def test_a_copy_with_a_damaged_file_takes_a_closer_look(tmp_path: Path) -> None:
    mine = capture(tmp_path / "a", [*RUN, Dumped("Sub", "sub", 3, damaged=True)])
    golden = copied(mine)
    assert counted(mine, golden) is None
    with compare(mine, golden) as comparison:
        assert [it.row.op_name for it in comparison.findings(agreeing=False)] == ["sub"]


def test_a_copy_of_which_only_statistics_are_known_takes_a_closer_look(tmp_path: Path) -> None:
    mine = tabled(tmp_path / "a", RUN, stored=False)
    assert counted(mine, copied(mine)) is None


def test_a_table_that_cannot_be_read_takes_a_closer_look(tmp_path: Path) -> None:
    mine = tabled(tmp_path / "a", RUN)
    golden = copied(mine)
    for table in mine.rglob("*.parquet"):
        table.write_bytes(b"nothing")
    assert counted(mine, golden) is None


def test_other_captures_are_not_copies(tmp_path: Path) -> None:
    mine = capture(tmp_path / "a", RUN)
    assert counted(mine, capture(tmp_path / "b", [RUN[0]._replace(value=2), *RUN[1:]])) is None
    assert counted(mine, write(tmp_path / "c", RUN)) is None
    assert counted(capture(tmp_path / "d", []), capture(tmp_path / "e", [])) is None


def test_a_copy_of_which_other_steps_are_compared_takes_a_closer_look(tmp_path: Path) -> None:
    mine = capture(tmp_path / "a", RUN)
    options = PairingOptions(steps=Ties([(0, 0)]))
    assert counted(mine, copied(mine), options) is None


def test_tensors_are_counted_only_in_files_that_are_what_their_headers_promise() -> None:
    whole = RUN[1].data
    assert count_tensors([whole, whole[:-1], whole + b"\0", b"", b"\xff" * 40, whole]) == [3, 0, 0, 0, 0, 3]
    with pytest.raises(TypeError):
        count_tensors((whole,))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        count_tensors([whole, None])  # type: ignore[list-item]
