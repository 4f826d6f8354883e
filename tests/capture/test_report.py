from __future__ import annotations

from dataclasses import fields
from typing import Any

from dumpstream import Report
from dumpstream.stages.report import LossCount, total_report

_FIGURES = (
    "chunks",
    "bytes",
    "files",
    "open_files",
    "stored_bytes",
    "unnamed_losses",
    "waiting",
    "waiting_files",
    "not_stored",
    "skipped_files",
    "ring_bytes",
    "ring_fill",
)


def test_total_of_several_captures_has_the_sum_of_every_figure() -> None:
    figures: dict[str, Any] = {name: number for number, name in enumerate(_FIGURES, start=1)}
    one = Report(
        seconds=1, verdicts={"complete": 2}, losses={"late": LossCount(1, 10)}, modes=("op",), **figures
    )
    other = Report(seconds=2, verdicts={"complete": 1, "failed": 1}, losses={"late": LossCount(2, 5)})

    total = total_report([one, one, other], seconds=3)

    assert {name: getattr(total, name) for name in _FIGURES} == {
        name: 2 * figure for name, figure in figures.items()
    }
    assert total.seconds == 3
    assert total.verdicts == {"complete": 5, "failed": 1}
    assert total.losses == {"late": LossCount(4, 25)}
    assert total.modes == ("op",)


def test_every_figure_of_a_report_is_in_the_total() -> None:
    others = {"seconds", "verdicts", "losses", "failure", "cut_off", "modes", "own_process", "profile"}

    assert {field.name for field in fields(Report)} == others | {*_FIGURES}


def test_an_empty_capture_of_a_model_is_told_what_its_name_is() -> None:
    hints = Report(seconds=1, modes=("model",)).hints

    assert any("model file's name without its suffix" in hint and "from memory" in hint for hint in hints)
    assert not any("model_name" in hint for hint in Report(seconds=1, modes=("op",)).hints)
