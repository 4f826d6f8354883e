"""Scene: everything that a page shows of a run at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dumpstream.diagnosis.answer import answer
from dumpstream.diagnosis.dataflow.trace import Trace
from dumpstream.diagnosis.origins import find_origins
from dumpstream.format.opname import parse_name
from dumpstream.reading.collection import Collection
from dumpstream.reading.inputs import is_capture
from dumpstream.system.location import Prefix
from dumpstream.view.cells import Cells, Operator, cells_of
from dumpstream.view.details import Details, Progress, read_details
from dumpstream.view.packing import pack

_MOST_LOST = 10_000  #: cells of files that are not whole


@dataclass(frozen=True, eq=False)
class Scene:
    """A run as it was when it was read."""

    details: Details
    cells: Cells
    sentence: str | None  #: what `diagnose` says, if something is bad
    origin: int | None  #: the row that it is about
    lost: list[tuple[int, int, int]]  #: process, step and operator of files that are not whole, as numbers

    def packed(self, status: dict[str, Any], *, opened: dict[str, Any] | None = None) -> bytes:
        """Return what the page draws, with the *status* of the run, and the details of the *opened* rows."""
        header = {
            "details": opened,
            "status": status,
            "sentence": self.sentence,
            "origin": self.origin,
            "missing": list(self.details.subject.missing[:100]),
            "processes": self.cells.processes,
            "operators": self.cells.operators,
            "steps": self.cells.steps,
            "lost": self.lost,
        }
        return pack(header, self.cells.columns)


def read_scene(
    path: Path | Prefix, ranks: Sequence[int] = (), *, progress: Progress = lambda *_: None
) -> Scene:
    """Read the run at *path*.

    Raises:
        DumpstreamError: there is no run, or its operators were not dumped as they ran.
    """
    details = read_details(path, ranks, progress=progress)
    subject, evidence = details.subject, details.evidence
    origins = find_origins(evidence)
    diagnosis = answer(subject, evidence, origins)
    cells = cells_of(subject.trace, evidence.executions)
    lost = _lost(path, ranks, subject.trace, cells)
    sentence, origin = (diagnosis.sentence, origins.found[0].row) if diagnosis.found else (None, None)
    return Scene(details, cells, sentence, origin, lost)


def _lost(
    path: Path | Prefix, ranks: Sequence[int], trace: Trace, cells: Cells
) -> list[tuple[int, int, int]]:
    """Return the places on the map of files that are not whole; an operator that has no row gets one."""
    if not is_capture(path):
        return []
    steps = {step: number for number, step in enumerate(cells.steps)}
    operators = {it: number for number, it in enumerate(cells.operators)}
    processes = {it.rank: number for number, it in enumerate(trace.processes)}
    found: list[tuple[int, int, int]] = []
    for member in Collection.open(path, ranks).members():
        if member.capture is None or not _has_bad(member.capture.totals.verdicts):
            continue
        for file in member.capture.files:
            if file.verdict.whole or len(found) >= _MOST_LOST:
                continue
            said = parse_name(file.name)
            step = said.iteration if said.iteration is not None else file.step
            operator = Operator(said.model, said.op_type, said.op_name)
            process, place = processes.get(member.rank), steps.get(step)
            if process is not None and place is not None and said.op_name is not None:
                if operator not in operators:
                    operators[operator] = len(operators)
                    cells.operators.append(operator)
                found.append((process, place, operators[operator]))
    return found


def _has_bad(verdicts: dict[str, int]) -> bool:
    return any(word not in {"complete", "unparsed"} and count for word, count in verdicts.items())
