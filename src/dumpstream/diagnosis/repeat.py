"""Repeat: whether a second run of the same job, with the same seed, went wrong in the same way.

A fault that comes again from the same bytes is one of the program. If an operator made something else of the
same inputs, and all that it read is known, it is one of the hardware, or of an order that changes.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from dumpstream.diagnosis.blame import Judge
from dumpstream.diagnosis.dataflow.trace import UNKNOWN
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.origins import Origin, epochs_of

_Key = tuple[object, ...]
#: The step of an execution, how many exchanges its process had finished before, and its number.
_When = tuple[int, int, int]


class Repetition(NamedTuple):
    """What a second run says about the first bad values of a run."""

    deterministic: bool | None  #: None if it cannot be told
    sentence: str
    compared: int  #: executions
    parts_at: str | None = None  #: the first operator that made something else of the same inputs


class _Parting(NamedTuple):
    """How far two runs are the same."""

    compared: int  #: executions of which both the inputs and the outputs are known
    alike: int  #: those of them that are the same
    guilty: str | None  #: the first that made something else of the same inputs
    differing: str | None  #: the first that made something else


def compare_runs(run: Evidence, again: Evidence, origin: Origin | None) -> Repetition:
    """Return whether the runs are the same up to *origin*, or to their end, and where they part."""
    others = _executions(again)
    parting = _part(
        run, again, others, None if origin is None else int(run.executions.step[origin.execution])
    )
    compared, alike, guilty, differing = parting
    if guilty is not None:
        text = f"Not deterministic: {guilty} made something else of the same inputs, by hardware or a race."
        return Repetition(False, text, compared, guilty)
    if not compared:
        return Repetition(None, "The runs have no operators in common whose hashes are known.", 0)
    if origin is not None:
        key = next(it for it, number in _executions(run).items() if number == origin.execution)
        return _compare_origin(run, again, origin, others.get(key), parting)
    if differing is not None:
        return Repetition(None, f"The runs are not the same: {_first(differing)}.", compared)
    return Repetition(True, f"Both runs are the same in {alike:,} executions.", compared)


def _part(run: Evidence, again: Evidence, others: dict[_Key, int], last: int | None) -> _Parting:
    """Return how far the runs are the same, up to the end of step *last*."""
    judge, other_judge = Judge(run), Judge(again)
    epochs = epochs_of(run)
    compared = alike = 0
    guilty, differing = list[_When](), list[_When]()
    for key, number in _executions(run).items():
        when = int(run.executions.step[number]), int(epochs[number]), number
        if key not in others or (last is not None and when[0] > last):
            continue
        other = others[key]
        same_inputs = _same(_read(run, number), _read(again, other))
        same_outputs = _same(_hashes(run, number, inputs=False), _hashes(again, other, inputs=False))
        compared += same_inputs is not None and same_outputs is not None
        alike += bool(same_inputs and same_outputs)
        if same_outputs is False:
            differing.append(when)
            if same_inputs and judge.doubt(number) is None and other_judge.doubt(other) is None:
                guilty.append(when)
    first = (_text(run, min(whens)[-1]) if whens else None for whens in (guilty, differing))
    return _Parting(compared, alike, *first)


def _compare_origin(
    run: Evidence, again: Evidence, origin: Origin, other: int | None, parting: _Parting
) -> Repetition:
    compared = parting.compared
    if other is None:
        return Repetition(None, "The second run does not have the operator; dump the same again.", compared)
    if _same(_hashes(run, origin.execution, inputs=False), _hashes(again, other, inputs=False)):
        count = f"{parting.alike:,} executions"
        return Repetition(
            True, f"Deterministic: the second run made the same of the same bytes in {count}.", compared
        )
    rows = again.executions.outputs.of(other) + again.executions.inputs.of(other)
    bad = "bad, too, with other bytes" if again.findings.bad[rows].any() else "clean"
    where = "the runs differed before, and it is not known where"
    if parting.differing is not None:
        where = _first(parting.differing)
    return Repetition(None, f"In the second run the operator is {bad}; {where}.", compared)


def _first(differing: str) -> str:
    return f"the first that differs is {differing}, which may have read something else"


def _executions(evidence: Evidence) -> dict[_Key, int]:
    """Return the executions by what they have in common with those of another run."""
    trace, it = evidence.trace, evidence.executions
    ran: Counter[_Key] = Counter()
    found: dict[_Key, int] = {}
    for number in range(len(it)):
        texts = (
            trace.texts[column][code]
            for column, code in (
                ("model", int(it.model[number])),
                ("op_type", int(it.op_type[number])),
                ("op_name", int(it.op_name[number])),
            )
        )
        key = (evidence.process_key(number), int(it.step[number]), *texts)
        found[*key, ran[key]] = number
        ran[key] += 1
    return found


def _read(evidence: Evidence, execution: int) -> list[int | None]:
    """Return the hashes of what an execution read; a collective reads what every rank put in."""
    exchange = evidence.exchanges.of_execution.get(execution)
    members = [execution] if exchange is None else exchange.members
    if exchange is None and evidence.executions.exchanging[execution]:
        return [None]
    return [it for member in members for it in _hashes(evidence, member, inputs=True)]


def _hashes(evidence: Evidence, execution: int, *, inputs: bool) -> list[int | None]:
    executions, trace = evidence.executions, evidence.trace
    rows = (executions.inputs if inputs else executions.outputs).of(execution)
    return [
        int(trace.hash[row]) if trace.hashed[row] and not evidence.flow.overwritten[row] else None
        for row in rows
    ]


def _same(mine: list[int | None], theirs: list[int | None]) -> bool | None:
    """Whether both are the same; None if that is not known."""
    if None in mine or None in theirs or len(mine) != len(theirs):
        return None
    return mine == theirs


def _text(evidence: Evidence, execution: int) -> str:
    trace, it = evidence.trace, evidence.executions
    name = trace.texts["op_name"][int(it.op_name[execution])]
    process, step = evidence.process_of(execution), int(it.step[execution])
    where = [f"host {process.host}"] if process.host is not None else []
    where += [f"rank {process.rank}"] if process.rank is not None else []
    where += [f"step {step}"] if step != UNKNOWN else []
    return f"{name} ({', '.join(where)})" if where else str(name)
