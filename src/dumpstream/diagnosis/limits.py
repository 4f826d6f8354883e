"""Limits: what was not captured, and might change the answer."""

from __future__ import annotations

from collections import Counter

from dumpstream.diagnosis.dataflow.trace import UNKNOWN
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.origins import Origin
from dumpstream.statistics.table import DEVICE

_MOST_LABELS = 4


def gaps_before(evidence: Evidence, origin: Origin) -> list[str]:
    """Return what was not dumped around *origin*."""
    executions, number = evidence.executions, origin.execution
    same = (executions.process == executions.process[number]) & (executions.step == executions.step[number])
    same &= executions.stream == executions.stream[number]
    tasks = {*executions.task[same & (executions.task <= executions.task[number])].tolist()} - {UNKNOWN}
    gap = max(tasks) - min(tasks) + 1 - len(tasks) if tasks else 0
    found = [] if not gap else [f"of the tasks before it in the step, {gap} not in the dump"]
    steps = {*executions.step[executions.process == executions.process[number]].tolist()}
    step = int(executions.step[number])
    if step > 0 and step - 1 not in steps:
        found.append(f"step {step - 1} is not in the dump")
    return found


def limits_of(evidence: Evidence) -> list[str]:
    """Return what limits any answer about the run."""
    trace, executions = evidence.trace, evidence.executions
    notes = []
    if len(executions) and not executions.inputs.lengths.any():
        notes.append("only outputs were dumped: no operator can be blamed; dump with dump_mode all")
    if len(executions) and not evidence.flow.addressed.any():
        notes.append("the dump has no addresses: what was read from where is not known")
    if DEVICE in {trace.texts["source"][code] for code in set(trace.codes["source"].tolist())}:
        notes.append("the device computed the statistics: they have no hashes and addresses; dump tensors")
    sessions = Counter((it.capture, it.host, it.rank, it.device) for it in trace.processes)
    if max(sessions.values(), default=0) > 1:
        notes.append("the run has several sessions of one rank; name the directory of one of them")
    if evidence.repeating:
        labels = sorted(trace.processes[it].label for it in evidence.repeating)
        which = ", ".join(labels[:_MOST_LABELS])
        notes.append(
            f"{which}: operators came twice as the same task of a step; they are in a loop, or "
            "files of several ranks are mixed: give every rank a directory of its own"
        )
    if evidence.exchanges.unpaired:
        notes.append("ranks have different numbers of sessions: their collectives are not compared")
    return notes
