"""Summary: how two runs agree as a whole, and the sentence that answers where they first differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dumpstream.comparison.divergence import Divergence
from dumpstream.comparison.table import Agreement, ComparisonRow, Metrics, Role, json_row
from dumpstream.statistics.table import Number

_NOT_COMPARED = (Agreement.UNMATCHED, Agreement.UNREADABLE)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a comparison has found."""

    counts: Mapping[Agreement, int]  #: tensors by verdict; all verdicts are there
    divergence: Divergence | None  #: where the runs first differ
    sentences: tuple[str, ...]  #: the answer, and what to know about it

    @property
    def sentence(self) -> str:
        """The answer in words."""
        return " ".join(self.sentences)

    @property
    def first(self) -> ComparisonRow | None:
        """The row of the first divergence."""
        return None if self.divergence is None else self.divergence.row

    @property
    def agrees(self) -> bool:
        """Whether there was something to compare, all of it was compared, and nothing is different."""
        unlike = sum(self.counts[it] for it in (Agreement.DIFFERENT, *_NOT_COMPARED))
        return not unlike and any(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        counts = {str(verdict): count for verdict, count in self.counts.items()}
        first = None if self.first is None else json_row(self.first)
        return {**counts, "first": first, "sentence": self.sentence}


def summarise(counts: Mapping[Agreement, int], divergence: Divergence | None) -> Summary:
    """Return the summary of a comparison with these *counts* of tensors."""
    complete = {verdict: counts.get(verdict, 0) for verdict in Agreement}
    if divergence is None:
        return Summary(complete, None, (_agreement_of(complete),))
    sentences = [_answer(divergence)]
    if divergence.doubts:
        agrees = "" if divergence.after_gap else "; everything that ran before it on its rank agrees"
        sentences.append(f"Not proved: {'; '.join(divergence.doubts)}{agrees}.")
    if told := [_others_text(role, count) for role in Role if (count := divergence.others.get(role, 0))]:
        sentences.append(f"Of the other operators that differ, {', '.join(told)}.")
    if lost := _lost_text(complete):
        sentences.append(f"{lost}.")
    return Summary(complete, divergence, tuple(sentences))


def _agreement_of(counts: Mapping[Agreement, int]) -> str:
    compared = counts[Agreement.IDENTICAL] + counts[Agreement.CLOSE]
    lost = _lost_text(counts)
    if not compared and not lost:
        return "There is nothing to compare: neither side has a tensor."
    if not compared:
        return f"Nothing could be compared: of {_tensors(sum(counts.values()))}, {_not_compared(counts)}."
    close = counts[Agreement.CLOSE]
    how = " and ".join(f"{counts[it]} {it}" for it in (Agreement.IDENTICAL, Agreement.CLOSE) if counts[it])
    told = f"{_tensors(compared)} compared, {how if 0 < close < compared else 'all ' + how.split()[1]}"
    return f"Nothing is different: {told}." if not lost else f"No difference among {told}; {lost}."


def _lost_text(counts: Mapping[Agreement, int]) -> str:
    """Return how many tensors were not compared, if any."""
    count = sum(counts[it] for it in _NOT_COMPARED)
    return f"{_tensors(count)} could not be compared ({_not_compared(counts)})" if count else ""


def _not_compared(counts: Mapping[Agreement, int]) -> str:
    return ", ".join(f"{counts[it]} {it}" for it in _NOT_COMPARED if counts[it])


def _answer(divergence: Divergence) -> str:
    row = divergence.row
    where = f"{row.io} {row.index}" if row.index is not None else "a tensor"
    operator, place, size = _operator_text(row), _place_text(divergence), _size_text(row)
    if divergence.role is Role.ADDED:
        return (
            f"The first operator whose inputs agree and whose outputs do not is {operator}{place}: "
            f"{where} {size}."
        )
    if divergence.role is Role.INHERITED:
        return (
            f"The runs differ from the beginning: {where} of {operator}{place} {size}, and is a weight, "
            "an input of the model, or the output of an operator that was not compared."
        )
    return f"The first output that differs is {where} of {operator}{place}: it {size}."


def _operator_text(row: ComparisonRow) -> str:
    name = row.op_name or row.op_type or "an operator without a name"
    repeated = f" (run {row.occurrence + 1} of the step)" if row.occurrence else ""
    return (f"{name} ({row.op_type})" if row.op_type and row.op_type != name else name) + repeated


def _place_text(divergence: Divergence) -> str:
    row = divergence.row
    places = []
    if len(divergence.ranks) > 1:
        places.append(f"ranks {', '.join(map(str, divergence.ranks))}")
    elif row.rank is not None:
        places.append(f"rank {row.rank}")
    if row.model is not None:
        places.append(f"model {row.model}")
    if row.step is not None:
        places.append(f"step {row.step}")
    return f", {', '.join(places)}" if places else ""


def _size_text(row: ComparisonRow) -> str:
    """Return how large the error is, and where it is largest."""
    metrics = row.metrics
    told = [*_not_finite(metrics)]
    if metrics.rel is not None and metrics.max_abs != 0:
        distance = metrics.rel_euclidean
        more = f" (rel_euclidean {distance:.3g})" if distance is not None else ""
        told.append(f"differs by rel {metrics.rel:.3g}{more}")
    if metrics.worst is not None:
        worst = metrics.worst
        index = ", ".join(map(str, worst.index))
        told.append(f"worst at [{index}], {_number(worst.mine)} instead of {_number(worst.golden)}")
    if not told:
        return f"differs ({row.cause})" if row.cause else "differs"
    return ", ".join(told)


def _not_finite(metrics: Metrics) -> list[str]:
    told = []
    if metrics.nan_mine:
        told.append(f"has {metrics.nan_mine} NaN that the golden does not have")
    if metrics.nan_golden:
        told.append(f"lacks {metrics.nan_golden} NaN of the golden")
    if metrics.inf_differs:
        told.append(f"has {metrics.inf_differs} other infinities")
    return told


def _number(value: Number) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _others_text(role: Role, count: int) -> str:
    verbs = {
        Role.ADDED: ("adds an error of its own", "add errors of their own"),
        Role.INHERITED: ("inherits its error", "inherit their error"),
        Role.UNDECIDED: ("is undecided", "are undecided"),
    }[role]
    return f"{count} {verbs[count != 1]}"


def _tensors(count: int) -> str:
    return "1 tensor" if count == 1 else f"{count} tensors"
