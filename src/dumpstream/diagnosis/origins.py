"""Origins: where bad values begin, how they spread from there, and which of them was first.

Not finite values are followed back whether looked for or not, because others follow from them; those that led
to nothing that was looked for, such as the infinities of a mask, are no origins.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
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

    host: str | None
    rank: int | None
    hops: int


class Spread(NamedTuple):
    """How bad values spread from an origin."""

    victims: tuple[Victim, ...] = ()
    #: Executions, from the origin to the first on another rank, or to the last of the step.
    path: tuple[int, ...] = ()
    proven: bool = True  #: whether nothing on the way is only suggested


@dataclass(frozen=True, eq=False)
class Origin:
    """Where bad values begin: an execution that made them, or the first that is known to have had them."""

    execution: int
    row: int  #: the bad tensor
    blame: Blame
    reason: str


@dataclass(frozen=True, eq=False)
class Origins:
    """The origins of a run, the first first."""

    found: tuple[Origin, ...]
    concurrent: tuple[Origin, ...]  #: those of them that may have been the first, one of each stream
    later: int  #: places where bad values came from outside the dump after an origin of the same process
    judgements: dict[int, Judgement]  #: of every execution with a bad output
    users: dict[int, list[int]]  #: the executions that read the bad values of an execution
    suggested: frozenset[int]  #: the executions of which it is only suggested what they read
    unexplained: frozenset[int]  #: the processes with bad values of which it is not known what made them


class _Node(NamedTuple):
    """An execution with bad values, and what they are from."""

    sources: frozenset[int]
    suggested: bool
    entries: tuple[int, ...]  #: rows without a source


def find_origins(evidence: Evidence) -> Origins:
    """Return where the bad values of a run begin."""
    judge = Judge(evidence)
    judgements = {it: judge.judge(it) for it in judge.bad()}
    graph = _Graph(evidence)
    nodes = graph.nodes(judgements) | graph.readers(judgements)
    drafts = _wanted(evidence, _drafts(evidence, judgements, nodes), nodes)
    epochs = epochs_of(evidence)
    drafts.sort(key=lambda it: _order(evidence, epochs, it))
    independent, later = _independent(evidence, drafts)
    independent = [it if it.reason else replace(it, reason=graph.entry_reason(it.row)) for it in independent]
    users: dict[int, list[int]] = defaultdict(list)
    for number, node in nodes.items():
        for source in node.sources:
            users[source].append(number)
    suggested = frozenset(it for it, node in nodes.items() if node.suggested or graph.is_loose(it))
    process = evidence.executions.process
    unexplained = frozenset(int(process[it.execution]) for it in drafts if it.blame is not Blame.MADE)
    concurrent = _concurrent(evidence, epochs, independent)
    return Origins(tuple(independent), concurrent, later, judgements, users, suggested, unexplained)


class _Graph:
    """What the bad rows of executions are from."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._looked_for = evidence.findings.looked_for
        self._resolved: dict[int, _Node] = {}
        self._joined: dict[tuple[int, ...], _Node] = {}

    def nodes(self, judgements: dict[int, Judgement]) -> dict[int, _Node]:
        """Return a node for each execution that was judged."""
        nodes = {}
        for execution, judgement in judgements.items():
            if judgement.blame is Blame.UNKNOWN:
                suspects = judgement.rows or self._suspects(execution)
                nodes[execution] = self._join(suspects)._replace(suggested=True)
            else:
                nodes[execution] = self._join(self._followed(judgement.rows))
        return nodes

    def readers(self, judged: dict[int, Judgement]) -> dict[int, _Node]:
        """Return a node for each execution that read something bad and has no bad output."""
        evidence = self._evidence
        bad = evidence.findings.bad
        readers = np.flatnonzero(evidence.executions.inputs.any(bad)).tolist()
        return {it: self._reader(it) for it in readers if it not in judged}

    def _reader(self, execution: int) -> _Node:
        evidence = self._evidence
        bad = [row for row in evidence.executions.inputs.of(execution) if evidence.findings.bad[row]]
        if rows := [row for row in bad if not evidence.flow.overwritten[row]]:
            return self._join(self._followed(rows))
        if suspects := self._suspects(execution):
            return self._join(suspects)._replace(suggested=True)
        return _Node(frozenset(), suggested=True, entries=(*bad,))

    def _followed(self, rows: Iterable[int]) -> tuple[int, ...]:
        """Return those of *rows*, all bad, that were looked for, or all of them if none was."""
        found = (*rows,)
        return tuple(row for row in found if self._looked_for[row]) or found

    def _suspects(self, execution: int) -> tuple[int, ...]:
        """Return bad rows that may be what an operator of unknown blame has passed on."""
        evidence = self._evidence
        sources = [
            it.row
            for row in evidence.executions.inputs.of(execution)
            if evidence.flow.overwritten[row]
            for it in evidence.flow.sources_of(row)
        ]
        return tuple(row for row in sources if evidence.findings.bad[row])

    def _join(self, rows: tuple[int, ...]) -> _Node:
        """Return what all *rows* are from; the members of an exchange have the same."""
        if len(rows) == 1:
            return self._resolve(rows[0])
        if rows not in self._joined:
            found = [self._resolve(row) for row in rows]
            self._joined[rows] = _Node(
                frozenset[int]().union(*(it.sources for it in found)),
                any(it.suggested for it in found),
                tuple(dict.fromkeys(entry for it in found for entry in it.entries)),
            )
        return self._joined[rows]

    def _resolve(self, row: int) -> _Node:
        """Return which executions wrote *row*."""
        if row not in self._resolved:
            evidence = self._evidence
            if evidence.trace.io[row] == OUTPUT:
                writer = int(evidence.executions.of_row[row])
                self._resolved[row] = _Node(frozenset((writer,)), suggested=False, entries=())
            else:
                self._resolved[row] = self._resolve_read(row)
        return self._resolved[row]

    def _resolve_read(self, row: int) -> _Node:
        known = self._evidence.flow.sources_of(row)
        bad = [it for it in known if self._evidence.findings.bad[it.row]]
        if not bad:
            return _Node(frozenset(), suggested=False, entries=(row,))
        node = self._join(tuple(it.row for it in bad))
        suggested = node.suggested or any(it.link is Link.SUGGESTED for it in bad)
        return node._replace(suggested=suggested)

    def is_loose(self, execution: int) -> bool:
        """Whether it is a collective of which it is not certain which ranks took part."""
        exchange = self._evidence.exchanges.of_execution.get(execution)
        return exchange is not None and not exchange.proven and len(exchange.members) > 1

    def entry_reason(self, row: int) -> str:
        """Return where the bad values of *row*, which no dumped operator wrote, may come from."""
        evidence = self._evidence
        execution = int(evidence.executions.of_row[row])
        index = evidence.trace.counts["index"][row]
        if evidence.flow.overwritten[row]:
            return f"input {index} is bad where the operator has not written over it"
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
                drafts.append(Origin(execution, row, judgement.blame, judgement.reason))
            continue
        for row in node.entries:
            reader = int(evidence.executions.of_row[row])
            if row not in entered:
                entered.add(row)
                drafts.append(Origin(reader, row, Blame.UNKNOWN, ""))
    return drafts


