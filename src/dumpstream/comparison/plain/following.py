"""Following blocks of executions: what a `Trace` is told of them, with rows only where they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dumpstream.comparison.divergence import Finding, Trace
from dumpstream.comparison.plain.comparing import ComparedBlock
from dumpstream.comparison.table import ComparisonRow

#: Returns the findings of an execution of the block, by its number.
FindingsOf = Callable[[int], list[Finding]]


def follow(
    trace: Trace, compared: ComparedBlock, findings_of: FindingsOf
) -> Mapping[int, list[ComparisonRow]]:
    """Have *trace* follow the executions of a block; return the rows of those that have no records."""
    rows: dict[int, list[ComparisonRow]] = {}
    block = compared.block
    roles = block.roles(compared.verdicts)
    differing = roles.differs.nonzero()[0]
    for first, end, rank, step in block.runs():
        for start, stop, other in _stretches(first, end, compared.others):
            within = differing[(differing >= start) & (differing < stop)]
            begin = start
            if len(within) and not trace.has_head(rank):
                head = int(within[0])
                trace.skip(rank, step, head - start)
                trace.add(findings_of(head))
                begin = head + 1
            counted = block.count_roles(roles, begin, stop) if len(within) else None
            trace.skip(rank, step, stop - begin, counted)
            if other is not None:
                rows[other] = trace.add(compared.others[other])
    return rows


def _stretches(first: int, end: int, others: Mapping[int, object]) -> Iterator[tuple[int, int, int | None]]:
    """Yield the executions that have records, from and to, and the other one behind them, if there is one."""
    start = first
    for other in others:
        if first <= other < end:
            yield start, other, other
            start = other + 1
    yield start, end, None
