"""Examination: a pair of tensors in, a row with its metrics and its verdict out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

from dumpstream._errors import DumpFormatError, DumpstreamError, PartError, StoreError
from dumpstream.comparison.divergence import Finding
from dumpstream.comparison.dumpelements import is_blocked
from dumpstream.comparison.elements import Elements
from dumpstream.comparison.execution import Execution, Pair
from dumpstream.comparison.judgement import Judgement, judge, judge_statistics
from dumpstream.comparison.limits import LimitRules, Limits
from dumpstream.comparison.metrics import compare_elements
from dumpstream.comparison.sharding.gathering import GatheredElements
from dumpstream.comparison.sidetensor import SideTensor
from dumpstream.comparison.table import Agreement, ComparisonRow, Metrics
from dumpstream.format.dtypes import DTYPES, DType
from dumpstream.format.formats import format_of
from dumpstream.format.header import IO, Tensor
from dumpstream.format.layouts import PLAIN
from dumpstream.statistics.running import RunningStatistics
from dumpstream.statistics.table import TensorStatistics

_ND = 2
_BYTE_BITS = 8
_DTYPES = {dtype.short: dtype for dtype in reversed(DTYPES.values())}
_NOTHING = Metrics()


@dataclass(frozen=True, slots=True)
class Examination:
    """How pairs are examined."""

    limits: LimitRules = field(default_factory=LimitRules)
    kl: bool = False  #: whether to compute the Kullback-Leibler divergence, in a second pass

    def findings_of(self, execution: Execution) -> list[Finding]:
        """Return a finding for each pair of *execution*; what cannot be read is one, too."""
        return [self._finding(execution, pair) for pair in execution.pairs]

    def _finding(self, execution: Execution, pair: Pair) -> Finding:
        limits = self.limits.of(execution.op_name, execution.op_type)
        return finding_of(execution, pair, *self._examined(pair, limits))

    def _examined(self, pair: Pair, limits: Limits) -> tuple[Judgement, Metrics]:
        mine, golden = pair.mine, pair.golden
        if mine is None or golden is None:
            return _alone(pair), _NOTHING
        problem = _problem_of(mine, golden)
        if problem is None and pair.known_identical and not self._needs_elements(mine, golden):
            return Judgement(Agreement.IDENTICAL, None), _identical(mine, golden, kl=0.0 if self.kl else None)
        if problem is None:
            try:
                return self._judged(mine, golden, limits)
            except StoreError as exc:
                if exc.away:
                    raise
                problem = str(exc)
            except (DumpFormatError, PartError) as exc:
                problem = exc.detail
            except (DumpstreamError, ValueError) as exc:
                problem = str(exc)
            except OSError as exc:
                problem = f"cannot be read: {exc.strerror or exc}"
        return Judgement(Agreement.UNREADABLE, problem), _NOTHING

    def _needs_elements(self, mine: SideTensor, golden: SideTensor) -> bool:
        """Whether tensors that are known to be identical are read: CANN's csv also has their deviations."""
        known = mine.statistics is not None or golden.statistics is not None
        return self.kl and not known and mine.open is not None

    def _judged(self, mine: SideTensor, golden: SideTensor, limits: Limits) -> tuple[Judgement, Metrics]:
        if mine.open is None or golden.open is None:
            return _statistics_judged(mine, golden, limits)
        order, golden_order = orders_of(mine, golden)
        with mine.open(order=order) as ours, golden.open(order=golden_order) as theirs:
            return self._elements_judged(ours, theirs, limits)

    def _elements_judged(self, mine: Elements, golden: Elements, limits: Limits) -> tuple[Judgement, Metrics]:
        if mine.shape != golden.shape:
            return Judgement(Agreement.DIFFERENT, _shapes_text(mine.shape, golden.shape)), _NOTHING
        metrics = compare_elements(mine, golden, kl=self.kl or limits.needs_kl)
        judgement = judge(metrics, mine.dtype, golden.dtype, limits)
        remarks = [
            f"{name}: {remark}"
            for name, side in (("mine", mine), ("the golden", golden))
            if isinstance(side, GatheredElements)
            for remark in side.remarks
        ]
        if remarks:
            told = "; ".join([*remarks, judgement.reason] if judgement.reason else remarks)
            return Judgement(Agreement.DIFFERENT, told), metrics
        return judgement, metrics


def finding_of(execution: Execution, pair: Pair, judgement: Judgement, metrics: Metrics) -> Finding:
    """Return what was found of a *pair* of *execution*."""
    verdict, reason = judgement
    mine, golden = pair.mine, pair.golden
    one = mine or golden
    assert one is not None
    row = ComparisonRow(
        rank=execution.rank,
        model=execution.model,
        step=execution.step,
        op_type=execution.op_type,
        op_name=execution.op_name,
        io=one.identity.io or None,
        index=one.identity.index if one.identity.io else None,
        occurrence=execution.occurrence,
        mine=None if mine is None else mine.file,
        golden=None if golden is None else golden.file,
        dtype=None if mine is None else mine.dtype,
        golden_dtype=None if golden is None else golden.dtype,
        shape=one.original_shape or one.shape,
        verdict=verdict,
        reason="; ".join(it for it in (reason, pair.reason if golden and mine else None) if it) or None,
        metrics=metrics,
    )
    return Finding(row, mine, golden, pair.guess)


