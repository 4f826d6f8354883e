"""In place: what was in the memory of an operator that wrote its output over its input.

The input was dumped after it was overwritten. The output of the last operator that wrote there stands in for
it, if certainly no other operator wrote there since: it ran in the same step, and the dump has every task of
the stream in between. A wait for another stream would be a task, too.

Likewise a clean input in the dump is not what the operator read if what certainly lay there before was bad:
an operator of another stream, or this one itself, has changed it before it was dumped.
"""

from __future__ import annotations

import numpy as np

from dumpstream.diagnosis.dataflow.executions import most_tensors
from dumpstream.diagnosis.dataflow.flow import Source
from dumpstream.diagnosis.dataflow.memory import Memory
from dumpstream.diagnosis.dataflow.stretches import Stream, Stretches
from dumpstream.diagnosis.dataflow.trace import UNKNOWN
from dumpstream.diagnosis.evidence import Evidence


class StandIns:
    """Finds what stands in for inputs that were overwritten."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        executions, trace = evidence.executions, evidence.trace
        # Where an operator wrote is known if all its outputs are there, and have addresses.
        unplaced = ~evidence.flow.addressed & (trace.counts["size"] != 0)
        lengths, most = executions.outputs.lengths, most_tensors(executions, executions.outputs)
        placed = ~executions.outputs.any(unplaced) & (lengths > 0) & (lengths == most)
        if evidence.hidden:
            hidden = [evidence.is_hidden("output", it) for it in range(len(executions))]
            placed &= ~np.array(hidden, np.bool_)
        self._stretches = Stretches(trace, executions, placed, evidence.repeating)
        self._suspected = executions.outputs.any(evidence.findings.bad) & ~executions.inputs.any(
            evidence.findings.bad & ~evidence.flow.overwritten
        )
        self._bad_inside: dict[Stream, dict[int, int]] = {}

    def bad_before(self, execution: int, row: int) -> int | None:
        """Return a bad output that certainly lay inside of *row* when *execution* began, if one did.

        *row* is an input of *execution*, which read nothing bad and has a bad output.
        """
        stream = self._stretches.stream_of(execution)
        if stream not in self._bad_inside:
            self._bad_inside[stream] = self._find_bad_inside(stream)
        return self._bad_inside[stream].get(row)

    def _find_bad_inside(self, stream: Stream) -> dict[int, int]:
        """Return, for the inputs of suspected executions on *stream*, the bad output that lay inside."""
        executions, flow = self._evidence.executions, self._evidence.flow
        found = {}
        memory = Memory()
        for execution in self._stretches.streams[stream]:
            if self._suspected[execution]:
                for row in executions.inputs.of(execution):
                    if flow.addressed[row] and (bad := self._bad_in(memory, row, execution)) is not None:
                        found[row] = bad
            for row in executions.outputs.of(execution):
                if flow.addressed[row]:
                    memory.write(*self._range(row), row)
        return found

    def _bad_in(self, memory: Memory, row: int, execution: int) -> int | None:
        """Return a bad output inside of *row* over which, by *memory*, no other operator wrote."""
        executions, flow, bad = self._evidence.executions, self._evidence.flow, self._evidence.findings.bad
        start, stop = self._range(row)
        for writer in dict.fromkeys(int(executions.of_row[it.owner]) for it in memory.read(start, stop)):
            if not self._stretches.holds(writer, execution):
                continue
            for it in executions.outputs.of(writer):
                first, last = self._range(it)
                inside = bad[it] and flow.addressed[it] and start <= first and last <= stop
                if inside and all(executions.of_row[at.owner] == writer for at in memory.read(first, last)):
                    return it
        return None

    def _range(self, row: int) -> tuple[int, int]:
        start = int(self._evidence.trace.address[row])
        return start, start + int(self._evidence.trace.counts["size"][row])

    def problem(self, execution: int, row: int, sources: list[Source]) -> str | None:
        """Return why *sources* do not say what *row* was before *execution* overwrote it, if so."""
        covered = sum(it.stop - it.start for it in sources)
        if covered != self._evidence.trace.counts["size"][row]:
            return "what was there before is not in the run"
        problems = (self._problem_of(execution, it, alone=len(sources) == 1) for it in sources)
        return next((problem for problem in problems if problem is not None), None)

    def _problem_of(self, execution: int, source: Source, *, alone: bool) -> str | None:
        evidence = self._evidence
        executions, findings, trace = evidence.executions, evidence.findings, evidence.trace
        writer = int(executions.of_row[source.row])
        if source.row not in executions.outputs.of(writer):
            return "the operator that wrote it before is not in the run"
        step = executions.step[writer]
        if step != executions.step[execution] or step == UNKNOWN:
            return "what was there before is of another step"
        if not self._stretches.holds(writer, execution):
            return "operators that were not dumped may have written it in between"
        size, address = trace.counts["size"][source.row], trace.address[source.row]
        whole = alone and (address, size) == (source.start, source.stop - source.start)
        if not findings.known[source.row] or (findings.bad[source.row] and not whole):
            return "not all of what was there before is known"
        return None
