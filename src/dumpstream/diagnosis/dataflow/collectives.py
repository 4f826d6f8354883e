"""Collectives: which executions of several ranks were one exchange, and which ranks took part.

They are paired by kind, name and their number in the step, never by clocks, and what one rank sends to
another by its bytes. Ranks may be divided into groups that exchange apart from each other. The dump does not
name them, but the bytes do: what an exchange leaves on all members of a group is always the same, and what is
gathered is as many times what each put in as there are members. Replicas that compute the same look like one
group; then it is not certain which ranks took part.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.trace import Trace, find_constant


class Kind(StrEnum):
    """What a collective does."""

    ALL_REDUCE = "allreduce"
    ALL_GATHER = "allgather"
    REDUCE_SCATTER = "reducescatter"
    BROADCAST = "broadcast"
    OTHER = ""


#: The session, the step, the model with the type and name of the operator, and how often it ran before.
_Key = tuple[tuple[str | None, int], int, tuple[int, int, int], int]

_Digests = tuple[int, ...]

#: Those that leave the same on every rank.
_ALIKE = {Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.BROADCAST}


@dataclass(eq=False)
class Exchange:
    """One collective: the executions of the ranks that may have taken part."""

    kind: Kind
    members: list[int] = field(default_factory=list)  #: executions, at most one of each rank
    proven: bool = False  #: whether all members certainly exchanged with each other
    complete: bool = False  #: whether certainly no other rank took part
    certain: bool = True  #: whether one of the members certainly put in what another got


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
    transfers = np.flatnonzero(executions.transfers).tolist()
    numbers = np.flatnonzero(executions.exchanging & ~executions.transfers).tolist()
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
    sets = _members_alike(trace, executions, paired)
    exchanges: dict[int, Exchange] = {}
    for (session, _, name, _), members in paired.items():
        for exchange in _groups(trace, executions, members, sets.get((session, name), {})):
            exchanges |= dict.fromkeys(exchange.members, exchange)
    return Exchanges(exchanges | _transfers(trace, executions, transfers, sessions), unpaired)


def _transfers(
    trace: Trace,
    executions: Executions,
    numbers: list[int],
    sessions: list[tuple[str | None, int] | None],
) -> dict[int, Exchange]:
    """Return the exchange of each send and receive: with a receive, the sends of the bytes that it got."""
    constant = find_constant(trace)

    def key(execution: int, rows: list[int]) -> object:
        known = rows and trace.hashed[rows].all()
        step, session = int(executions.step[execution]), sessions[int(executions.process[execution])]
        content = zip(trace.hash[rows].tolist(), trace.counts["size"][rows].tolist(), strict=True)
        return (session, step, *content) if known and session is not None else None

    senders: dict[object, list[int]] = defaultdict(list)
    for it in numbers:
        senders[key(it, executions.inputs.of(it))].append(it)
    senders.pop(None, None)
    found: dict[int, Exchange] = {}
    for it in numbers:
        rows = executions.outputs.of(it)
        process = executions.process[it]
        sent = [other for other in senders.get(key(it, rows), ()) if executions.process[other] != process]
        certain = bool(sent) and not constant[rows].all()
        found[it] = Exchange(Kind.OTHER, [it, *sent], proven=certain and len(sent) == 1, certain=certain)
    return found


def _kind_of(trace: Trace, executions: Executions, execution: int) -> Kind:
    """Return which collective it is; an operator that also computes is another."""
    if not executions.collective[execution]:
        return Kind.OTHER
    lowered = (trace.texts["op_type"][executions.op_type[execution]] or "").lower().replace("_", "")
    return next(kind for kind in Kind if kind in lowered)


def _sessions(trace: Trace) -> list[tuple[str | None, int] | None]:
    """Return which processes ran together: of each process, the n-th session of its rank.

    None if ranks have not had the same number of sessions.
    """
    of_rank: dict[tuple[str | None, str | None, int | None, int | None], list[int]] = defaultdict(list)
    for number, it in enumerate(trace.processes):
        of_rank[it.capture, it.host, it.rank, it.device].append(number)
    counts: dict[str | None, set[int]] = defaultdict(set)
    for (capture, *_), of_one in of_rank.items():
        counts[capture].add(len(of_one))
    result: list[tuple[str | None, int] | None] = [None] * len(trace.processes)
    for (capture, *_), of_one in of_rank.items():
        if len(counts[capture]) == 1:
            for place, number in enumerate(sorted(of_one, key=lambda it: trace.processes[it].place)):
                result[number] = (capture, place)
    return result


@dataclass(eq=False)
class _Set:
    """Processes that have had the same result of a collective, and never a different one."""

    results: dict[object, _Digests]  #: by the exchange
    processes: list[int]
    #: By the exchange, what each process put in; None if that does not tell it from another process.
    inputs: dict[object, list[_Digests | None]] = field(default_factory=lambda: defaultdict(list))

    @property
    def certain(self) -> bool:
        """Whether these are one group: replicas that compute the same would have put in the same."""
        count = len(self.processes)
        return any(
            len(of_all) == count and None not in of_all and len({*of_all}) == count
            for of_all in self.inputs.values()
        )


#: By the name of a collective, the set of each process.
_Sets = dict[tuple[object, object], dict[int, _Set]]


def _members_alike(trace: Trace, executions: Executions, paired: dict[_Key, list[int]]) -> _Sets:
    """Return which processes may be a group, by what each collective left on them in all steps."""
    results: dict[tuple[object, object], dict[int, dict[object, int]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for (session, step, name, place), members in paired.items():
        for it in members:
            if _digests(trace, executions.outputs.of(it)) is not None and _leaves_alike(
                trace, executions, it
            ):
                results[session, name][int(executions.process[it])][step, place] = it
    return {key: _divide(trace, executions, of_process) for key, of_process in results.items()}


def _divide(
    trace: Trace, executions: Executions, of_process: dict[int, dict[object, int]]
) -> dict[int, _Set]:
    sets: dict[int, _Set] = {}
    known: dict[tuple[object, object], _Set] = {}
    for process, numbers in of_process.items():
        mine = {key: _digests(trace, executions.outputs.of(it)) for key, it in numbers.items()}
        candidates = dict.fromkeys(known[key, it] for key, it in mine.items() if (key, it) in known)
        fits = (it for it in candidates if all(it.results.get(key, own) == own for key, own in mine.items()))
        found = next(fits, None) or _Set({}, [])
        found.processes.append(process)
        found.results |= {key: it for key, it in mine.items() if it is not None}
        for key, it in numbers.items():
            found.inputs[key].append(_digests(trace, executions.inputs.of(it)))
            known.setdefault((key, mine[key]), found)
        sets[process] = found
    return sets


def _leaves_alike(trace: Trace, executions: Executions, execution: int) -> bool:
    return _kind_of(trace, executions, execution) in _ALIKE


def _digests(trace: Trace, rows: list[int]) -> _Digests | None:
    """Return the hashes of *rows*, if they prove something."""
    if not rows:
        return None
    counts = trace.counts
    finite = (counts["nan"][rows] == 0) & (counts["zero"][rows] < counts["count"][rows])
    varied = finite & (trace.reals["std"][rows] > 0) & trace.hashed[rows]
    return tuple(trace.hash[rows].tolist()) if varied.any() and trace.hashed[rows].all() else None


def _groups(
    trace: Trace, executions: Executions, members: list[int], sets: dict[int, _Set]
) -> list[Exchange]:
    """Return the exchanges that *members*, at most one of each process, were."""
    kind = _kind_of(trace, executions, members[0])
    by_set: dict[_Set | None, list[int]] = defaultdict(list)
    for it in members:
        by_set[sets.get(int(executions.process[it]))].append(it)
    if None in by_set or any(len(it.processes) == 1 for it in by_set if it is not None):
        alone = _gathered_all(trace, executions, kind, members)
        return [Exchange(kind, members, proven=alone, complete=alone)]
    return [
        Exchange(
            kind,
            of_set,
            proven=it is not None and it.certain,
            complete=_gathered_all(trace, executions, kind, of_set),
        )
        for it, of_set in by_set.items()
    ]


def _gathered_all(trace: Trace, executions: Executions, kind: Kind, members: list[int]) -> bool:
    """Whether what *members* put in is certainly all that was gathered.

    What they got is the same, as large as what they put in together, and each put in something else: then
    there is no room in it for what another rank put in.
    """
    if kind is not Kind.ALL_GATHER:
        return False
    got, put = (
        [tuple(zip(trace.hash[rows].tolist(), trace.hashed[rows].tolist(), strict=True)) for rows in of_all]
        for of_all in (
            [executions.outputs.of(it) for it in members],
            [executions.inputs.of(it) for it in members],
        )
    )
    known = all(rows and all(hashed for _, hashed in rows) for rows in (*got, *put))
    counts = {_ranks(trace, executions, it) for it in members}
    return known and len({*got}) == 1 and len({*put}) == len(put) and counts == {len(members)}


def _ranks(trace: Trace, executions: Executions, execution: int) -> int | None:
    """Return how many ranks put something in, if the sizes of what went in and what came out say so."""
    sizes = []
    for slots in (executions.inputs, executions.outputs):
        rows = slots.of(execution)
        size = trace.counts["size"][rows]
        if not rows or (size <= 0).any():
            return None
        sizes.append(int(size.sum()))
    put, got = sizes
    return got // put if got % put == 0 else None
