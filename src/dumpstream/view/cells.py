"""Cells: what the map of a page draws, as columns of numbers that the page takes as they are.

The page has all rows of the run, and puts rows together that share a place on the map: the worst one counts,
so a single bad tensor is never averaged away.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.trace import UNKNOWN, Numbers, Trace

_HISTORY = 5  #: steps that a magnitude is compared with
_LEAST_HISTORY = 2  #: of them that must be there
_MOST_NUMBER = 1 << 62
_LEAST_SPREAD = 0.05  #: of logarithms: smaller changes are no drift
_MAD = 1.4826  #: from the median of distances to a standard deviation


class Operator(NamedTuple):
    """One line of the map."""

    model: str | None
    op_type: str | None
    op_name: str | None


@dataclass(frozen=True, eq=False)
class Cells:
    """The tensors of a run, column by column; the texts that numbers stand for are beside them."""

    processes: list[str]
    operators: list[Operator]  #: in the order in which they ran
    steps: list[int | None]
    columns: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["row"])


def cells_of(trace: Trace, executions: Executions) -> Cells:
    """Return the cells of a run; rows of something that is not an operator have none."""
    rows = np.flatnonzero(executions.of_row != UNKNOWN)
    of = executions.of_row[rows]
    operators, operator = _operators(trace, executions)
    steps, step = np.unique(executions.step, return_inverse=True)
    counts, reals = trace.counts, trace.reals
    magnitude = _magnitude(trace, rows)
    columns: dict[str, NDArray[Any]] = {
        "row": rows.astype(np.uint32),
        "process": trace.process[rows].astype(np.uint16),
        "step": step[of].astype(np.uint32),
        "operator": operator[of].astype(np.uint32),
        "io": trace.io[rows].astype(np.uint8),
        "index": _whole(counts["index"][rows]),
        "count": _whole(counts["count"][rows]),
        "nan": _whole(counts["nan"][rows]),
        "inf": _whole(sum(np.maximum(counts[name][rows], 0) for name in ("pos_inf", "neg_inf"))),
        "max": _real(reals["finite_max"][rows]),
        "min": _real(reals["finite_min"][rows]),
        "mean": _real(reals["mean"][rows]),
        "magnitude": magnitude,
        "drift": _drift(_series(trace, rows, operator[of]), executions.step[of], magnitude),
    }
    return Cells(
        processes=[process.label for process in trace.processes],
        operators=operators,
        steps=[None if it == UNKNOWN else it for it in steps.tolist()],
        columns=columns,
    )


def _operators(trace: Trace, executions: Executions) -> tuple[list[Operator], Numbers]:
    """Return the operators in the order in which they ran in a step, and which one each execution is of."""
    codes = [executions.model, executions.op_type, executions.op_name]
    _, one, of = np.unique(_combined(*codes), return_index=True, return_inverse=True)
    found, of = np.stack([it[one] for it in codes], axis=1), of.reshape(-1)
    new = np.ones(len(executions), np.bool_)
    new[1:] = (executions.process[1:] != executions.process[:-1]) | (
        executions.step[1:] != executions.step[:-1]
    )
    starts, group = np.flatnonzero(new), np.cumsum(new)
    place = np.arange(len(executions)) - (starts[group - 1] if len(starts) else 0)
    first = np.sort(np.unique(_combined(of, group), return_index=True)[1])  # of each operator in each step
    # Where something is missing, others come earlier than they ran: the latest place is the right one.
    latest = np.zeros(len(found), np.int64)
    np.maximum.at(latest, of[first], place[first])
    ranked = np.lexsort((np.arange(len(found)), executions.task[one], latest))
    order = _ordered(ranked, _followers(of[first], group[first]))
    number = np.empty(len(found), np.int64)
    number[order] = np.arange(len(found))
    texts = trace.texts
    names = [
        Operator(texts["model"][model], texts["op_type"][op_type], texts["op_name"][op_name])
        for model, op_type, op_name in found[order].tolist()
    ]
    return names, number[of]


def _followers(operator: Numbers, group: Numbers) -> dict[int, list[int]]:
    """Return which operators ran right behind each one in some *group*, and never before it."""
    same = group[1:] == group[:-1]
    pairs = {*zip(operator[:-1][same].tolist(), operator[1:][same].tolist(), strict=True)}
    found: dict[int, list[int]] = {}
    for before, after in pairs:
        if (after, before) not in pairs:
            found.setdefault(before, []).append(after)
    return found


def _ordered(ranked: Numbers, followers: dict[int, list[int]]) -> Numbers:
    """Return *ranked* so that each is before its *followers*; where they go round in a circle, as it was."""
    rank = {it: place for place, it in enumerate(ranked.tolist())}
    waits = dict.fromkeys(rank, 0)
    for after in (it for some in followers.values() for it in some):
        waits[after] += 1
    ready = [rank[it] for it, count in waits.items() if not count]
    heapify(ready)
    rest = iter(ranked.tolist())
    ordered: dict[int, None] = {}
    while len(ordered) < len(rank):
        it = int(ranked[heappop(ready)]) if ready else next(rest)
        if it in ordered:
            continue
        ordered[it] = None
        for after in followers.get(it, ()):
            waits[after] -= 1
            if not waits[after]:
                heappush(ready, rank[after])
    return np.array([*ordered], np.int64)


def _magnitude(trace: Trace, rows: Numbers) -> NDArray[np.float32]:
    """Return the logarithm of the largest finite magnitude; NaN if it is 0 or not known."""
    largest = np.fmax(np.abs(trace.reals["finite_max"][rows]), np.abs(trace.reals["finite_min"][rows]))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log10(largest)
    found[~np.isfinite(found)] = np.nan
    return found.astype(np.float32)


def _whole(counts: Any) -> NDArray[Any]:
    """Return *counts*, of which those that are not known are 0, in four bytes each if all fit."""
    known = np.maximum(counts, 0)
    fits = not len(known) or known.max() <= np.iinfo(np.uint32).max
    found: NDArray[Any] = known.astype(np.uint32 if fits else np.float64)
    return found


def _real(values: NDArray[np.float64]) -> NDArray[Any]:
    """Return *values* in four bytes each, unless a finite one is too large for that."""
    largest = np.abs(values[np.isfinite(values)]).max(initial=0)
    return values.astype(np.float32 if largest <= np.finfo(np.float32).max else np.float64)


def _series(trace: Trace, rows: Numbers, operator: Numbers) -> Numbers:
    """Return a number for each row, the same for the same tensor in different steps."""
    return _combined(trace.process[rows], operator, trace.io[rows], trace.counts["index"][rows])


def _combined(*columns: Numbers) -> Numbers:
    """Return a number for each row, the same for rows that have the same in all *columns*."""
    combined = np.zeros(len(columns[0]), np.int64)
    most = 1  # more than any number in it
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if most * (high - low + 1) > _MOST_NUMBER:
            column, low = np.unique(column, return_inverse=True)[1].reshape(-1), 0  # noqa: PLW2901 - the same in small
            combined = np.unique(combined, return_inverse=True)[1].reshape(-1)
            most, high = int(combined.max(initial=0)) + 1, int(column.max(initial=0))
        combined = combined * (high - low + 1) + (column - low)
        most *= high - low + 1
    return combined


def _drift(series: Numbers, step: Numbers, magnitude: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return how far each magnitude is from those of the steps before, in standard deviations of them."""
    order = np.lexsort((step, series))
    values, of = magnitude[order].astype(np.float64), series[order]
    before = np.full((_HISTORY, len(values)), np.nan)
    for shift in range(1, _HISTORY + 1):
        same = of[shift:] == of[:-shift]
        before[shift - 1, shift:][same] = values[:-shift][same]
    known = np.isfinite(before).sum(axis=0)
    median = _medians(before, known)
    spread = _MAD * _medians(np.abs(before - median), known)
    drift = np.abs(values - median) / np.maximum(spread, _LEAST_SPREAD)
    drift[known < _LEAST_HISTORY] = np.nan
    found = np.empty(len(values), np.float32)
    found[order] = drift
    return found


def _medians(values: NDArray[np.float64], known: Numbers) -> NDArray[np.float64]:
    """Return the median of each column, of which as many are *known* and the others are NaN."""
    ordered = np.sort(values, axis=0)  # NaNs are the last
    high, columns = np.maximum(known, 1), np.arange(values.shape[1])
    middle: NDArray[np.float64] = (ordered[(high - 1) // 2, columns] + ordered[high // 2, columns]) / 2
    return middle
