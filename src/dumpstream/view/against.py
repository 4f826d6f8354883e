"""Against: how each tensor of a run differs from that of a second run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dumpstream.comparison.comparison import compare
from dumpstream.comparison.table import Agreement, ComparisonRow, Metrics
from dumpstream.diagnosis.dataflow.trace import Trace
from dumpstream.diagnosis.divergence import RowsOfFiles
from dumpstream.statistics.table import json_value
from dumpstream.system.location import Prefix
from dumpstream.view.packing import pack, unpack
from dumpstream.view.status import status_of

#: What a verdict is as a number; 0 if there is none.
_VERDICTS = [None, *Agreement]
_NUMBERS = {verdict: number for number, verdict in enumerate(_VERDICTS)}

#: The logarithms of relative differences that are none: as the page colours them.
IDENTICAL, NOT_COMPARED, NOT_FINITE = -99.0, -50.0, 99.0
_LEAST, _MOST = -30.0, 30.0
_MOST_NOTES = 5  #: on the page

_METRICS = (
    *("rel_euclidean", "cosine", "max_abs", "max_rel", "mean", "golden_mean", "std", "golden_std"),
    *("nan_mine", "nan_golden", "inf_differs"),
)
_TEXTS = ("golden", "reason", "golden_dtype")


@dataclass(frozen=True, eq=False)
class Against:
    """What a comparison says of the rows of a trace."""

    run: str  #: the second one
    sentence: str
    first: int | None  #: the row where the runs first differ
    notes: list[str]
    texts: list[str | None]  #: that the columns of texts have numbers of
    columns: dict[str, NDArray[Any]]

    def of(self, row: int) -> dict[str, Any]:
        """Return what is known of one row, as JSON can hold it."""
        columns = self.columns
        verdict = _VERDICTS[int(columns["verdict"][row])]
        return {
            "run": self.run,
            "verdict": "not compared" if verdict is None else str(verdict),
            **{name: self.texts[int(columns[name][row])] for name in _TEXTS},
            **{name: _known(columns[name][row]) for name in (*_METRICS, "worst_mine", "worst_golden")},
            "worst_index": self.texts[int(columns["worst_index"][row])],
        }

    def drawn(self, rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the columns that the map needs, for these *rows*."""
        return {name: self.columns[name][rows] for name in ("verdict", "difference")}

    def told(self, version: str) -> dict[str, Any]:
        """Return what pages are told of it, of the *version* of the run that was compared."""
        told = {"run": self.run, "sentence": self.sentence, "first": self.first}
        return {**told, "notes": self.notes[:_MOST_NOTES], "version": version}

    def to_bytes(self) -> bytes:
        """Return it as bytes, for `from_bytes`."""
        return pack({**self.told(""), "notes": self.notes, "texts": self.texts}, self.columns)

    @classmethod
    def from_bytes(cls, data: bytes) -> Against:
        """Return what `to_bytes` made *data* of."""
        header, columns = unpack(data)
        fields = {name: header[name] for name in ("run", "sentence", "first", "notes", "texts")}
        return cls(**fields, columns=columns)


def version_beside(path: Path | Prefix, other: Path | Prefix) -> str:
    """Return what changes with the run at *other*, which that at *path* can be compared with.

    Raises:
        DumpstreamError: there is no run at *other*.
    """
    with compare(path, other):
        return str(status_of(other)["version"])


def compare_rows(
    path: Path | Prefix,
    other: Path | Prefix,
    trace: Trace,
    ranks: Sequence[int] = (),
    *,
    told: Callable[[int, int], None] = lambda *_: None,
) -> Against:
    """Compare the run at *path*, whose rows are those of *trace*, with that at *other*.

    Calls *told* with the tensors and bytes that were compared.

    Raises:
        DumpstreamError: the other run cannot be read, or has nothing in common with this one.
    """
    rows = RowsOfFiles(trace)
    table = _Table(len(trace))
    with compare(path, other, rank=[str(rank) for rank in ranks]) as comparison:
        for finding in comparison.findings(tell=told):
            row = rows.find(finding.row)
            if row is not None:
                table.put(row, finding.row)
        summary, notes = comparison.summary, comparison.notes
    first = None if summary.first is None else rows.find(summary.first)
    return Against(str(other), summary.sentence, first, [*notes], [*table.texts], table.columns)


class _Table:
    def __init__(self, rows: int) -> None:
        self.texts: dict[str | None, int] = {None: 0}
        self.columns: dict[str, NDArray[Any]] = {
            "verdict": np.zeros(rows, np.uint8),
            "difference": np.full(rows, NOT_COMPARED, np.float32),
            **{name: np.full(rows, np.nan) for name in (*_METRICS, "worst_mine", "worst_golden")},
            **{name: np.zeros(rows, np.uint32) for name in (*_TEXTS, "worst_index")},
        }

    def put(self, place: int, row: ComparisonRow) -> None:
        columns, metrics = self.columns, row.metrics
        columns["verdict"][place] = _NUMBERS[row.verdict]
        columns["difference"][place] = _difference(row.verdict, metrics)
        for name in _TEXTS:
            columns[name][place] = self._number(getattr(row, name))
        for name in _METRICS:
            if (value := getattr(metrics, name)) is not None:
                columns[name][place] = value
        if metrics.worst is not None:
            columns["worst_mine"][place] = metrics.worst.mine
            columns["worst_golden"][place] = metrics.worst.golden
            columns["worst_index"][place] = self._number(str([*metrics.worst.index]))

    def _number(self, text: str | None) -> int:
        return self.texts.setdefault(text, len(self.texts))


def _difference(verdict: Agreement, metrics: Metrics) -> float:
    """Return the logarithm of the relative difference, or one of those that are none."""
    if verdict is Agreement.IDENTICAL:
        return IDENTICAL
    if verdict not in {Agreement.CLOSE, Agreement.DIFFERENT}:
        return NOT_COMPARED
    if metrics.nan_mine or metrics.nan_golden or metrics.inf_differs:
        return NOT_FINITE
    relative = metrics.rel_euclidean
    if relative is None:  # of tensors whose elements are not there, or of other shapes
        return 0.0 if verdict is Agreement.DIFFERENT else _LEAST
    return IDENTICAL if relative == 0 else min(max(log10(relative), _LEAST), _MOST)


def _known(value: Any) -> Any:
    return None if np.isnan(value) else json_value(float(value))
