"""Executions: the rows of one run of an operator together, and the order in which operators ran.

Inputs may be in a file that was dumped before the operator ran, and outputs in one that was dumped after it:
both are one execution. The order is that of steps, and inside a step that of the device's clock, which all
files of a process share; the clocks of two processes are never compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dumpstream.diagnosis.dataflow.joins import Files, find_joins
from dumpstream.diagnosis.dataflow.trace import INPUT, OUTPUT, UNKNOWN, Mask, Numbers, Trace
from dumpstream.format.opname import OVERFLOW_OPERATOR

_COLLECTIVE = re.compile("hcom.*", re.IGNORECASE)
_TRANSFER = re.compile("hcom.*(send|recv|receive).*", re.IGNORECASE)
#: Operators that compute and exchange at once have the collective in their type, or are of experts that are
#: spread over the ranks.
_EXCHANGING = re.compile(
    "hcom.*|.*(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all).*"
    "|.*((distribute|moe)_?(dispatch|combine)|dispatch.*combine|attention_?to_?ffn|ffn_?to_?attention).*",
    re.IGNORECASE,
)


@dataclass(frozen=True, eq=False)
class Executions:
    """The executions of a trace, process by process, numbered as they ran."""

    of_row: Numbers  #: the execution of each row; `UNKNOWN` for rows that are not an operator's
    sequence: Numbers  #: of each row: orders the files of its process
    process: Numbers
    step: Numbers
    stream: Numbers
    task: Numbers  #: of its last file
    op_type: Numbers  #: codes of the trace
    op_name: Numbers
    model: Numbers
    collective: Mask  #: whether ranks exchange something in it, and do nothing else
    exchanging: Mask  #: whether ranks exchange something in it
    sends_or_receives: Mask  #: whether its type says so
    separate: Mask  #: whether its inputs are in a file that was dumped before that of its outputs
    inputs: Slots
    outputs: Slots

    def __len__(self) -> int:
        return len(self.process)

    @cached_property
    def transfers(self) -> Mask:
        """Which send something to one other rank, or receive it: nothing numbers them on both ranks alike."""
        one_way: Mask = (self.inputs.lengths == 0) | (self.outputs.lengths == 0)
        found: Mask = self.sends_or_receives & one_way
        return found


@dataclass(frozen=True, eq=False)
class Slots:
    """The inputs, or the outputs, of executions."""

    rows: Numbers  #: the rows of the first execution, then those of the next, each by their index
    starts: Numbers  #: where those of an execution begin, and at last the end

    def of(self, execution: int) -> list[int]:
        """Return the rows of one execution."""
        rows, starts = self._lists
        return rows[starts[execution] : starts[execution + 1]]

    @cached_property
    def _lists(self) -> tuple[list[int], list[int]]:
        return self.rows.tolist(), self.starts.tolist()

    @property
    def lengths(self) -> Numbers:
        return np.diff(self.starts)

    def any(self, mask: Mask) -> Mask:
        """Return of which executions *mask*, which is of rows of the trace, is true of at least one."""
        sums = np.concatenate(([0], np.cumsum(mask[self.rows])))
        found: Mask = sums[self.starts[1:]] > sums[self.starts[:-1]]
        return found


def most_tensors(executions: Executions, slots: Slots) -> Numbers:
    """Return how many of *slots* each execution would have: as many as any of the same type and name."""
    _, name = np.unique(
        np.stack([executions.op_type, executions.op_name], axis=1), axis=0, return_inverse=True
    )
    name = name.reshape(-1)
    most = np.zeros(len(executions), np.int64)
    np.maximum.at(most, name, slots.lengths)
    return most[name]


def find_executions(trace: Trace) -> Executions:
    """Return the executions of *trace*."""
    usable = _is_usable(trace)
    rows = np.flatnonzero(usable)
    files, first, of_file = _files(trace, rows)
    has_inputs = np.zeros(files, np.bool_)
    has_outputs = np.zeros(files, np.bool_)
    has_inputs[of_file[trace.io[rows] == INPUT]] = True
    has_outputs[of_file[trace.io[rows] == OUTPUT]] = True
    head = rows[first]  # a row of each file
    counts, codes = trace.counts, trace.codes
    key = [
        trace.process[head],
        *(codes[name][head] for name in ("model", "op_type", "op_name")),
        *(counts[name][head] for name in ("model_id", "iteration", "stream")),
    ]
    several = Files(trace, head, has_inputs & ~has_outputs, has_outputs & ~has_inputs)
    order = np.lexsort((several.outputs, counts["task"][head], counts["timestamp"][head], *reversed(key)))
    joins = find_joins(several, key, order)
    drafts = np.empty(files, np.int64)
    drafts[order] = np.cumsum(~joins) - 1
    # Of two files the second is the later one; executions are numbered by it.
    last = np.empty(int((~joins).sum()), np.int64)
    last[drafts[order]] = order
    of_last = head[last]
    ran = np.lexsort(
        (
            counts["task"][of_last],
            counts["timestamp"][of_last],
            counts["iteration"][of_last],
            trace.process[of_last],
        )
    )
    number = np.empty(len(ran), np.int64)
    number[ran] = np.arange(len(ran))
    of_row = np.full(len(trace), UNKNOWN, np.int64)
    of_row[rows] = number[drafts][of_file]
    of_last = of_last[ran]
    two_files = np.zeros(len(ran), np.bool_)
    two_files[number[drafts[order[joins]]]] = True
    return Executions(
        of_row=of_row,
        sequence=_sequence(trace, rows, head, of_file),
        process=trace.process[of_last],
        step=counts["iteration"][of_last],
        stream=counts["stream"][of_last],
        task=counts["task"][of_last],
        op_type=codes["op_type"][of_last],
        op_name=codes["op_name"][of_last],
        model=codes["model"][of_last],
        collective=_is_type(trace, _COLLECTIVE)[codes["op_type"][of_last]],
        exchanging=_is_type(trace, _EXCHANGING)[codes["op_type"][of_last]],
        sends_or_receives=_is_type(trace, _TRANSFER)[codes["op_type"][of_last]],
        separate=two_files,
        inputs=_slots(trace, of_row, INPUT, len(ran)),
        outputs=_slots(trace, of_row, OUTPUT, len(ran)),
    )


def _is_usable(trace: Trace) -> Mask:
    """Return which rows are tensors of operators; records of overflows are not."""
    op_types, op_names = OVERFLOW_OPERATOR
    types, names = trace.texts["op_type"], trace.texts["op_name"]
    is_record = np.array([it == op_types for it in types], np.bool_)[trace.codes["op_type"]]
    is_record &= np.array([it == op_names for it in names], np.bool_)[trace.codes["op_name"]]
    usable: Mask = (trace.io != UNKNOWN) & ~is_record
    return usable


def _files(trace: Trace, rows: Numbers) -> tuple[int, Numbers, Numbers]:
    """Return how many files *rows* have, the place in *rows* of a row of each, and the file of each row."""
    both = trace.process[rows] * (len(trace.texts["file"]) + 1) + trace.codes["file"][rows]
    found, first, of_file = np.unique(both, return_index=True, return_inverse=True)
    return len(found), first, of_file


def _sequence(trace: Trace, rows: Numbers, head: Numbers, of_file: Numbers) -> Numbers:
    counts = trace.counts
    order = np.lexsort(
        (counts["task"][head], counts["timestamp"][head], counts["iteration"][head], trace.process[head])
    )
    place = np.empty(len(head), np.int64)
    place[order] = np.arange(len(head))
    sequence = np.full(len(trace), UNKNOWN, np.int64)
    sequence[rows] = place[of_file]
    return sequence


def _is_type(trace: Trace, pattern: re.Pattern[str]) -> Mask:
    """Return which of the types of *trace* match *pattern*."""
    return np.array([pattern.fullmatch(it or "") is not None for it in trace.texts["op_type"]], np.bool_)


def _slots(trace: Trace, of_row: Numbers, io: int, executions: int) -> Slots:
    rows = np.flatnonzero((trace.io == io) & (of_row != UNKNOWN))
    rows = rows[np.lexsort((trace.counts["index"][rows], of_row[rows]))]
    starts = np.searchsorted(of_row[rows], np.arange(executions + 1))
    return Slots(rows, starts.astype(np.int64))
