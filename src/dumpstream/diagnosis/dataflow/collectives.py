"""Collectives: which executions of several ranks were one exchange, and which ranks took part.

They are paired by kind, name and their number in the step, never by clocks. Ranks may be divided into groups
that exchange apart from each other. The dump does not name them, but the bytes do: what an exchange leaves on
all members of a group is the same, or larger than what each put in by the number of members.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum

from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.trace import UNKNOWN, Trace


class Kind(StrEnum):
    """What a collective does."""

    ALL_REDUCE = "allreduce"
    ALL_GATHER = "allgather"
    REDUCE_SCATTER = "reducescatter"
    BROADCAST = "broadcast"
    OTHER = ""


#: The session, the step, the model with the type and name of the operator, and how often it ran before.
_Key = tuple[tuple[str | None, int], int, tuple[int, int, int], int]

#: Those that leave the same on every rank.
_ALIKE = {Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.BROADCAST}


@dataclass(eq=False)
class Exchange:
    """One collective: the executions of the ranks that may have taken part."""

    kind: Kind
    members: list[int] = field(default_factory=list)  #: executions, at most one of each rank
    proven: bool = False  #: whether all members certainly exchanged with each other
    complete: bool = False  #: whether certainly no other rank took part


@dataclass(frozen=True, eq=False)
class Exchanges:
    """All exchanges of a run."""

    of_execution: dict[int, Exchange]
    unpaired: int  #: collectives of which it is not known what they belong to, because runs are mixed

    def others(self, execution: int) -> list[int]:
        """Return the executions of other ranks in the same exchange."""
        exchange = self.of_execution.get(execution)
        return [] if exchange is None else [it for it in exchange.members if it != execution]


def find_exchanges(trace: Trace, executions: Executions) -> Exchanges:
    """Return the exchanges of *trace*."""
    numbers = executions.collective.nonzero()[0].tolist()
    sessions = _sessions(trace)
    counted: dict[object, int] = defaultdict(int)
    paired: dict[_Key, list[int]] = defaultdict(list)
    unpaired = 0
    for it in numbers:  # of each process in the order in which they ran
        process = int(executions.process[it])
        session = sessions[process]
        if session is None:
            unpaired += 1
            continue
        name = (int(executions.model[it]), int(executions.op_type[it]), int(executions.op_name[it]))
        step = int(executions.step[it])
        place = counted[process, step, name]
        counted[process, step, name] += 1
        paired[session, step, name, place].append(it)
    alike = _members_alike(trace, executions, paired)
    exchanges: dict[int, Exchange] = {}
    for (session, _, name, _), members in paired.items():
        for exchange in _groups(trace, executions, members, alike.get((session, name), {})):
            exchanges |= dict.fromkeys(exchange.members, exchange)
    return Exchanges(exchanges, unpaired)


def kind_of(op_type: str | None) -> Kind:
    """Return what a collective of this type does."""
    lowered = (op_type or "").lower().replace("_", "")
    return next(kind for kind in Kind if kind in lowered)


def _sessions(trace: Trace) -> list[tuple[str | None, int] | None]:
    """Return which processes ran together: of each process, the n-th session of its rank.

    None if ranks have not had the same number of sessions.
    """
    of_rank: dict[tuple[str | None, int | None, int | None], list[int]] = defaultdict(list)
    for number, it in enumerate(trace.processes):
        of_rank[it.capture, it.rank, it.device].append(number)
    counts: dict[str | None, set[int]] = defaultdict(set)
    for (capture, _, _), of_one in of_rank.items():
        counts[capture].add(len(of_one))
    result: list[tuple[str | None, int] | None] = [None] * len(trace.processes)
    for (capture, _, _), of_one in of_rank.items():
        if len(counts[capture]) == 1:
            for place, number in enumerate(sorted(of_one, key=lambda it: trace.processes[it].place)):
                result[number] = (capture, place)
    return result


def _members_alike(
    trace: Trace, executions: Executions, paired: dict[_Key, list[int]]
) -> dict[tuple[object, object], dict[int, int]]:
    """Return by the name of a collective which processes have had the same result of it at any time.

    A process is in the set that is named by the process with the smallest number in it.
    """
    sets: dict[tuple[object, object], dict[int, int]] = defaultdict(dict)
    for (session, _, name, _), members in paired.items():
        results: dict[tuple[int, ...], int] = {}
        for it in members:
            result = _result(trace, executions, it)
            if result is None:
                continue
            process = int(executions.process[it])
            first = results.setdefault(result, process)
            _unite(sets[session, name], first, process)
    return sets


def _unite(sets: dict[int, int], one: int, other: int) -> None:
    one, other = _root(sets, one), _root(sets, other)
    sets[max(one, other)] = min(one, other)


def _root(sets: dict[int, int], process: int) -> int:
    while sets.setdefault(process, process) != process:
        process = sets[process]
    return process


def _result(trace: Trace, executions: Executions, execution: int) -> tuple[int, ...] | None:
    """Return the hashes of what a collective left on every rank, if they prove something."""
    op_type = trace.texts["op_type"][executions.op_type[execution]]
    rows = executions.outputs.of(execution)
    if kind_of(op_type) not in _ALIKE or not rows:
        return None
    counts = trace.counts
    finite = (counts["nan"][rows] == 0) & (counts["zero"][rows] < counts["count"][rows])
    varied = finite & (trace.reals["std"][rows] > 0) & trace.hashed[rows]
    return tuple(trace.hash[rows].tolist()) if varied.any() and trace.hashed[rows].all() else None


def _groups(
    trace: Trace, executions: Executions, members: list[int], alike: dict[int, int]
) -> list[Exchange]:
    """Return the exchanges that *members*, at most one of each process, were."""
    kind = kind_of(trace.texts["op_type"][executions.op_type[members[0]]])
    by_set: dict[int, list[int]] = defaultdict(list)
    for it in members:
        by_set[_root(alike, int(executions.process[it]))].append(it)
    ranks = {_ranks(trace, executions, kind, it) for it in members}
    if ranks == {len(members)}:
        return [Exchange(kind, members, proven=True, complete=True)]
    if all(len(of_set) > 1 for of_set in by_set.values()):
        return [Exchange(kind, it, proven=True, complete=ranks == {len(it)}) for it in by_set.values()]
    return [Exchange(kind, members)]


def _ranks(trace: Trace, executions: Executions, kind: Kind, execution: int) -> int | None:
    """Return how many ranks took part, if the sizes of what went in and came out say so."""
    sizes = []
    for slots in (executions.inputs, executions.outputs):
        rows = slots.of(execution)
        size = trace.counts["size"][rows]
        if not rows or (size <= 0).any() or (size == UNKNOWN).any():
            return None
        sizes.append(int(size.sum()))
    put, got = sizes
    if kind is Kind.ALL_GATHER and got % put == 0:
        return got // put
    return put // got if kind is Kind.REDUCE_SCATTER and put % got == 0 else None
