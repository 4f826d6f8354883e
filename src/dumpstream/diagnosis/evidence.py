"""Evidence: everything that blame is decided by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from dumpstream.diagnosis.badness import DEFAULT, Badness, Findings, find_bad
from dumpstream.diagnosis.dataflow.collectives import Exchanges, find_exchanges
from dumpstream.diagnosis.dataflow.executions import Executions, find_executions
from dumpstream.diagnosis.dataflow.flow import Flow, Link, find_flow
from dumpstream.diagnosis.dataflow.repeating import find_repeating
from dumpstream.diagnosis.dataflow.trace import Mask, Process, Trace

#: ``input`` or ``output``, with a type or a name of operators of which the configuration left some out.
Hidden = frozenset[tuple[str, str]]
NOTHING_HIDDEN: Hidden = frozenset()


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the dump of a run says."""

    trace: Trace
    executions: Executions
    findings: Findings
    flow: Flow
    exchanges: Exchanges
    hidden: Hidden = NOTHING_HIDDEN

    def is_hidden(self, io: str, execution: int) -> bool:
        """Whether the configuration may have left out inputs, or outputs, of *execution*."""
        trace, executions = self.trace, self.executions
        names = (
            trace.texts["op_type"][int(executions.op_type[execution])],
            trace.texts["op_name"][int(executions.op_name[execution])],
        )
        return bool(self.hidden) and any((io, name) in self.hidden for name in names)

    def rank_of_row(self, row: int) -> int | None:
        return self.trace.processes[int(self.trace.process[row])].rank

    def rank_of(self, execution: int) -> int | None:
        return self.process_of(execution).rank

    def process_of(self, execution: int) -> Process:
        return self.trace.processes[int(self.executions.process[execution])]

    def process_key(self, execution: int) -> tuple[str | None, int | None]:
        """Return what the same process has in another run: its rank, and its host if ranks are not unique.

        The same rank may run on another host the next time.
        """
        process = self.process_of(execution)
        return (None if self._are_ranks_unique else process.host), process.rank

    @cached_property
    def repeating(self) -> frozenset[int]:
        """The processes of which an operator ran twice as the same task of a step."""
        return find_repeating(self.trace, self.executions)

    @cached_property
    def _are_ranks_unique(self) -> bool:
        hosts_of: dict[int | None, set[str | None]] = {}
        for process in self.trace.processes:
            hosts_of.setdefault(process.rank, set()).add(process.host)
        return all(len(hosts) == 1 for hosts in hosts_of.values())


def gather(
    trace: Trace,
    kinds: Sequence[Badness] = DEFAULT,
    *,
    others: Callable[[Executions], dict[Badness, Mask]] = lambda _: {},
    compared: Mask | None = None,
    hidden: Hidden = NOTHING_HIDDEN,
    lossy: bool = False,
) -> Evidence:
    """Return what the rows of *trace* say about bad values of these *kinds*.

    *others* returns the rows that are bad by more than their statistics. With a golden run, only rows that
    were *compared* with it may be known to be good. *lossy* says whether files of the run were lost.
    """
    executions = find_executions(trace)
    flow = find_flow(trace, executions)
    found = others(executions)
    if Badness.OVERFLOW in found:
        found[Badness.OVERFLOW] = _with_readers(found[Badness.OVERFLOW], flow)
    return Evidence(
        trace,
        executions,
        find_bad(trace, executions, kinds, found, compared=compared, lossy=lossy),
        flow,
        find_exchanges(trace, executions),
        hidden,
    )


def _with_readers(mask: Mask, flow: Flow) -> Mask:
    """Return *mask*, which is of outputs, with the inputs that are the same tensors.

    The statistics of either do not show what the device recorded.
    """
    found = mask.copy()
    found[flow.readers[mask[flow.sources] & (flow.links != Link.BEFORE)]] = True
    return found


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
