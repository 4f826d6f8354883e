"""The progress of captures: what has come, how fast, and how full the rings are, rank by rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dumpstream.cli._display import count_text, printable, size_text
from dumpstream.cli.screen.layout import cells_of
from dumpstream.cli.screen.pace import Pace, duration_text
from dumpstream.stages.report import Report

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST_RANKS = 8
_SHARE_OF_LINES = 3
_RING_COLUMNS = 10
_PADDING = 2
_NUMBERS = {"files", "size", "rate", "fill"}
#: What is left out of lines that are too long, in this order.
_DISPENSABLE = ("bar", "files", "rate", "ring", "size", "fill")
_HIGH, _FULL = 0.5, 0.9


class Captured(NamedTuple):
    """What has come from one process that is running."""

    label: str
    report: Report


class CapturePicture:
    """A line for all that is captured, and one for each rank, if there are several.

    Of many ranks, those are shown that have lost something or whose rings are fullest.
    """

    def __init__(self) -> None:
        # Replaced as a whole, because a thread reads it.
        self._state: tuple[str, Report, Sequence[Captured]] = ("", Report(seconds=0), ())
        self._pace = Pace()
        self._paces: dict[str, Pace] = {}

    def show(self, doing: str, report: Report, running: Sequence[Captured] = ()) -> None:
        """Say what has come: *report* is of all processes together, and some are *running*."""
        self._state = (doing, report, running)

    def note(self, now: float) -> None:
        """Take samples for the rates."""
        _, report, running = self._state
        self._pace.note(now, report.bytes)
        self._paces = {process.label: self._paces.get(process.label) or Pace() for process in running}
        for process in running:
            self._paces[process.label].note(now, process.report.bytes)

    def text(self) -> str:
        """Return the line for all that is captured."""
        doing, report, _ = self._state
        parts = [count_text(report.chunks, "chunk"), count_text(report.files, "file")]
        parts += [
            size_text(report.bytes),
            _rate_text(self._pace),
            f"ring {_fill_text(report)}",
            _trouble(report),
        ]
        return f"{doing}: {', '.join(filter(None, parts))}"

    def frame(self, columns: int, lines: int) -> RenderableType:
        """Return a line for all, and lines for some ranks below it."""
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - loads slowly
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        doing, report, running = self._state
        shown = _choose(running, lines // _SHARE_OF_LINES - 2) if len(running) > 1 else []
        rows = [
            _cells(f"{doing.removeprefix('capturing ')}, {duration_text(report.seconds)}", report, self._pace)
        ]
        for label, its_report in shown:
            rows.append(_cells(f"  {printable(label)}", its_report, self._paces.get(label, Pace())))
        names = _fitting(rows, columns)
        grid = Table.grid(padding=(0, _PADDING, 0, 0))
        for name in names:
            grid.add_column(justify="right" if name in _NUMBERS else "left", no_wrap=True)
        for number, (cells, its_report) in enumerate(
            zip(rows, [report, *(it.report for it in shown)], strict=True)
        ):
            fill = _fill(its_report)
            colour = "red" if fill >= _FULL else "yellow" if fill >= _HIGH else "green"
            styles = {"label": "" if number else "bold", "rate": "cyan", "fill": colour, "lost": "bold red"}
            drawn: dict[str, RenderableType] = {it: Text(cells[it], styles.get(it, "")) for it in names}
            if "bar" in names:
                drawn["bar"] = ProgressBar(
                    total=1.0,
                    completed=fill,
                    width=_RING_COLUMNS,
                    complete_style=colour,
                    finished_style=colour,
                )
            grid.add_row(*drawn.values())
        if shown and len(shown) < len(running):
            grid.add_row(Text(f"  and {len(running) - len(shown)} more", "dim"))
        return grid


def _cells(label: str, report: Report, pace: Pace) -> dict[str, str]:
    """Return the texts of a line; that of the bar is as wide as the bar will be."""
    return {
        "label": label,
        "files": count_text(report.files, "file"),
        "size": size_text(report.bytes),
        "rate": _rate_text(pace),
        "ring": "ring",
        "bar": " " * _RING_COLUMNS,
        "fill": _fill_text(report),
        "lost": _trouble(report),
    }


def _fitting(rows: Sequence[dict[str, str]], columns: int) -> list[str]:
    """Return the names of the cells that are shown in *columns*."""
    widths = {name: max(cells_of(row[name]) for row in rows) for name in rows[0]}
    names = [name for name, width in widths.items() if width]
    for name in _DISPENSABLE:
        if sum(widths[it] + _PADDING for it in names) - _PADDING > columns and name in names:
            names.remove(name)
    return names


def _choose(running: Sequence[Captured], lines: int) -> Sequence[Captured]:
    """Return as many of *running* as fit into *lines*, in their order."""
    most = min(max(lines, 1), _MOST_RANKS)
    if len(running) <= most + 1:  # the line that says "and 1 more" has space for that one
        return running
    in_need = sorted(range(len(running)), key=lambda number: _need(running[number].report), reverse=True)
    return [running[number] for number in sorted(in_need[:most])]


def _need(report: Report) -> tuple[int, float]:
    return _lost(report), _fill(report)


def _fill(report: Report) -> float:
    return min(report.ring_fill / max(report.ring_bytes, 1), 1.0)


def _fill_text(report: Report) -> str:
    return f"{int(100 * _fill(report))} %"


def _lost(report: Report) -> int:
    return sum(loss.chunks for loss in report.losses.values())


def _trouble(report: Report) -> str:
    return f"{lost} lost" if (lost := _lost(report)) else ""


def _rate_text(pace: Pace) -> str:
    return "" if (rate := pace.per_second) is None else f"{size_text(int(rate))}/s"
