"""Scene: everything that the map of a page shows of a run at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dumpstream.diagnosis.dataflow.executions import find_executions
from dumpstream.diagnosis.dataflow.trace import Trace
from dumpstream.diagnosis.subject import Subject, read_subject
from dumpstream.format.opname import parse_name
from dumpstream.reading.collection import Collection
from dumpstream.reading.inputs import is_capture
from dumpstream.system.location import Prefix
from dumpstream.view.cells import Cells, Operator, cells_of
from dumpstream.view.packing import narrowed, pack

_MOST_LOST = 10_000  #: cells of files that are not whole

#: Is told how many files, and how many bytes of them, were read.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Scene:
    """A run as it was when it was read."""

    subject: Subject
    cells: Cells
    lost: list[tuple[int, int, int]]  #: process, step and operator of files that are not whole, as numbers

    def packed(
        self, status: dict[str, Any], columns: Mapping[str, NDArray[Any]] | None = None, **more: Any
    ) -> bytes:
        """Return what the page draws, with the *status* of the run, further *columns*, and *more*."""
        header = {
            "status": status,
            "missing": list(self.subject.missing[:100]),
            "processes": self.cells.processes,
            "operators": self.cells.operators,
            "steps": self.cells.steps,
            "lost": self.lost,
            **more,
        }
        drawn = {name: narrowed(values) for name, values in self.cells.columns.items()}
        return pack(header, {**drawn, **(columns or {})})


def read_scene(
    path: Path | Prefix, ranks: Sequence[int] = (), *, progress: Progress = lambda *_: None
) -> Scene:
    """Read the run at *path*.

    Raises:
        DumpstreamError: there is no run, or its operators were not dumped as they ran.
    """
    subject = read_subject(path, ranks, progress=progress)
    cells = cells_of(subject.trace, find_executions(subject.trace))
    return Scene(subject, cells, _lost(path, ranks, subject.trace, cells))


def _lost(
    path: Path | Prefix, ranks: Sequence[int], trace: Trace, cells: Cells
) -> list[tuple[int, int, int]]:
    """Return the places on the map of files that are not whole; an operator that has no row gets one."""
    if not is_capture(path):
        return []
    steps = {step: number for number, step in enumerate(cells.steps)}
    operators = {it: number for number, it in enumerate(cells.operators)}
    processes = {(it.host, it.rank): number for number, it in enumerate(trace.processes)}
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
            process, place = processes.get((member.host, member.rank)), steps.get(step)
            if process is not None and place is not None and said.op_name is not None:
                if operator not in operators:
                    operators[operator] = len(operators)
                    cells.operators.append(operator)
                found.append((process, place, operators[operator]))
    return found


def _has_bad(verdicts: dict[str, int]) -> bool:
    return any(word not in {"complete", "unparsed"} and count for word, count in verdicts.items())
