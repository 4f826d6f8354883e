"""Joins: which two files, one of inputs and one of outputs, are of one execution.

If files are lost, those of two executions of one operator may come together, and the inputs of one prove
nothing about the outputs of the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from dumpstream.diagnosis.dataflow.trace import UNKNOWN, Mask, Numbers, Trace

#: The type of a call of a single operator, and those of its kernels: of both the number of the call.
_CALL = re.compile("(.+_[0-9]+)_L[02]")
_CALLED = re.compile("(.+_[0-9]+)_L2")
_BOTH = 2


@dataclass(frozen=True, eq=False)
class Files:
    """The files of a trace."""

    trace: Trace
    rows: Numbers  #: a row of each
    inputs: Mask  #: whether there is nothing else in a file
    outputs: Mask  #: likewise

    def count(self, name: str) -> Numbers:
        """Return what each file has in a column of integers."""
        return self.trace.counts[name][self.rows]

    @property
    def process(self) -> Numbers:
        return self.trace.process[self.rows]

    @property
    def type(self) -> Numbers:
        return self.trace.codes["op_type"][self.rows]

    def is_of(self, call: re.Pattern[str]) -> Mask:
        """Return which are of calls whose type matches *call*."""
        matches = [call.fullmatch(it or "") is not None for it in self.trace.texts["op_type"]]
        found: Mask = np.array(matches, np.bool_)[self.type]
        return found


def is_call(op_type: str | None) -> bool:
    """Whether operators of this type are calls of single operators, which give two files."""
    return _CALL.fullmatch(op_type or "") is not None


def find_joins(files: Files, key: list[Numbers], order: Numbers) -> Mask:
    """Return which *files*, in *order*, have the outputs of the execution whose inputs the file before has.

    They have the same *key*, and are the only two that have it, or nothing else was dumped on the stream in
    between. The latter proves nothing if files of the process were lost, perhaps those in between. It proves
    nothing of calls, either: a process numbers them, so that a number that comes again is of another process.
    """
    same = np.ones(len(order), np.bool_)
    same[:1] = False
    for column in key:
        ordered = column[order]
        same[1:] &= ordered[1:] == ordered[:-1]
    inputs, outputs = files.inputs[order], files.outputs[order]
    joins = same.copy()
    joins[1:] &= inputs[:-1] & outputs[1:]
    groups = np.cumsum(~same) - 1
    size = int(groups[-1]) + 1 if len(groups) else 0
    before, after = np.bincount(groups, inputs, size), np.bincount(groups, outputs, size)
    once = ((before == 1) & (after == 1) & (np.bincount(groups, minlength=size) == _BOTH))[groups]
    torn = ((before != after) & (np.maximum(before, after) > 1))[groups]
    process, called = files.process[order], files.is_of(_CALLED)[order]
    stepped = files.count("iteration")[order] != UNKNOWN
    unique, whole = np.ones((2, len(files.trace.processes)), np.bool_)
    # Where a number comes again, the operator is in a loop, or the files are those of several processes.
    unique[process[same & (stepped | called) & ~(once & joins)]] = False
    whole[process[torn]] = False
    sure = once & (stepped | files.is_of(_CALL)[order]) & unique[process]
    follow = _follow(files, order) & whole[process] & ~called
    found: Mask = joins & ~torn & _alternate(same, inputs, outputs) & (sure | follow)
    return found


def _alternate(same: Mask, inputs: Mask, outputs: Mask) -> Mask:
    """Return which files do not have two of inputs before them, or one of outputs beside them."""
    twice = np.zeros(len(same), np.bool_)
    twice[2:] |= same[2:] & same[1:-1] & inputs[:-2] & inputs[1:-1]
    twice[:-1] |= same[1:] & outputs[:-1] & outputs[1:]
    return ~twice


def _follow(files: Files, order: Numbers) -> Mask:
    """Return which files, in *order*, were the next that was dumped on their stream after the one before.

    Between the two files of a call may be those of its kernels.
    """
    calls = [_CALL.sub(r"\1", it or "") for it in files.trace.texts["op_type"]]
    _, call = np.unique(calls, return_inverse=True)
    streams = (files.count("stream"), files.process)
    ran = np.lexsort((files.outputs, files.count("task"), files.count("timestamp"), *streams))
    changes = np.ones(len(ran), np.bool_)
    changes[1:] = ~files.is_of(_CALL)[ran[1:]]
    for column in (call.reshape(-1)[files.type], *streams):
        changes[1:] |= column[ran[1:]] != column[ran[:-1]]
    place, stretch = np.empty(len(ran), np.int64), np.empty(len(ran), np.int64)
    place[ran], stretch[ran] = np.arange(len(ran)), np.cumsum(changes)
    follow = np.zeros(len(order), np.bool_)
    follow[1:] = (np.diff(place[order]) == 1) | (np.diff(stretch[order]) == 0)
    return follow
