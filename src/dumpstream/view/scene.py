"""Scene: everything that a page shows of a run at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dumpstream._errors import DumpstreamError
from dumpstream.analysis.description import describe
from dumpstream.diagnosis.answer import answer, examine
from dumpstream.diagnosis.dataflow.flow import Link
from dumpstream.diagnosis.dataflow.trace import UNKNOWN, Trace
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.origins import find_origins
from dumpstream.diagnosis.subject import Subject, read_subject
from dumpstream.format.opname import parse_name
from dumpstream.reading.collection import Collection
from dumpstream.reading.inputs import find_inputs, is_capture
from dumpstream.statistics.table import json_value
from dumpstream.system.location import Prefix
from dumpstream.view.cells import Cells, Operator, cells_of
from dumpstream.view.packing import pack

_MOST_LOST = 10_000  #: cells of files that are not whole
_MOST_NEIGHBOURS = 20
_IO = ("input", "output", "buffer", "space")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Scene:
    """A run as it was when it was read."""

    subject: Subject
    evidence: Evidence
    cells: Cells
    sentence: str | None  #: what `diagnose` says, if something is bad
    origin: int | None  #: the row that it is about
    lost: list[tuple[int, int, int]]  #: process, step and operator of files that are not whole, as numbers

    @property
    def trace(self) -> Trace:
        return self.subject.trace

    def packed(self, status: dict[str, Any], *, details: dict[str, Any] | None = None) -> bytes:
        """Return what the page draws, with the *status* of the run, and the *details* of some tensors."""
        header = {
            "details": details,
            "status": status,
            "sentence": self.sentence,
            "origin": self.origin,
            "missing": list(self.subject.missing[:100]),
            "processes": self.cells.processes,
            "operators": self.cells.operators,
            "steps": self.cells.steps,
            "lost": self.lost,
        }
        return pack(header, self.cells.columns)

    def tensor(self, row: int) -> dict[str, Any]:
        """Return what is known of the tensor that is *row* of the trace, as JSON can hold it.

        Raises:
            LookupError: there is no such row.
        """
        trace = self.trace
        self._check(row)
        shape = trace.shapes[int(trace.shape[row])]
        numbers = ("count", "nan", "pos_inf", "neg_inf", "zero", "size", "task", "stream", "timestamp")
        reals = ("finite_max", "finite_min", "mean", "std", "l2norm", "saturated")
        return {
            "file": trace.text("file", row),
            "dtype": trace.text("dtype", row),
            "problem": trace.text("problem", row),
            "shape": None if shape is None else [*shape],
            "address": f"{int(trace.address[row]):#x}" if trace.address[row] else None,
            **{name: trace.number(name, row) for name in numbers},
            **{name: _real(trace.reals[name][row]) for name in reals},
            "from": [
                self._neighbour(it.row, it.link)
                for it in self.evidence.flow.sources_of(row)[:_MOST_NEIGHBOURS]
            ],
            "to": [*self._readers(row)],
        }

    def content(self, row: int) -> dict[str, Any]:
        """Return what the stored bytes of the tensor that is *row* say: header, histogram and values.

        Raises:
            DumpstreamError: the file cannot be read.
            LookupError: there is no such row.
        """
        self._check(row)
        name = self.trace.text("file", row) or ""
        process = self.trace.processes[int(self.trace.process[row])]
        ranks = [] if process.rank is None or not is_capture(self.subject.path) else [process.rank]
        item = next(find_inputs([self.subject.path], ranks, [_escaped(name)]), None)
        if item is None:
            raise DumpstreamError(f"{name} is not in {self.subject.path}")
        described = describe(item)
        io, index = _IO[int(self.trace.io[row])], self.trace.number("index", row)
        tensors = described.pop("tensors")
        found = next((it for it in tensors if (it["io"], it["index"]) == (io, index)), None)
        return {"header": described, "tensor": found}

    def _check(self, row: int) -> None:
        if not 0 <= row < len(self.trace) or self.evidence.executions.of_row[row] == UNKNOWN:
            raise LookupError(f"there is no tensor {row}")

    def _readers(self, row: int) -> Iterator[dict[str, Any]]:
        flow = self.evidence.flow
        for edge in np.flatnonzero(flow.sources == row)[:_MOST_NEIGHBOURS].tolist():
            yield self._neighbour(int(flow.readers[edge]), Link(flow.links[edge]))

    def _neighbour(self, row: int, link: Link) -> dict[str, Any]:
        trace = self.trace
        return {
            "row": row,
            "op_name": trace.text("op_name", row),
            "io": _IO[int(trace.io[row])],
            "index": trace.number("index", row),
            "step": trace.number("iteration", row),
            "proven": link is Link.PROVEN,
        }


def read_scene(
    path: Path | Prefix, ranks: Sequence[int] = (), *, progress: Progress = lambda *_: None
) -> Scene:
    """Read the run at *path*.

    Raises:
        DumpstreamError: there is no run, or its operators were not dumped as they ran.
    """
    subject = read_subject(path, ranks, progress=progress)
    evidence = examine(subject)
    origins = find_origins(evidence)
    diagnosis = answer(subject, evidence, origins)
    cells = cells_of(subject.trace, evidence.executions)
    lost = _lost(path, ranks, subject.trace, cells)
    sentence, origin = (diagnosis.sentence, origins.found[0].row) if diagnosis.found else (None, None)
    return Scene(subject, evidence, cells, sentence, origin, lost)


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


def _real(value: float) -> Any:
    return None if np.isnan(value) else json_value(float(value))


def _escaped(name: str) -> str:
    """Return a pattern that only *name* matches."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
