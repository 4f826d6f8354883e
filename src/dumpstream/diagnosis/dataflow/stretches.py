"""Stretches: operators of a stream, one behind the other, between which certainly no other ran."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

import numpy as np

from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.repeating import is_thread
from dumpstream.diagnosis.dataflow.trace import Mask, Numbers, Trace

#: A process, one of its streams, and a step.
Stream = tuple[int, int, int]


class Stretches:
    """The stretches of all streams: their tasks have numbers without a gap.

    Args:
        trace: of which the executions are.
        executions: those that are in the dump.
        placed: of which of them it is known where they wrote.
        repeating: processes in which task numbers prove nothing.
    """

    def __init__(
        self, trace: Trace, executions: Executions, placed: Mask, repeating: Collection[int]
    ) -> None:
        self._trace, self._executions, self._repeating = trace, executions, repeating
        #: The executions of each stream, in order.
        self.streams: dict[Stream, list[int]] = {}
        columns = np.stack([executions.process, executions.stream, executions.step], axis=1)
        for number, (process, stream, step) in enumerate(columns.tolist()):
            self.streams.setdefault((process, stream, step), []).append(number)
        self._stretch = _number_stretches(executions, placed, self.streams)
        self._threads: dict[Stream, list[int]] = {}

    def stream_of(self, execution: int) -> Stream:
        """Return the stream on which *execution* ran."""
        it = self._executions
        return int(it.process[execution]), int(it.stream[execution]), int(it.step[execution])

    def holds(self, first: int, last: int) -> bool:
        """Whether *last* ran behind *first* on one stream, and every task between the two is in the dump."""
        it = self._executions
        begin, end = int(it.task[first]), int(it.task[last])
        return (
            first < last
            and bool(self._stretch[first] == self._stretch[last])
            and 0 <= begin < end
            and int(it.process[first]) not in self._repeating
            and not self._has_threads(self.stream_of(first), begin, end)
        )

    def _has_threads(self, stream: Stream, begin: int, end: int) -> bool:
        """Whether a task of *stream* is one of FFTS+, whose threads share it; some may be missing."""
        if stream not in self._threads:
            threads = (it for it in self.streams[stream] if is_thread(self._trace, self._executions, it))
            self._threads[stream] = sorted(int(self._executions.task[it]) for it in threads)
        tasks = self._threads[stream]
        place = bisect_left(tasks, begin)
        return place < len(tasks) and tasks[place] <= end


def _number_stretches(executions: Executions, placed: Mask, streams: dict[Stream, list[int]]) -> Numbers:
    """Return the number of the stretch of each execution; one that is not *placed* has its own."""
    order = np.concatenate([np.empty(0, np.int64), *streams.values()]).astype(np.int64)
    begins = np.ones(len(order), np.bool_)
    begins[1:] = ~(np.isin(np.diff(executions.task[order]), (0, 1)) & placed[order[1:]] & placed[order[:-1]])
    lengths = [len(ran) for ran in streams.values()]
    begins[np.cumsum([0, *lengths[:-1]])[: len(lengths)]] = True
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(begins)
    return found
