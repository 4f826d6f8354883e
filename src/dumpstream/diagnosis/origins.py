"""Origins: where bad values begin, how they spread from there, and which of them was first."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dumpstream.diagnosis.blame import Blame, Judge, Judgement
from dumpstream.diagnosis.dataflow.flow import Link
from dumpstream.diagnosis.dataflow.trace import OUTPUT, UNKNOWN, Numbers
from dumpstream.diagnosis.evidence import Evidence

#: How many operators of a path are told.
_LONGEST_PATH = 20


class Victim(NamedTuple):
    """A rank that bad values have reached, and by how many exchanges."""

    rank: int | None
    hops: int


@dataclass(frozen=True, eq=False)
class Origin:
    """Where bad values begin: an execution that made them, or the first that is known to have had them."""

    execution: int
    row: int  #: the bad tensor
    blame: Blame
    reason: str
    proven: bool  #: whether nothing on the way is only suggested
    victims: tuple[Victim, ...] = ()
    path: tuple[int, ...] = ()  #: executions, from this to the first on another rank


@dataclass(frozen=True, eq=False)
class Origins:
    """The origins of a run, the first first."""

    found: tuple[Origin, ...]
    concurrent: int  #: how many of them may have been the first
    later: int  #: places where bad values came from outside the dump after an origin of the same process
    judgements: dict[int, Judgement]  #: of every execution with a bad output


@dataclass(eq=False)
class _Node:
    """An execution with bad values, and what they are from."""

    sources: set[int] = field(default_factory=set)
    suggested: bool = False
    entries: list[tuple[int, str]] = field(default_factory=list)  #: rows without a source, and why


def find_origins(evidence: Evidence) -> Origins:
    """Return where the bad values of a run begin."""
    judge = Judge(evidence)
    judgements = {it: judge.judge(it) for it in judge.bad()}
    nodes = _Graph(evidence).nodes(judgements)
    nodes |= {it: node for it, node in _Graph(evidence).readers(judgements).items() if it not in nodes}
    drafts = _drafts(evidence, judgements, nodes)
    epochs = _epochs(evidence)
    drafts.sort(key=lambda it: _order(evidence, epochs, it))
    independent, later = _independent(evidence, drafts)
    users = defaultdict(list)
    for number, node in nodes.items():
        for source in node.sources:
            users[source].append(number)
    told = tuple(_spread(evidence, users, it) for it in independent)
    first = {_moment(evidence, epochs, it.execution) for it in told[:1]}
    concurrent = sum(_moment(evidence, epochs, it.execution) in first for it in told)
    return Origins(told, concurrent, later, judgements)


class _Graph:
    """What the bad rows of executions are from."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._resolved: dict[int, tuple[frozenset[int], bool, int | None]] = {}

    def nodes(self, judgements: dict[int, Judgement]) -> dict[int, _Node]:
        """Return a node for each execution that was judged."""
        nodes = {}
        for execution, judgement in judgements.items():
            node = nodes[execution] = _Node()
            rows = [*judgement.rows]
            if judgement.blame is Blame.UNKNOWN:
                rows = self._suspects(execution)
                node.suggested = bool(rows)
            for row in rows:
                self._connect(node, row, execution)
        return nodes

    def readers(self, judged: dict[int, Judgement]) -> dict[int, _Node]:
        """Return a node for each execution that read something bad and has no bad output."""
        evidence = self._evidence
        bad = evidence.findings.bad & ~evidence.flow.overwritten
        nodes: dict[int, _Node] = {}
        for execution in np.flatnonzero(evidence.executions.inputs.any(bad)).tolist():
            if execution not in judged:
                node = nodes[execution] = _Node()
                for row in evidence.executions.inputs.of(execution):
                    if bad[row]:
                        self._connect(node, row, execution)
        return nodes

    def _suspects(self, execution: int) -> list[int]:
        """Return bad rows that may be what an operator of unknown blame has passed on."""
        evidence = self._evidence
        sources = [
            it.row
            for row in evidence.executions.inputs.of(execution)
            if evidence.flow.overwritten[row]
            for it in evidence.flow.sources_of(row)
        ]
        return [row for row in sources if evidence.findings.bad[row]]

    def _connect(self, node: _Node, row: int, execution: int) -> None:
        sources, suggested, entry = self._resolve(row)
        node.sources |= sources - {execution}
        node.suggested |= suggested
        if entry is not None:
            node.entries.append((entry, self._entry_reason(entry)))

    def _resolve(self, row: int) -> tuple[frozenset[int], bool, int | None]:
        """Return the executions whose output *row* is, whether that is only suggested, and the entry."""
        if row not in self._resolved:
            evidence = self._evidence
            of_row = evidence.executions.of_row
            if evidence.trace.io[row] == OUTPUT:
                self._resolved[row] = frozenset((int(of_row[row]),)), False, None
            else:
                self._resolved[row] = self._resolve_read(row)
        return self._resolved[row]

    def _resolve_read(self, row: int) -> tuple[frozenset[int], bool, int | None]:
        evidence = self._evidence
        found: set[int] = set()
        suggested, entry = False, None
        known = evidence.flow.sources_of(row)
        bad = [it for it in known if evidence.findings.bad[it.row]]
        for it in bad:
            sources, guessed, first = self._resolve(it.row)
            found |= sources
            suggested |= guessed or it.link is Link.SUGGESTED
            entry = first if entry is None else entry
        return frozenset(found), suggested, row if not bad else entry

    def _entry_reason(self, row: int) -> str:
        """Return where the bad values of *row*, which no dumped operator wrote, may come from."""
        evidence = self._evidence
        execution = int(evidence.executions.of_row[row])
        index = evidence.trace.counts["index"][row]
        if not evidence.flow.addressed[row]:
            return f"input {index} was bad, and without addresses it is not known which operator wrote it"
        written = (
            (evidence.trace.process == evidence.trace.process[row])
            & (evidence.trace.address == evidence.trace.address[row])
            & (evidence.executions.sequence < evidence.executions.sequence[row])
        )
        if written.any():
            return f"input {index} was bad, and an operator that was not dumped wrote it"
        steps = evidence.executions.step
        of_process = steps[evidence.executions.process == evidence.executions.process[execution]]
        where = "weights, or what the data loader brought, or the output of an operator that was not dumped"
        if steps[execution] > 0 and of_process.min() == steps[execution]:
            where = f"steps before {steps[execution]} were not dumped, or {where}"
        return f"input {index} was bad already, and no operator in the run wrote it: {where}"


