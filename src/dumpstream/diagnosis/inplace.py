"""In place: what was in the memory of an operator that wrote its output over its input.

The input was dumped after it was overwritten. The output of the last operator that wrote there stands in for
it, if certainly no other operator wrote there since: it ran in the same step, and the dump has every task of
the stream in between. A wait for another stream would be a task, too.

Likewise a clean input in the dump is not what the operator read if what certainly lay there before was bad:
an operator of another stream, or this one itself, has changed it before it was dumped.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from itertools import pairwise

import numpy as np

from dumpstream.diagnosis.dataflow.executions import Executions, most_tensors
from dumpstream.diagnosis.dataflow.flow import Source
from dumpstream.diagnosis.dataflow.repeating import is_thread
from dumpstream.diagnosis.dataflow.trace import OUTPUT, UNKNOWN
from dumpstream.diagnosis.evidence import Evidence

_Stream = tuple[int, int, int]


class StandIns:
    """Finds what stands in for inputs that were overwritten."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        executions, trace = evidence.executions, evidence.trace
        # Where an operator wrote is known if all its outputs are there, and have addresses.
        unplaced = ~evidence.flow.addressed & (trace.counts["size"] != 0)
        lengths, most = executions.outputs.lengths, most_tensors(executions, executions.outputs)
        self._placed = ~executions.outputs.any(unplaced) & (lengths > 0) & (lengths == most)
        self._streams = _streams(executions)

    def bad_before(self, execution: int, row: int) -> int | None:
        """Return a bad output that certainly lay inside of *row* when *execution* began, if one did."""
        start, stop = self._range(row)
        for it in self._bad.get(self._stream_of(execution), ()):
            first, last = self._range(it)
            writer = int(self._evidence.executions.of_row[it])
            inside = start <= first and last <= stop and writer < execution
            if inside and self._is_contiguous(writer, execution) and self._is_left(it, execution):
                return it
        return None

    def _is_left(self, row: int, execution: int) -> bool:
        """Whether no operator wrote over a part of *row*, which was an output, before *execution* began."""
        executions = self._evidence.executions
        between = self._between(int(executions.of_row[row]), execution)[1:-1]
        start, stop = self._range(row)
        ranges = (self._range(it) for number in between for it in executions.outputs.of(number))
        return all(last <= start or stop <= first for first, last in ranges)

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
        if not self._is_contiguous(writer, execution):
            return "operators that were not dumped may have written it in between"
        size, address = trace.counts["size"][source.row], trace.address[source.row]
        whole = alone and (address, size) == (source.start, source.stop - source.start)
        if not findings.known[source.row] or (findings.bad[source.row] and not whole):
            return "not all of what was there before is known"
        return None

    def _is_contiguous(self, writer: int, execution: int) -> bool:
        """Whether every task between the two is in the dump, on one stream."""
        stream = self._stream_of(execution)
        if self._stream_of(writer) != stream:
            return False
        ran, between = self._streams[stream], self._between(writer, execution)
        tasks: list[int] = self._evidence.executions.task[between].tolist()
        return (
            len(between) > 1
            and bool(self._placed[between].all())
            and not any(self._evidence.is_hidden("output", it) for it in between)
            and 0 <= tasks[0] < tasks[-1]
            and all(later - earlier in {0, 1} for earlier, later in pairwise(tasks))
            and stream[0] not in self._evidence.repeating
            and not self._has_threads(ran, range(tasks[0], tasks[-1] + 1))
        )

    def _between(self, writer: int, execution: int) -> list[int]:
        """Return both, which ran on one stream, and what ran there in between."""
        ran = self._streams[self._stream_of(execution)]
        return ran[bisect_left(ran, writer) : bisect_left(ran, execution) + 1]

    def _has_threads(self, ran: list[int], tasks: range) -> bool:
        """Whether one of *tasks* is of FFTS+, whose threads share it, and nothing tells which are missing."""
        task = self._evidence.executions.task
        return any(
            task[it] in tasks and is_thread(self._evidence.trace, self._evidence.executions, it) for it in ran
        )

    @cached_property
    def _bad(self) -> dict[_Stream, list[int]]:
        """The bad outputs of each process, stream and step."""
        evidence = self._evidence
        rows = evidence.findings.bad & evidence.flow.addressed & (evidence.trace.io == OUTPUT)
        found: dict[_Stream, list[int]] = {}
        for row in np.flatnonzero(rows).tolist():
            found.setdefault(self._stream_of(int(evidence.executions.of_row[row])), []).append(row)
        return found

    def _stream_of(self, execution: int) -> _Stream:
        it = self._evidence.executions
        return int(it.process[execution]), int(it.stream[execution]), int(it.step[execution])


def _streams(executions: Executions) -> dict[_Stream, list[int]]:
    """Return the executions of each process, stream and step, in order."""
    found: dict[_Stream, list[int]] = {}
    columns = np.stack([executions.process, executions.stream, executions.step], axis=1)
    for number, (process, stream, step) in enumerate(columns.tolist()):
        found.setdefault((process, stream, step), []).append(number)
    return found