def _wanted(evidence: Evidence, drafts: list[Origin], nodes: dict[int, _Node]) -> list[Origin]:
    """Return those of *drafts* that led to something that was looked for.

    All of them, if something was found and nothing shows what led to it.
    """
    executions, looked_for = evidence.executions, evidence.findings.looked_for
    found = executions.outputs.any(looked_for) | executions.inputs.any(looked_for)
    reached = {*np.flatnonzero(found).tolist()}
    if not reached:
        return []
    queue = [*reached]
    while queue:
        node = nodes.get(queue.pop())
        if node is None:
            continue
        readers = {int(executions.of_row[row]) for row in node.entries}
        fresh = (node.sources | readers if readers else node.sources) - reached
        reached |= fresh
        queue += fresh
    return [it for it in drafts if it.execution in reached] or drafts


def _bad_output(evidence: Evidence, execution: int) -> int:
    """Return the worst of the bad outputs of an execution, the first of those that are equally bad."""
    rows = [row for row in evidence.executions.outputs.of(execution) if evidence.findings.bad[row]]
    order = list(type(evidence.findings.kind(rows[0])))
    return min(rows, key=lambda row: order.index(evidence.findings.kind(row)))


# Order


def epochs_of(evidence: Evidence) -> Numbers:
    """Return how many exchanges the process of each execution had finished before, in its step."""
    executions = evidence.executions
    numbered = executions.exchanging & ~executions.transfers
    before: Numbers = np.cumsum(numbered) - numbered
    changes = np.ones(len(executions), np.bool_)
    changes[1:] = (np.diff(executions.process) != 0) | (np.diff(executions.step) != 0)
    first = np.maximum.accumulate(np.where(changes, np.arange(len(executions)), 0))
    epochs: Numbers = before - before[first] if len(executions) else before
    return epochs


