"""Blame: whether an operator made its bad output, passed it on, or whether that is not known.

An operator made it only if every input was seen, whole and clean, as it was when the operator read it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from dumpstream.diagnosis.badness import Badness
from dumpstream.diagnosis.dataflow.collectives import Exchange, Kind
from dumpstream.diagnosis.dataflow.executions import most_tensors
from dumpstream.diagnosis.dataflow.joins import is_call
from dumpstream.diagnosis.evidence import Evidence, inputs_text, ranks_text
from dumpstream.diagnosis.inplace import StandIns


class Blame(StrEnum):
    """What an operator has to do with its bad output."""

    MADE = "made"  #: its inputs are clean and complete
    PASSED = "passed"  #: an input was bad
    UNKNOWN = "unknown"


class Judgement(NamedTuple):
    """The blame of one execution with a bad output, and why."""

    blame: Blame
    reason: str
    rows: tuple[int, ...] = ()  #: what it passed on, or perhaps did: what it read, on this rank or on another


class Judge:
    """Judges the executions of a run, one by one."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        executions = evidence.executions
        self._stand_ins = StandIns(evidence)
        self._inputs_seen = np.zeros(len(evidence.trace.processes), np.bool_)
        self._inputs_seen[executions.process[executions.inputs.lengths > 0]] = True
        self._most_inputs: list[int] = most_tensors(executions, executions.inputs).tolist()
        self._most_outputs: list[int] = most_tensors(executions, executions.outputs).tolist()
        self._passed: dict[Exchange, Judgement | None] = {}

    def bad(self) -> list[int]:
        """Return the executions with a bad output."""
        bad = self._evidence.executions.outputs.any(self._evidence.findings.bad)
        found: list[int] = np.flatnonzero(bad).tolist()
        return found

    def judge(self, execution: int) -> Judgement:
        """Return the blame of an execution with a bad output."""
        evidence = self._evidence
        if evidence.executions.exchanging[execution]:
            return self._judge_collective(execution)
        rows = evidence.executions.inputs.of(execution)
        overwritten = [row for row in rows if evidence.flow.overwritten[row]]
        bad = [row for row in rows if evidence.findings.bad[row] and row not in overwritten]
        if bad:
            return Judgement(
                Blame.PASSED, inputs_text(evidence.trace, bad, "was bad", "were bad"), tuple(bad)
            )
        clean = [row for row in rows if row not in overwritten]
        if (reason := self.doubt(execution) or self._doubt_of_kind(execution, clean)) is not None:
            return Judgement(Blame.UNKNOWN, reason)
        for row in clean:
            if (before := self._stand_ins.bad_before(execution, row)) is not None:
                text = inputs_text(evidence.trace, [row], "may have been bad, and changed while it ran", "")
                return Judgement(Blame.UNKNOWN, text, (before,))
        if overwritten:
            return self._judge_in_place(execution, overwritten)
        return Judgement(Blame.MADE, "its inputs are clean")

    def doubt(self, execution: int) -> str | None:
        """Return why not all that *execution* read is known, if so; but for what it wrote over."""
        evidence = self._evidence
        if not evidence.executions.exchanging[execution]:
            rows = evidence.executions.inputs.of(execution)
            return self._unseen(execution, rows) or self._unsure(execution, rows)
        exchange = evidence.exchanges.of_execution.get(execution)
        if exchange is None:
            return "runs are mixed, and it is not known which ranks took part"
        if evidence.executions.transfers[execution] and len(exchange.members) == 1:
            return "what it received was sent by a rank that is not known"
        reasons = (self._unseen_by(it) for it in exchange.members)
        if (reason := next((it for it in reasons if it is not None), None)) is not None:
            return reason
        return None if exchange.complete else "what these ranks put in is clean; another may have taken part"

    def _doubt_of_kind(self, execution: int, rows: list[int]) -> str | None:
        """Return why *rows* may be bad in the same way as an output of *execution*, if so."""
        findings = self._evidence.findings
        outputs = self._evidence.executions.outputs.of(execution)
        for kind in findings.doubtful:
            if not findings.of_kind[kind][outputs].any():
                continue
            if doubtful := [row for row in rows if findings.doubtful[kind][row]]:
                if kind is Badness.OVERFLOW:
                    return "files were lost, perhaps those of an operator that overflowed before"
                return inputs_text(
                    self._evidence.trace, doubtful, "may have drifted, too", "may have drifted, too"
                )
        return None

    def _unseen(self, execution: int, rows: list[int]) -> str | None:
        """Return why not all inputs of *execution* are among *rows*, if so."""
        executions = self._evidence.executions
        most = self._most_inputs[execution]
        if not rows and not self._inputs_seen[executions.process[execution]]:
            return "only outputs were dumped"
        op_type = self._evidence.trace.texts["op_type"][int(executions.op_type[execution])]
        if not rows and (most or is_call(op_type)):
            return "its inputs were not dumped"
        if not rows:
            return "the dump has no inputs of it; it may have brought data, weights or constants"
        if self._evidence.is_hidden("input", execution):
            return "the configuration left inputs of it out"
        if len(rows) < most or self._has_gap(rows):
            return "one of its inputs was not dumped"
        return None

    def _has_gap(self, rows: list[int]) -> bool:
        """Whether *rows*, inputs or outputs of an execution, are not numbered from 0 on."""
        numbers: list[int] = self._evidence.trace.counts["index"][rows].tolist()
        return numbers != [*range(len(rows))]

    def _unsure(self, execution: int, rows: list[int]) -> str | None:
        """Return why *rows* do not say everything about the inputs of *execution*, if so."""
        evidence, trace = self._evidence, self._evidence.trace
        size = trace.counts["size"]
        for row in rows:
            if not trace.counts["bytes"][row] and size[row]:
                return inputs_text(trace, [row], "was not dumped", "")
            if not evidence.findings.known[row]:
                return inputs_text(trace, [row], "is not whole, or not of numbers", "")
        outputs = evidence.executions.outputs.of(execution)
        both = [*rows, *outputs]
        if rows and (~evidence.flow.addressed[both] & (size[both] != 0)).any():
            return "it may have worked in place: the dump does not have all addresses"
        if rows and not evidence.executions.separate[execution]:
            most, hidden = self._most_outputs[execution], evidence.is_hidden("output", execution)
            if hidden or len(outputs) < most or self._has_gap(outputs):
                return "it may have worked in place: one of its outputs was not dumped"
        return None

    def _judge_in_place(self, execution: int, rows: list[int]) -> Judgement:
        """Judge an operator that wrote over *rows*: what lay there before stands in for them."""
        trace = self._evidence.trace
        for row in rows:
            sources = self._evidence.flow.sources_of(row)
            if (problem := self._stand_ins.problem(execution, row, sources)) is not None:
                text = inputs_text(trace, [row], "was overwritten by its output", "")
                return Judgement(Blame.UNKNOWN, f"{text}, and {problem}")
            if bad := [it.row for it in sources if self._evidence.findings.bad[it.row]]:
                text = inputs_text(trace, [row], "was bad before it was overwritten", "")
                return Judgement(Blame.PASSED, text, tuple(bad))
            if (problem := self._doubt_of_kind(execution, [it.row for it in sources])) is not None:
                return Judgement(Blame.UNKNOWN, problem)
        return Judgement(Blame.MADE, "its inputs are clean; what it overwrote was clean before")

    # Collectives

    def _judge_collective(self, execution: int) -> Judgement:
        evidence = self._evidence
        exchange = evidence.exchanges.of_execution.get(execution)
        members = [execution] if exchange is None else exchange.members
        if exchange is None or exchange not in self._passed:
            passed = self._pass_on(members, exchange)
            if exchange is not None:
                self._passed[exchange] = passed
        else:
            passed = self._passed[exchange]
        if passed is not None:
            return passed
        if (reason := self.doubt(execution)) is not None:
            return Judgement(Blame.UNKNOWN, reason)
        return Judgement(Blame.MADE, "what every rank put in is clean")

    def _pass_on(self, members: list[int], exchange: Exchange | None) -> Judgement | None:
        """Return the judgement of all *members* of an exchange if something bad was put in."""
        evidence = self._evidence
        inputs = self._put_in(members, exchange)
        bad = [row for row in inputs if evidence.findings.bad[row] and not evidence.flow.overwritten[row]]
        if not bad:
            return None
        ranks = {evidence.rank_of_row(row) for row in bad}
        if exchange is not None and not exchange.certain:
            reason = f"it may be what {ranks_text(ranks)} sent, but other tensors have the same bytes"
            return Judgement(Blame.UNKNOWN, reason, tuple(bad))
        return Judgement(Blame.PASSED, f"what {ranks_text(ranks)} put in was bad", tuple(bad))

    def _put_in(self, members: list[int], exchange: Exchange | None) -> list[int]:
        """Return the rows that *members* put in: of a broadcast, those that others got, if that is known."""
        trace, executions = self._evidence.trace, self._evidence.executions
        rows = [row for it in members for row in executions.inputs.of(it)]
        got = [row for it in members for row in executions.outputs.of(it)]
        if exchange is None or exchange.kind is not Kind.BROADCAST or not trace.hashed[[*rows, *got]].all():
            return rows
        digests = {*trace.hash[got].tolist()}
        return [row for row in rows if int(trace.hash[row]) in digests]

    def _unseen_by(self, execution: int) -> str | None:
        """Return why it is not known what a member put in, if so."""
        evidence = self._evidence
        rows = evidence.executions.inputs.of(execution)
        rank = ranks_text([evidence.rank_of(execution)])
        if not rows:
            return f"what {rank} put in was not dumped"
        if not evidence.findings.known[rows].all():
            return f"what {rank} put in was not dumped whole"
        if evidence.flow.overwritten[rows].any() or not evidence.flow.addressed[rows].all():
            return f"what {rank} put in may have been overwritten before it was dumped"
        return None
