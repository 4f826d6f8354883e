from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from dumpstream.cli.screen.capturing import Captured, CapturePicture
from dumpstream.stages.report import Report


def _lines(ranks: int, *, columns: int = 100, lines: int = 24) -> list[str]:
    picture = CapturePicture()
    running = [Captured(f"rank {number}", Report(seconds=1.0)) for number in range(ranks)]
    picture.show(f"capturing {ranks} processes", Report(seconds=1.0), running)
    picture.note(1.0)
    console = Console(file=StringIO(), width=columns, color_system=None)
    with console.capture() as captured:
        console.print(picture.frame(columns, lines))
    return [line.rstrip() for line in captured.get().rstrip("\n").split("\n")]


@pytest.mark.parametrize(
    ("ranks", "last"), [(6, "rank 5"), (7, "rank 6"), (8, "and 2 more"), (200, "and 194 more")]
)
def test_last_rank_is_not_left_out_for_a_line_that_says_so(ranks: int, last: str) -> None:
    drawn = _lines(ranks)

    assert drawn[-1].strip().startswith(last)
    assert len(drawn) <= 8


@pytest.mark.parametrize("columns", [1, 10, 20, 40, 80])
def test_lines_fit_terminals_of_any_width(columns: int) -> None:
    assert all(len(line) <= columns for line in _lines(4, columns=columns))
