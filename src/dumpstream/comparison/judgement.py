"""Judgement: from how two tensors differ to how far they agree, with the reason."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dumpstream.comparison.limits import Limits, tolerance_of
from dumpstream.comparison.precision import is_numeric
from dumpstream.comparison.table import Agreement, Metrics
from dumpstream.format.dtypes import DType
from dumpstream.statistics.table import Number, TensorStatistics

#: A single element may be off by so many times the relative tolerance of the whole tensor.
ELEMENT_FACTOR = 4

#: What a close pair of which only statistics are known cannot tell.
ONLY_STATISTICS = "only statistics are known"


class Judgement(NamedTuple):
    """How far two tensors agree, and why not further; there is no reason for what is identical."""

    agreement: Agreement
    reason: str | None


_IDENTICAL = Judgement(Agreement.IDENTICAL, None)
_CLOSE = Judgement(Agreement.CLOSE, None)


def judge(metrics: Metrics, mine: DType, golden: DType, limits: Limits | None = None) -> Judgement:
    """Return the judgement of two tensors of the types *mine* and *golden*.

    They are identical if all elements are bit-equal. They are close if NaN and infinities are at the same
    places and of the same signs, and either

    - the largest error is at most the absolute tolerance, or
    - the relative Euclidean distance is at most the relative tolerance, and the worst element's error is at
      most 4 times that tolerance of its golden value, or of the root mean square of the golden, if that is
      larger. So a single wrong element in a large tensor is found, and noise on small elements is not.

    The tolerances are those of *limits*, or by `tolerance_of` the types. If *limits* name metrics, those are
    held against their limits instead, and tolerances count only if *limits* have them. Elements that are not
    numbers are identical or different.
    """
    limits = limits or Limits()
    if metrics.bit_equal == metrics.count:
        return _IDENTICAL
    if not (is_numeric(mine) and is_numeric(golden)):
        return _different(f"{(metrics.count or 0) - (metrics.bit_equal or 0)} bytes differ")
    reason = _special_reason(metrics, limits) or _metric_reason(metrics, limits)
    if reason is None and (not limits.metrics or limits.rtol is not None or limits.atol is not None):
        reason = _error_reason(metrics, mine, golden, limits)
    return _CLOSE if reason is None else _different(reason)


def judge_statistics(
    mine: TensorStatistics,
    golden: TensorStatistics,
    mine_dtype: DType,
    golden_dtype: DType,
    limits: Limits | None = None,
) -> Judgement:
    """Return the judgement of two tensors of which only statistics are known.

    They are identical if they have the same type and hash. They are close if they have as many elements, NaN
    and infinities, and the norm and the largest, smallest and mean finite element differ by no more than the
    tolerances allow: relative to the norm itself, and for the others 4 times that, relative to the value or
    to the root mean square of the golden, whichever is larger. Metrics with limits are not known, and do not
    count.
    """
    limits = limits or Limits()
    if mine.hash is not None and mine.hash == golden.hash and mine_dtype == golden_dtype:
        return _IDENTICAL
    reason = _count_reason(mine, golden) or _value_reason(mine, golden, mine_dtype, golden_dtype, limits)
    if reason is None and mine.count is None and golden.count is None:
        reason = "their hashes differ" if mine.hash and golden.hash else None
    return Judgement(Agreement.CLOSE, ONLY_STATISTICS) if reason is None else _different(reason)


def _different(reason: str) -> Judgement:
    return Judgement(Agreement.DIFFERENT, reason)


# Elements


def _special_reason(metrics: Metrics, limits: Limits) -> str | None:
    """Return which NaN and infinities differ, unless they have a limit."""
    if not (metrics.nan_mine or metrics.nan_golden or metrics.inf_differs):
        return None
    texts = {
        "nan_mine": "NaN only in mine",
        "nan_golden": "NaN only in the golden",
        "inf_differs": "infinite elements differ",
    }
    counts = {name: getattr(metrics, name) for name in texts if name not in limits.metrics}
    return ", ".join(f"{count} {texts[name]}" for name, count in counts.items() if count) or None


def _metric_reason(metrics: Metrics, limits: Limits) -> str | None:
    for name, limit in limits.metrics.items():
        value = getattr(metrics, name)
        if value is None:
            continue
        if name == "cosine" and not value >= limit:
            return f"{name} {_text(value)} is below {_text(limit)}"
        if name != "cosine" and not value <= limit:
            return f"{name} {_text(value)} is above {_text(limit)}"
    return None


def _error_reason(metrics: Metrics, mine: DType, golden: DType, limits: Limits) -> str | None:
    rtol, atol = tolerances(mine, golden, limits)
    largest = metrics.max_abs
    if largest is None or largest <= atol or metrics.rel_euclidean is None:
        return None
    if not metrics.rel_euclidean <= rtol:
        if rtol == 0:
            return f"max_abs {_text(largest)} is above {_text(atol)}"
        return f"rel_euclidean {_text(metrics.rel_euclidean)} is above {_text(rtol)}"
    if metrics.worst is None:
        return None
    # By numpy, as of many tensors at once: other functions round it otherwise.
    scale = float(np.hypot(metrics.golden_mean or 0.0, metrics.golden_std or 0.0))
    base = max(abs(metrics.worst.golden), scale)
    allowed = max(atol, ELEMENT_FACTOR * rtol * base)
    if largest <= allowed:
        return None
    return f"max_abs {_text(largest)} is above {_text(allowed)} at {list(metrics.worst.index)}"


def tolerances(mine: DType, golden: DType, limits: Limits) -> tuple[float, float]:
    """Return the relative and the absolute tolerance: those of *limits*, or by the types."""
    rtol, atol = tolerance_of(mine, golden)
    return (rtol if limits.rtol is None else limits.rtol), (atol if limits.atol is None else limits.atol)


def _text(value: Number) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"


# Statistics


def _count_reason(mine: TensorStatistics, golden: TensorStatistics) -> str | None:
    for name, text in [("count", "elements"), ("nan", "NaN"), ("pos_inf", "+Inf"), ("neg_inf", "-Inf")]:
        ours, theirs = getattr(mine, name), getattr(golden, name)
        if ours is not None and theirs is not None and ours != theirs:
            return f"{ours} {text} in mine, {theirs} in the golden"
    return None


def _value_reason(
    mine: TensorStatistics, golden: TensorStatistics, mine_dtype: DType, golden_dtype: DType, limits: Limits
) -> str | None:
    rtol, atol = tolerances(mine_dtype, golden_dtype, limits)
    norm = golden.l2norm if golden.l2norm is not None and math.isfinite(golden.l2norm) else 0.0
    scale = norm / math.sqrt(golden.count) if golden.count else 0.0
    pairs = [
        ("max", _finite(mine, "max"), _finite(golden, "max"), ELEMENT_FACTOR * rtol, scale),
        ("min", _finite(mine, "min"), _finite(golden, "min"), ELEMENT_FACTOR * rtol, scale),
        ("mean", _finite(mine, "mean"), _finite(golden, "mean"), ELEMENT_FACTOR * rtol, scale),
        ("l2norm", mine.l2norm, golden.l2norm, rtol, 0.0),
    ]
    for name, ours, theirs, relative, least in pairs:
        if ours is None or theirs is None or not (math.isfinite(ours) and math.isfinite(theirs)):
            continue
        error = abs(ours - theirs)
        if error > atol and error > relative * max(abs(theirs), least):
            return f"{name} is {_text(ours)} in mine, {_text(theirs)} in the golden"
    return None


def _finite(statistics: TensorStatistics, name: str) -> Number | None:
    """Return the value over the finite elements, or over all if that is not known."""
    value: Number | None = getattr(statistics, f"finite_{name}")
    return getattr(statistics, name) if value is None else value