def _drafts(evidence: Evidence, judgements: dict[int, Judgement], nodes: dict[int, _Node]) -> list[Origin]:
    drafts: list[Origin] = []
    entered: set[int] = set()
    for execution, node in nodes.items():
        judgement = judgements.get(execution)
        if judgement is not None and judgement.blame is not Blame.PASSED:
            if judgement.blame is Blame.MADE or not node.sources:
                row = _bad_output(evidence, execution)
                drafts.append(
                    Origin(execution, row, judgement.blame, judgement.reason, judgement.blame is Blame.MADE)
                )
            continue
        for row, reason in node.entries:
            reader = int(evidence.executions.of_row[row])
            if row not in entered:
                entered.add(row)
                drafts.append(Origin(reader, row, Blame.UNKNOWN, reason, proven=False))
    return drafts


def _bad_output(evidence: Evidence, execution: int) -> int:
    """Return the worst of the bad outputs of an execution, the first of those that are equally bad."""
    rows = [row for row in evidence.executions.outputs.of(execution) if evidence.findings.bad[row]]
    order = list(type(evidence.findings.kind(rows[0])))
    return min(rows, key=lambda row: order.index(evidence.findings.kind(row)))


# Order


def _epochs(evidence: Evidence) -> Numbers:
    """Return how many exchanges the process of each execution had finished before, in its step."""
    executions = evidence.executions
    before: Numbers = np.cumsum(executions.collective) - executions.collective
    changes = np.ones(len(executions), np.bool_)
    changes[1:] = (np.diff(executions.process) != 0) | (np.diff(executions.step) != 0)
    first = np.maximum.accumulate(np.where(changes, np.arange(len(executions)), 0))
    epochs: Numbers = before - before[first] if len(executions) else before
    return epochs


def _moment(evidence: Evidence, epochs: Numbers, execution: int) -> tuple[int, int]:
    """Return what orders executions of different ranks: in the same moment, either may have been first."""
    return int(evidence.executions.step[execution]), int(epochs[execution])


def _order(evidence: Evidence, epochs: Numbers, it: Origin) -> tuple[int, ...]:
    return *_moment(evidence, epochs, it.execution), it.execution


def _independent(evidence: Evidence, drafts: list[Origin]) -> tuple[list[Origin], int]:
    """Return the origins of *drafts*, and how many others may follow from an earlier one.

    Where bad values come from outside the dump in a later step than a process first had some, they may be
    those that it had before, such as weights that were updated.
    """
    first: dict[int, int] = {}
    kept, later = [], 0
    reached = min((int(evidence.executions.step[it.execution]) for it in drafts), default=UNKNOWN)
    for it in drafts:
        process = int(evidence.executions.process[it.execution])
        step = int(evidence.executions.step[it.execution])
        if it.blame is Blame.UNKNOWN and step > first.get(process, reached):
            later += 1
            continue
        first.setdefault(process, step)
        kept.append(it)
    return kept, later


# Spread


def _spread(evidence: Evidence, users: dict[int, list[int]], origin: Origin) -> Origin:
    """Return *origin* with the ranks that it reached and how."""
    executions = evidence.executions
    process = executions.process
    hops = {origin.execution: 0}
    came: dict[int, int] = {}
    reached: dict[int, int] = {int(process[origin.execution]): 0}
    crossing: int | None = None
    queue = deque([origin.execution])
    while queue:
        number = queue.popleft()
        for user in users.get(number, ()):
            crosses = process[user] != process[number]
            distance = hops[number] + int(crosses)
            if distance >= hops.get(user, distance + 1):
                continue
            hops[user], came[user] = distance, number
            if crosses and crossing is None:
                crossing = user
            known = reached.setdefault(int(process[user]), distance)
            reached[int(process[user])] = min(known, distance)
            (queue.append if crosses else queue.appendleft)(user)
    ranks = [
        Victim(evidence.trace.processes[number].rank, distance)
        for number, distance in reached.items()
        if distance
    ]
    return Origin(
        origin.execution,
        origin.row,
        origin.blame,
        origin.reason,
        origin.proven,
        tuple(sorted(ranks, key=lambda it: (it.hops, it.rank is None, it.rank))),
        _path(came, crossing, origin.execution, hops),
    )


def _path(came: dict[int, int], crossing: int | None, start: int, hops: dict[int, int]) -> tuple[int, ...]:
    """Return the executions from the origin to the first on another rank, or to the last that it reached."""
    number = crossing if crossing is not None else max(hops, default=start)
    path = [number]
    while path[-1] != start:
        path.append(came[path[-1]])
    return (*reversed(path),)[:_LONGEST_PATH]
