"""Badness: which tensors have values that they should not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.trace import UNKNOWN, Mask, Numbers, Trace

#: How many steps a tensor's history must have, and how many spreads from the median are far, and near.
_HISTORY, _FAR, _NEAR = 5, 10.0, 5.0
_NORMAL = 1.4826  #: times the median deviation is the standard deviation of normal values


class Badness(StrEnum):
    """What is bad about a tensor, the worst first."""

    NAN = "nan"
    INF = "inf"
    OVERFLOW = "overflow"  #: the device recorded that the operator overflowed
    SATURATION = "saturation"  #: too many elements of an 8-bit float are at its largest magnitude
    DRIFT = "drift"  #: far from what the same tensor was in other steps
    DIVERGENCE = "divergence"  #: not what the golden run has


#: Types whose bytes are not numbers: handles of resources, whose values are not dumped, and unknown ones.
_NO_NUMBERS = {None, "resource", "undefined"}

DEFAULT = (Badness.NAN, Badness.INF, Badness.OVERFLOW)
SATURATED = 0.01


@dataclass(frozen=True, eq=False)
class Findings:
    """What is bad, and what is known to be good."""

    kinds: tuple[Badness, ...]  #: what was looked for
    of_kind: dict[Badness, Mask]  #: the bad rows; not finite values are found whether looked for or not
    bad: Mask  #: of one of the kinds, or not finite
    looked_for: Mask  #: of one of the kinds
    known: Mask  #: whether all of the tensor was seen, so that it is good if it is not bad
    doubtful: dict[Badness, Mask]  #: the rows that may be bad in this way, although they do not show it

    def kind(self, row: int) -> Badness:
        """Return the worst that is bad about *row*."""
        return next(kind for kind in Badness if kind in self.of_kind and self.of_kind[kind][row])


def find_bad(
    trace: Trace,
    executions: Executions,
    kinds: Sequence[Badness] = DEFAULT,
    others: Mapping[Badness, Mask] | None = None,
    *,
    compared: Mask | None = None,
    lossy: bool = False,
    saturated: float = SATURATED,
) -> Findings:
    """Return the bad rows of *trace*, and of *others*, which are bad by more than their statistics.

    With a golden run, only rows that were *compared* with it may be known to be good. If files were lost,
    which is what *lossy* says, so may be records of overflows.
    """
    counts = trace.counts
    of_kind = {
        Badness.NAN: counts["nan"] > 0,
        Badness.INF: (counts["pos_inf"] > 0) | (counts["neg_inf"] > 0),
    }
    doubtful: dict[Badness, Mask] = {}
    if Badness.SATURATION in kinds:
        of_kind[Badness.SATURATION] = _saturated(trace) > saturated
    if Badness.DRIFT in kinds:
        of_kind[Badness.DRIFT], doubtful[Badness.DRIFT] = _drifted(trace, executions)
    of_kind |= others or {}
    if lossy and Badness.OVERFLOW in of_kind:
        doubtful[Badness.OVERFLOW] = ~of_kind[Badness.OVERFLOW]
    bad = np.logical_or.reduce([*of_kind.values()])
    known = _known(trace) if compared is None else _known(trace) & compared
    none = np.zeros(len(trace), np.bool_)
    looked_for = np.logical_or.reduce([none, *(mask for kind, mask in of_kind.items() if kind in kinds)])
    return Findings(tuple(kinds), of_kind, bad, looked_for, known, doubtful)


def _known(trace: Trace) -> Mask:
    counts = trace.counts
    no_problem = np.array([it is None for it in trace.texts["problem"]], np.bool_)[trace.codes["problem"]]
    whole = (counts["bytes"] == counts["size"]) | (counts["size"] == UNKNOWN)
    numbers = (counts["nan"] != UNKNOWN) & (counts["pos_inf"] != UNKNOWN) & (counts["neg_inf"] != UNKNOWN)
    typed = np.array([it not in _NO_NUMBERS for it in trace.texts["dtype"]], np.bool_)
    known: Mask = no_problem & whole & numbers & typed[trace.codes["dtype"]]
    return known


def _saturated(trace: Trace) -> Numbers:
    """Return the share of each tensor that is certainly saturated; a part that was cut off may not be."""
    size = trace.counts["size"]
    seen = np.clip(trace.counts["bytes"] / np.maximum(size, 1), 0, 1)
    found: Numbers = trace.reals["saturated"] * np.where(size > 0, seen, 1)
    return found


def _drifted(trace: Trace, executions: Executions) -> tuple[Mask, Mask]:
    """Return the rows whose root mean square is far from that of the same tensor in earlier steps.

    And those of which it is neither far nor near, or not known. A tensor may have other shapes in each step.
    """
    drifted, doubtful = np.zeros(len(trace), np.bool_), np.ones(len(trace), np.bool_)
    size = trace.reals["l2norm"] / np.sqrt(np.maximum(trace.counts["count"], 1))
    rows = np.flatnonzero((executions.of_row != UNKNOWN) & np.isfinite(size))
    for same in _histories(trace, executions, rows):
        values = np.log(np.maximum(size[same], np.finfo(np.float64).tiny))
        for place in range(_HISTORY, len(same)):
            before = values[:place]
            median = np.median(before)
            spread = max(_NORMAL * float(np.median(np.abs(before - median))), 0.05)
            far = abs(values[place] - median) / spread
            drifted[same[place]], doubtful[same[place]] = far > _FAR, _NEAR < far <= _FAR
    return drifted, doubtful


def _histories(trace: Trace, executions: Executions, rows: Numbers) -> list[Numbers]:
    """Return the rows of each tensor of each operator, in the order of time; those with a history only."""
    key = [
        trace.process[rows],
        *(trace.codes[name][rows] for name in ("model", "op_type", "op_name")),
        trace.io[rows],
        trace.counts["index"][rows],
    ]
    order = np.lexsort((executions.sequence[rows], *reversed(key)))
    changes = np.zeros(len(order), np.bool_)
    for column in key:
        ordered = column[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    parts = np.split(rows[order], np.flatnonzero(changes))
    return [part for part in parts if len(part) > _HISTORY]
