"""Divergence: which operator added an error, which inherit it, and which of them was first. Does no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan
from typing import NamedTuple

from dumpstream.comparison.sidetensor import SideTensor
from dumpstream.comparison.table import Agreement, ComparisonRow, Metrics, Role

_AGREE = {Agreement.IDENTICAL, Agreement.CLOSE}
_NOT_COMPARED = {Agreement.UNMATCHED, Agreement.UNREADABLE}
_COLLECTIVE = "hcom"
#: Errors of an output that are smaller than so many times those of the inputs may be theirs.
GROWTH = 10
_INPUT, _OUTPUT = "input", "output"


class Finding(NamedTuple):
    """A row that has its verdict, and the tensors it is about."""

    row: ComparisonRow
    mine: SideTensor | None = None
    golden: SideTensor | None = None
    guess: bool = False  #: whether the two were paired by a guess


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the two runs first differ."""

    row: ComparisonRow
    role: Role
    doubts: tuple[str, ...]  #: why it may not be what it seems
    after_gap: bool  #: whether something before it, on its rank, could not be compared
    ranks: tuple[int, ...]  #: the ranks on which the same operator of the same step is the first to differ
    others: Mapping[Role, int]  #: the other operators whose outputs differ


class _Head(NamedTuple):
    """The first operator of a rank that differs."""

    row: ComparisonRow
    role: Role
    doubts: tuple[str, ...]
    number: int  #: of the operator among those of its rank and step
    received: bool  #: whether other ranks may have sent what differs
    counted: bool  #: whether its outputs differ
    after_gap: bool  #: whether something before it could not be compared

    @property
    def order(self) -> tuple[int, bool, int, int]:
        """What the heads of all ranks are ordered by, without a clock.

        Steps follow each other on all ranks. Within a step, an error reaches other ranks only through a
        collective, so an operator that received nothing comes before one that did.
        """
        step, rank = self.row.step, self.row.rank
        return -1 if step is None else step, self.received, self.number, -1 if rank is None else rank


@dataclass(slots=True)
class _Rank:
    """What is known of one rank so far."""

    step: int | None = None
    operators: int = 0  #: of the step
    not_compared: int = 0  #: tensors
    head: _Head | None = None


@dataclass(slots=True)
class Trace:
    """Follows the executions of a comparison; those of one rank come in the order in which they ran.

    What it keeps grows with the ranks, not with the rows.
    """

    _operators: Counter[Role] = field(default_factory=Counter)  #: whose outputs differ
    _ranks: dict[int | None, _Rank] = field(default_factory=dict)

    def skip(
        self, rank: int | None, step: int | None, count: int = 1, roles: Mapping[Role, int] | None = None
    ) -> None:
        """Follow *count* executions whose rows are not needed.

        All tensors agree, or the rank `has_head` already; *roles* are those of the operators whose outputs
        differ.
        """
        self._follow(rank, step, count)
        if roles is not None:
            self._operators.update(roles)

    def has_head(self, rank: int | None) -> bool:
        """Whether an operator of *rank* is known to differ."""
        state = self._ranks.get(rank)
        return state is not None and state.head is not None

    def add(self, findings: Sequence[Finding]) -> list[ComparisonRow]:
        """Follow one execution, and return its rows with what they inherit and add."""
        first = findings[0].row
        state = self._follow(first.rank, first.step)
        inputs = [it for it in findings if it.row.io == _INPUT]
        outputs = [it for it in findings if it.row.io == _OUTPUT]
        input_error = _largest_error(inputs)
        rows = [_with_error(it, input_error) for it in findings]
        verdicts = [it.row.verdict for it in findings]
        if Agreement.DIFFERENT in verdicts:
            received = is_collective(first.op_type or first.op_name or "")
            role, why = _role_of(inputs, outputs, received=received)
            counted = any(it.row.verdict is Agreement.DIFFERENT for it in outputs)
            if counted:
                self._operators[role] += 1
                rows = [_with_role(row, role, why) for row in rows]
            if state.head is None:
                doubts = (*why, *_doubts_of_inputs(inputs, role), *_doubts_before(state.not_compared))
                received = received and role is not Role.INHERITED
                worst = _worst_of(rows, role)
                after_gap = state.not_compared > 0
                state.head = _Head(worst, role, doubts, state.operators, received, counted, after_gap)
        state.not_compared += sum(verdict in _NOT_COMPARED for verdict in verdicts)
        return rows

    @property
    def first(self) -> Divergence | None:
        """Where the runs first differ, so far."""
        found = [it.head for it in self._ranks.values() if it.head is not None]
        heads = sorted(found, key=lambda it: it.order)
        if not heads:
            return None
        head = heads[0]
        operator = _operator_of(head.row)
        ranks = {it.row.rank for it in heads if _operator_of(it.row) == operator}
        known = tuple(sorted(it for it in ranks if it is not None))
        others = self._operators - Counter({head.role: int(head.counted)})
        return Divergence(head.row, head.role, head.doubts, head.after_gap, known, others)

    def _follow(self, rank: int | None, step: int | None, count: int = 1) -> _Rank:
        state = self._ranks.setdefault(rank, _Rank())
        if state.step != step:
            state.step, state.operators = step, 0
        state.operators += count
        return state


def _error(finding: Finding) -> float | None:
    return finding.row.metrics.rel


def _largest_error(inputs: Sequence[Finding]) -> float | None:
    """Return the largest error of *inputs*; None if one differs and it is not known by how much."""
    errors = [it for it in map(_error, inputs) if it is not None]
    if any(it.row.verdict is Agreement.DIFFERENT and _error(it) is None for it in inputs):
        return None
    return max(errors, default=None)