def _alone(pair: Pair) -> Judgement:
    tensor = pair.mine or pair.golden
    assert tensor is not None
    if tensor.problem is not None:
        return Judgement(Agreement.UNREADABLE, f"{tensor.problem}; {pair.reason}")
    return Judgement(Agreement.UNMATCHED, pair.reason)


def _problem_of(mine: SideTensor, golden: SideTensor) -> str | None:
    problems = {"mine": mine.problem, "the golden": golden.problem}
    return "; ".join(f"{name}: {it}" for name, it in problems.items() if it is not None) or None


def _shapes_text(mine: tuple[int, ...], golden: tuple[int, ...]) -> str:
    return f"shape {[*mine]} in mine, {[*golden]} in the golden"


def orders_of(mine: SideTensor, golden: SideTensor) -> tuple[str | None, str | None]:
    """Return the orders that the axes of both are brought to; None for what stays as it is.

    Two plain formats with the same axes are brought to that of mine, or to that of the golden if this is not
    in a dump file. A blocked format is brought to that of the other side if its original shape is another.
    """
    order, other = mine.order, golden.order
    if order is not None and other is not None:
        if order == other or {*order} != {*other}:
            return None, None
        return (None, order) if golden.format in PLAIN else (other, None)
    if order is None and _is_arranged_otherwise(mine, golden):
        return other, None
    if other is None and _is_arranged_otherwise(golden, mine):
        return None, order
    return None, None


def _is_arranged_otherwise(blocked: SideTensor, plain: SideTensor) -> bool:
    """Whether *blocked* is in a blocked format, and its original shape has another order than *plain* has."""
    shape = blocked.original_shape
    if plain.order is None or not shape or plain.shape is None or not is_blocked(blocked.format or ""):
        return False
    return shape != plain.shape and sorted(shape) == sorted(plain.shape)


def _reordered(shape: tuple[int, ...], order: str, target: str) -> tuple[int, ...]:
    if {*order} != {*target}:
        return shape
    return tuple(shape[order.index(axis)] for axis in target)


def _statistics_judged(mine: SideTensor, golden: SideTensor, limits: Limits) -> tuple[Judgement, Metrics]:
    """Compare what is known without the elements of both."""
    ours, theirs = _statistics_of(mine), _statistics_of(golden)
    if ours is None or theirs is None:
        return Judgement(Agreement.UNREADABLE, "neither its elements nor its statistics are known"), _NOTHING
    metrics = Metrics(
        count=ours.count,
        mean=ours.mean,
        std=ours.std,
        golden_mean=theirs.mean,
        golden_std=theirs.std,
    )
    if mine.shape is not None and golden.shape is not None:
        shapes = [it.original_shape or it.shape for it in (mine, golden)]
        if shapes[0] and shapes[1] and mine.order and golden.order and len(shapes[0]) == len(mine.order):
            shapes[0] = _reordered(shapes[0], mine.order, golden.order)
        if shapes[0] != shapes[1]:
            return Judgement(Agreement.DIFFERENT, _shapes_text(*shapes)), metrics  # type: ignore[arg-type]
    dtypes = [_dtype_of(it) for it in (mine, golden)]
    judgement = judge_statistics(ours, theirs, dtypes[0], dtypes[1], limits)
    return judgement, _identical(mine, golden) if judgement.agreement is Agreement.IDENTICAL else metrics


def _dtype_of(tensor: SideTensor) -> DType:
    found = _DTYPES.get(tensor.dtype or "")
    if found is None:
        raise ValueError(f"its type {tensor.dtype} is not known")
    return found


def _statistics_of(tensor: SideTensor) -> TensorStatistics | None:
    if tensor.statistics is not None or tensor.open is None:
        return tensor.statistics
    with tensor.open() as elements:
        count = math.prod(elements.shape)
        unit = elements.dtype.bits if elements.packed else -(-elements.dtype.bits // _BYTE_BITS) * _BYTE_BITS
        size = -(-count * unit // _BYTE_BITS)
        shape, dtype = elements.shape, elements.dtype
        plain = Tensor(
            *(
                IO.OUTPUT,
                0,
                dtype,
                format_of(_ND),
                shape,
                shape,
                0,
                size,
                0,
                0,
                0,
                0,
                0,
                (),
                None,
                0,
                size,
                b"",
            )
        )
        running = RunningStatistics(plain)
        for block in elements.blocks():
            running.update(block)
        return running.result()


def _identical(mine: SideTensor, golden: SideTensor, *, kl: float | None = None) -> Metrics:
    """Return the metrics of tensors that are known to be the same."""
    statistics = mine.statistics or golden.statistics
    if statistics is None:
        return _identical_metrics(mine.count, kl)
    count = mine.count if statistics.count is None else statistics.count
    return _identical_metrics(count, kl, statistics.nan, statistics.finite_mean, statistics.std)


@lru_cache(4096)
def _identical_metrics(
    count: int | None,
    kl: float | None,
    nan: int | None = None,
    mean: float | None = None,
    std: float | None = None,
) -> Metrics:
    zeros = ("max_abs", "mean_abs", "rmse", "acc_rel", "max_rel", "mean_rel", "rel_euclidean", "rel")
    more = ("max_ulp", "beyond_1_1000", "beyond_5_1000")
    return Metrics(
        count=count,
        bit_equal=count,
        cosine=1.0,
        nan_both=nan,
        nan_mine=0,
        nan_golden=0,
        inf_differs=0,
        kl=kl,
        mean=mean,
        std=std,
        golden_mean=mean,
        golden_std=std,
        **dict.fromkeys((*zeros, *more), 0.0),  # type: ignore[arg-type]
    )
