"""Evidence: everything that blame is decided by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dumpstream.diagnosis.badness import DEFAULT, Badness, Findings, find_bad
from dumpstream.diagnosis.dataflow.collectives import Exchanges, find_exchanges
from dumpstream.diagnosis.dataflow.executions import Executions, find_executions
from dumpstream.diagnosis.dataflow.flow import Flow, find_flow
from dumpstream.diagnosis.dataflow.trace import Mask, Trace


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the dump of a run says."""

    trace: Trace
    executions: Executions
    findings: Findings
    flow: Flow
    exchanges: Exchanges
    hidden: frozenset[str] = frozenset()  #: types and names of operators of which inputs were left out

    def rank_of_row(self, row: int) -> int | None:
        return self.trace.processes[int(self.trace.process[row])].rank

    def rank_of(self, execution: int) -> int | None:
        return self.trace.processes[int(self.executions.process[execution])].rank


def gather(
    trace: Trace,
    kinds: Sequence[Badness] = DEFAULT,
    *,
    others: Callable[[Executions], dict[Badness, Mask]] = lambda _: {},
    compared: Mask | None = None,
    hidden: frozenset[str] = frozenset(),
) -> Evidence:
    """Return what the rows of *trace* say about bad values of these *kinds*.

    *others* returns the rows that are bad by more than their statistics. With a golden run, only rows that
    were *compared* with it may be known to be good.
    """
    executions = find_executions(trace)
    return Evidence(
        trace,
        executions,
        find_bad(trace, executions, kinds, others(executions), compared=compared),
        find_flow(trace, executions),
        find_exchanges(trace, executions),
        hidden,
    )


def inputs_text(trace: Trace, rows: Iterable[int], what: str, those: str) -> str:
    """Return which inputs *rows* are, with *what* is said of one or of *those*."""
    numbers = sorted({int(trace.counts["index"][row]) for row in rows})
    if len(numbers) == 1:
        return f"input {numbers[0]} {what}"
    return f"inputs {', '.join(map(str, numbers))} {those}"


def ranks_text(ranks: Iterable[int | None]) -> str:
    """Return *ranks* in words."""
    known = sorted(it for it in ranks if it is not None)
    if not known:
        return "the rank"
    return f"rank {known[0]}" if len(known) == 1 else f"ranks {', '.join(map(str, known))}"