def _with_error(finding: Finding, input_error: float | None) -> ComparisonRow:
    if input_error is None:  # then it is not known what was added
        return finding.row
    return replace(finding.row, input_error=input_error, added=_added(finding, input_error))


def _added(finding: Finding, input_error: float) -> float | None:
    error = _error(finding)
    return None if finding.row.io != _OUTPUT or error is None else error - input_error


def _role_of(
    inputs: Sequence[Finding], outputs: Sequence[Finding], *, received: bool
) -> tuple[Role, tuple[str, ...]]:
    """Return where the error of an operator comes from, and if that is undecided, why."""
    overwritten = [it for it in inputs if _is_overwritten(it, outputs)]
    proofs = [it for it in inputs if it not in overwritten]
    differing = [it for it in proofs if it.row.verdict is Agreement.DIFFERENT]
    if any(not it.guess for it in differing):
        return Role.INHERITED, ()
    why = []
    if not inputs:
        why.append("no inputs were dumped")
    if overwritten:
        names = _indices(overwritten)
        why.append(f"{names} overwritten before the dump, because the operator works in place")
    if lost := [it for it in proofs if it.row.verdict in _NOT_COMPARED]:
        why.append(f"{_indices(lost)} not compared")
    if not why and not _exceeds(inputs, outputs):
        why.append("its inputs are close, not identical, and their errors may have grown")
    if received:
        why.append("it is a collective, and another rank may have sent the difference")
    if any(it.guess for it in (*inputs, *outputs)):
        why.append("its tensors were paired by a guess")
    return (Role.UNDECIDED, tuple(why)) if why else (Role.ADDED, ())


def _exceeds(inputs: Iterable[Finding], outputs: Iterable[Finding]) -> bool:
    """Whether an output differs by more than inputs that are close can explain."""
    differing = [it.row.metrics for it in outputs if it.row.verdict is Agreement.DIFFERENT]
    if all(it.row.verdict is Agreement.IDENTICAL for it in inputs):
        return bool(differing)
    before = max((_error(it) or 0.0 for it in inputs), default=0.0)
    return any(_not_finite(it) or it.rel is None or it.rel > GROWTH * before for it in differing)


def _not_finite(metrics: Metrics) -> int:
    """Return how many elements have a NaN or an infinity on one side only."""
    return (metrics.nan_mine or 0) + (metrics.nan_golden or 0) + (metrics.inf_differs or 0)


def _is_overwritten(finding: Finding, outputs: Iterable[Finding]) -> bool:
    """Whether the input was dumped only after an output had been written to the same address."""
    tensors = [it for it in (finding.mine, finding.golden) if it is not None and it.address]
    written = {
        (it.file, it.address) for output in outputs for it in (output.mine, output.golden) if it is not None
    }
    # The inputs of a collective are in a file of their own, which was written before it ran.
    return any((it.file, it.address) in written for it in tensors)


def _indices(inputs: Sequence[Finding]) -> str:
    """Return ``input 0 was`` or ``inputs 0, 2 were``."""
    numbers = ", ".join(str(it.row.index) for it in inputs)
    return f"input {numbers} was" if len(inputs) == 1 else f"inputs {numbers} were"


def _with_role(row: ComparisonRow, role: Role, why: Sequence[str]) -> ComparisonRow:
    if row.io != _OUTPUT or row.verdict is not Agreement.DIFFERENT:
        return row
    text = f"{role}: {'; '.join(why)}" if why else str(role)
    return replace(row, role=role, reason=f"{text}; {row.reason}" if row.reason else text)


def _worst_of(rows: Iterable[ComparisonRow], role: Role) -> ComparisonRow:
    """Return the row that shows the difference: an input if it is inherited, else an output."""
    differing = [row for row in rows if row.verdict is Agreement.DIFFERENT]
    io = _INPUT if role is Role.INHERITED else _OUTPUT
    shown = [row for row in differing if row.io == io] or differing
    return max(shown, key=lambda row: severity(row)[1:])


#: Verdicts, the worst last.
BY_SEVERITY = (
    Agreement.IDENTICAL,
    Agreement.CLOSE,
    Agreement.UNMATCHED,
    Agreement.UNREADABLE,
    Agreement.DIFFERENT,
)


def severity(row: ComparisonRow) -> tuple[int, int, float]:
    """Return how bad *row* is, for the worst to be the largest."""
    metrics = row.metrics
    error = -1.0 if metrics.rel is None else metrics.rel
    return BY_SEVERITY.index(row.verdict), _not_finite(metrics), inf if isnan(error) else error


def _doubts_of_inputs(inputs: Iterable[Finding], role: Role) -> Iterator[str]:
    """Yield that an input that differs may be an output already, if addresses do not tell."""
    differing = [it for it in inputs if it.row.verdict is Agreement.DIFFERENT]
    sides = [side for it in differing for side in (it.mine, it.golden) if side is not None]
    if role is Role.INHERITED and not any(side.address for side in sides):
        yield "addresses are not known, and the operator may have written this input itself, in place"


def _doubts_before(not_compared: int) -> Iterator[str]:
    if not_compared:
        tensors = "1 tensor" if not_compared == 1 else f"{not_compared} tensors"
        yield f"{tensors} of earlier operators could not be compared"


def is_collective(operator: str) -> bool:
    """Whether an operator of this type, or of this name if it has no type, is a collective."""
    return operator.lower().startswith(_COLLECTIVE)


def _operator_of(row: ComparisonRow) -> tuple[object, ...]:
    return row.model, row.step, row.op_type, row.op_name, row.occurrence
