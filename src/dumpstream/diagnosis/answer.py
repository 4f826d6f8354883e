"""Answer: a run in, and a diagnosis of it out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from dumpstream.diagnosis.badness import DEFAULT, Badness
from dumpstream.diagnosis.dataflow.executions import Executions
from dumpstream.diagnosis.dataflow.trace import Mask
from dumpstream.diagnosis.divergence import find_divergence
from dumpstream.diagnosis.evidence import Evidence, gather
from dumpstream.diagnosis.firstelement import first_bad_element
from dumpstream.diagnosis.limits import gaps_before, limits_of
from dumpstream.diagnosis.nextconfig import next_config
from dumpstream.diagnosis.origins import Origin, Origins, find_origins, find_spread
from dumpstream.diagnosis.report import (
    Diagnosis,
    EvidenceReport,
    TensorReport,
    report_origin,
    report_tensor,
    report_unmatched,
)
from dumpstream.diagnosis.sentence import nothing_bad, sentence_of
from dumpstream.diagnosis.slices import with_proven_slices
from dumpstream.diagnosis.subject import Subject, overflowed, read_subject, refuse_nothing
from dumpstream.system.location import Prefix, as_location

_BEFORE = 20  #: operators that are told before the suspect
_HISTORY = 5  #: earlier steps of the same operator


def diagnose(
    path: str | os.PathLike[str] | Prefix,
    *,
    look_for: Iterable[Badness | str] = DEFAULT,
    ranks: Sequence[int] = (),
    hosts: Sequence[str] = (),
    golden: str | os.PathLike[str] | Prefix | None = None,
    every: bool = False,
) -> Diagnosis:
    """Return where the first bad values of the run at *path* were made, and how they spread.

    Args:
        path: a capture (directory or URL, also while it grows), a directory of dump files, or a table of
            statistics.
        look_for: what is bad: some of `Badness`.
        ranks: only the processes of these, in a capture of several; by default all.
        hosts: only these, of a job of several; by default all.
        golden: a run that it should agree with: where it does not is bad, too.
        every: also the origins that are independent of the first.

    Raises:
        DumpstreamError: there is no run, it has no tensors, or its operators were not dumped as they ran.
        ValueError: *look_for* names something else, or a divergence from no run.
    """
    kinds = [Badness(kind) for kind in look_for]
    if Badness.DIVERGENCE in kinds and golden is None:
        raise ValueError("look_for='divergence' needs a golden run")
    subject = read_subject(as_location(path), ranks, hosts)
    refuse_nothing(subject)
    evidence = examine(subject, kinds, None if golden is None else as_location(golden))
    return answer(subject, evidence, find_origins(evidence), every=every)


def examine(
    subject: Subject,
    look_for: Sequence[Badness] = DEFAULT,
    golden: Path | Prefix | None = None,
    *,
    read_bytes: bool = True,
) -> Evidence:
    """Return what the dump of *subject* says about bad values, beside that of a *golden* run.

    *read_bytes* of tensors that hashes say nothing about, if the capture has them.
    """
    divergence = None if golden is None else find_divergence(subject.path, golden, subject.trace)

    def others(executions: Executions) -> dict[Badness, Mask]:
        found = {}
        if Badness.OVERFLOW in look_for:
            found[Badness.OVERFLOW] = overflowed(subject.trace, executions, subject.records)
            if subject.only_overflows:
                found[Badness.OVERFLOW][executions.outputs.rows] = True
        if divergence is not None:
            found[Badness.DIVERGENCE] = divergence.different
        return found

    kinds = [*look_for] if divergence is None else [*dict.fromkeys([*look_for, Badness.DIVERGENCE])]
    compared = None if divergence is None else divergence.compared
    evidence = gather(
        subject.trace,
        kinds,
        others=others,
        compared=compared,
        hidden=subject.hidden,
        lossy=subject.lossy,
    )
    return with_proven_slices(subject, evidence) if read_bytes else evidence


def answer(
    subject: Subject,
    evidence: Evidence,
    origins: Origins,
    *,
    every: bool = False,
    read_bytes: bool = True,
) -> Diagnosis:
    """Return what *origins* mean.

    *read_bytes*, if the capture has them, for the place of the first bad element, and for the names of
    operators before the runtime wrote them into names of files.
    """
    missing = (*limits_of(evidence), *subject.missing)
    if not origins.found and subject.unmatched and Badness.OVERFLOW in evidence.findings.kinds:
        told = [report_unmatched(it) for it in subject.unmatched]
        sentence = sentence_of(told[0], concurrent=1, stayed=False)
        wanted = tuple(told if every else told[:1])
        return Diagnosis(found=True, sentence=sentence, origins=wanted, missing=missing)
    if not origins.found:
        sentence = nothing_bad(evidence.findings.kinds, len(subject.trace))
        return Diagnosis(found=False, sentence=sentence, missing=missing)
    first, *_ = origins.found
    told = []
    for it in origins.found if every else origins.found[:1]:
        place = first_bad_element(subject, evidence, it.row) if read_bytes else None
        spread = find_spread(evidence, origins, it)
        told.append(
            replace(report_origin(evidence, it, spread, gaps_before(evidence, it)), first_index=place)
        )
    several = len({(it.host, it.rank) for it in subject.trace.processes}) > 1
    stayed = several and origins.unexplained <= {int(evidence.executions.process[first.execution])}
    return Diagnosis(
        found=True,
        sentence=sentence_of(
            told[0], _inputs(evidence, first), concurrent=len(origins.concurrent), stayed=stayed
        ),
        origins=tuple(told),
        evidence=_evidence_of(evidence, first),
        later=origins.later,
        missing=missing,
        next_config=next_config(evidence, first, subject if read_bytes else None),
    )


def _evidence_of(evidence: Evidence, origin: Origin) -> EvidenceReport:
    executions, number = evidence.executions, origin.execution
    same_process = executions.process == executions.process[number]
    before = [it for it in same_process.nonzero()[0].tolist() if it < number]
    name = (executions.op_name == executions.op_name[number]) & (
        executions.op_type == executions.op_type[number]
    )
    history = [it for it in (same_process & name).nonzero()[0].tolist() if it < number]
    return EvidenceReport(
        tensors=tuple(report_tensor(evidence, row) for row in _rows(evidence, [number])),
        before=tuple(
            report_tensor(evidence, row) for it in before[-_BEFORE:] for row in executions.outputs.of(it)
        ),
        history=tuple(report_tensor(evidence, row) for row in _rows(evidence, history[-_HISTORY:])),
    )


def _inputs(evidence: Evidence, origin: Origin) -> list[TensorReport]:
    return [report_tensor(evidence, row) for row in evidence.executions.inputs.of(origin.execution)]


def _rows(evidence: Evidence, numbers: Iterable[int]) -> list[int]:
    slots = (evidence.executions.inputs, evidence.executions.outputs)
    return [row for number in numbers for slot in slots for row in slot.of(number)]
