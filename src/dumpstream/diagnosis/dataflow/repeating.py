"""Repeating: processes of which an operator ran twice as the same task of a step.

It was in a loop, of which a pass may be missing, or the files are those of several processes.
"""

from __future__ import annotations

import numpy as np

from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.trace import UNKNOWN, Trace
from dumpstream.format.opname import Scheme, parse_name


def find_repeating(trace: Trace, it: Executions) -> frozenset[int]:
    """Return those processes.

    An operator and its kernels share a task; they differ in their names. Threads of FFTS+ share both.
    """
    keys = np.stack([it.process, it.stream, it.step, it.task, it.op_type, it.op_name])
    order = np.lexsort(keys)
    again = order[1:][(np.diff(keys[:, order]) == 0).all(axis=0)]
    twice: list[int] = again[(it.step[again] != UNKNOWN) & (it.task[again] != UNKNOWN)].tolist()
    return frozenset(int(it.process[number]) for number in twice if not is_thread(trace, it, number))


def is_thread(trace: Trace, executions: Executions, number: int) -> bool:
    """Whether an execution is that of a thread of FFTS+."""
    rows = (*executions.outputs.of(number), *executions.inputs.of(number))
    return any(parse_name(trace.text("file", row) or "").scheme is Scheme.FFTS for row in rows[:1])