def _moment(evidence: Evidence, epochs: Numbers, execution: int) -> tuple[int, int]:
    """Return what orders executions of different ranks: in the same moment, either may have been first.

    What a collective leaves comes after all that ran before it, on any rank.
    """
    collective = bool(evidence.executions.exchanging[execution])
    return int(evidence.executions.step[execution]), 2 * int(epochs[execution]) + collective


def _order(evidence: Evidence, epochs: Numbers, it: Origin) -> tuple[int, ...]:
    return *_moment(evidence, epochs, it.execution), it.execution


def _concurrent(evidence: Evidence, epochs: Numbers, origins: list[Origin]) -> tuple[Origin, ...]:
    """Return those of *origins* that may have been the first: on a stream, only one can."""
    executions = evidence.executions
    first: dict[tuple[int, int], Origin] = {}
    for it in origins:
        if _moment(evidence, epochs, it.execution) == _moment(evidence, epochs, origins[0].execution):
            stream = int(executions.process[it.execution]), int(executions.stream[it.execution])
            first.setdefault(stream, it)
    return (*first.values(),)


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


def find_spread(evidence: Evidence, origins: Origins, origin: Origin) -> Spread:
    """Return the ranks that *origin*, one of *origins*, has reached, and how."""
    process: list[int] = evidence.executions.process.tolist()
    start = origin.execution
    hops, came = {start: 0}, dict[int, int]()
    reached = {process[start]: 0}
    crossing: int | None = None
    queue = deque([start])
    while queue:
        number = queue.popleft()
        for user in origins.users.get(number, ()):
            crosses = process[user] != process[number]
            distance = hops[number] + crosses
            if user in hops and hops[user] <= distance:
                continue
            hops[user], came[user] = distance, number
            if crosses and crossing is None:
                crossing = user
            reached[process[user]] = min(distance, reached.get(process[user], distance))
            (queue.append if crosses else queue.appendleft)(user)
    named = ((evidence.trace.processes[it], count) for it, count in reached.items() if count)
    victims = [Victim(it.host, it.rank, count) for it, count in named]
    victims.sort(key=lambda it: (it.hops, it.rank is None, it.rank, it.host or ""))
    proven = origins.suggested.isdisjoint(hops)
    steps = evidence.executions.step
    inside = [it for it in hops if steps[it] == steps[start]]
    end = crossing if crossing is not None else max(inside)
    return Spread(tuple(victims), _path(came, start, end), proven)


def _path(came: dict[int, int], start: int, end: int) -> tuple[int, ...]:
    """Return the executions from the origin to *end*."""
    path = [end]
    while path[-1] != start:
        path.append(came[path[-1]])
    return (*reversed(path),)[:_LONGEST_PATH]
