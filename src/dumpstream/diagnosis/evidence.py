"""Evidence: everything that blame is decided by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dumpstream.diagnosis.badness import Findings
from dumpstream.diagnosis.collectives import Exchanges
from dumpstream.diagnosis.executions import Executions
from dumpstream.diagnosis.flow import Flow
from dumpstream.diagnosis.trace import Trace


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the dump of a run says."""

    trace: Trace
    executions: Executions
    findings: Findings
    flow: Flow
    exchanges: Exchanges

    def rank_of_row(self, row: int) -> int | None:
        return self.trace.processes[int(self.trace.process[row])].rank

    def rank_of(self, execution: int) -> int | None:
        return self.trace.processes[int(self.executions.process[execution])].rank


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
