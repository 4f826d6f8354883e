"""Figures: what a benchmark found, beside its baseline, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Floor(NamedTuple):
    """What the ratio or our own value must reach."""

    of: str  #: ``ratio`` or ``ours``
    bound: str  #: ``<=`` or ``>=``
    value: float

    def __str__(self) -> str:
        return f"{'' if self.of == 'ours' else 'ratio '}{self.bound} {_number(self.value)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One measured value beside its baseline."""

    name: str
    unit: str
    ours: float
    baseline: float
    beside: str  #: what the baseline is
    inverse: bool = False  #: whether the ratio is the baseline by ours
    floor: Floor | None = None

    @property
    def ratio(self) -> float | None:
        """How many times the baseline ours is; None if the divisor is 0."""
        over, under = (self.baseline, self.ours) if self.inverse else (self.ours, self.baseline)
        return over / under if under else None

    @property
    def reached(self) -> bool | None:
        """Whether the floor is reached; None without a floor."""
        if self.floor is None:
            return None
        value = self.ratio if self.floor.of == "ratio" else self.ours
        if value is None:
            return False
        return value <= self.floor.value if self.floor.bound == "<=" else value >= self.floor.value

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "figure": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "baseline": self.baseline,
            "beside": self.beside,
            "ratio": self.ratio,
            "floor": None if self.floor is None else str(self.floor),
            "reached": self.reached,
        }


class Detail(NamedTuple):
    """A table of the values behind the figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]


class Arguments(NamedTuple):
    """How a benchmark was called."""

    quick: bool
    json: bool


class Rounds(Protocol):
    """The measured values of every round, ours and the baseline's."""

    @property
    def ours(self) -> Sequence[float]: ...
    @property
    def baseline(self) -> Sequence[float]: ...


def spread(title: str, figures: Sequence[Figure], rounds: Sequence[Rounds]) -> Detail:
    """Return how far the *rounds* of each figure lie apart."""
    rows = [
        (figure.name, kind, min(values), median(values), max(values))
        for figure, taken in zip(figures, rounds, strict=True)
        for kind, values in (("dumpstream", taken.ours), (figure.beside, taken.baseline))
    ]
    return Detail(title, ("files", "kind", "least", "median", "most"), rows)


def parse_arguments(description: str | None) -> Arguments:
    """Read the command line that all benchmarks share; *description* is the help."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few seconds: shows that it runs, not how fast"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    arguments = parser.parse_args()
    return Arguments(arguments.quick, arguments.json)


def report(arguments: Arguments, figures: Sequence[Figure], *details: Detail) -> None:
    """Print *figures* and *details*."""
    if arguments.json:
        found = {"machine": _machine(), "quick": arguments.quick, "figures": [it.as_dict() for it in figures]}
        found |= {it.title: [dict(zip(it.columns, row, strict=True)) for row in it.rows] for it in details}
        print(json.dumps(found, indent=2))
        return
    machine = _machine()
    print(", ".join(f"{key} {value}" for key, value in machine.items()), end="\n\n")
    for detail in details:
        print(f"{detail.title}:")
        _print_table(detail.columns, [[_text(cell) for cell in row] for row in detail.rows])
    words = {True: "yes", False: "no", None: ""}
    rows = [
        [
            it.name,
            f"{_number(it.ours)} {it.unit}",
            f"{_number(it.baseline)} {it.unit} {it.beside}",
            "" if it.ratio is None else f"{_number(it.ratio)} x",
            "" if it.floor is None else str(it.floor),
            words[it.reached],
        ]
        for it in figures
    ]
    _print_table(["figure", "ours", "baseline", "ratio", "floor", "reached"], rows)


def _machine() -> dict[str, str]:
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return {
        "dumpstream": version("dumpstream"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": str(os.cpu_count()),
        "load": load,
    }


def _number(value: float) -> str:
    """Return *value* with about three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _text(cell: str | float) -> str:
    return cell if isinstance(cell, str) else _number(cell)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = [columns, *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in [columns, ["-" * width for width in widths], *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())
    print()
