"""Details: everything that a page shows of one tensor, when it is opened."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dumpstream._errors import DumpstreamError
from dumpstream.analysis.description import describe
from dumpstream.analysis.preview import count_exponents
from dumpstream.codec import without_suffix
from dumpstream.diagnosis.answer import answer, examine
from dumpstream.diagnosis.dataflow.flow import Link
from dumpstream.diagnosis.dataflow.trace import UNKNOWN, Trace
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.origins import find_origins
from dumpstream.diagnosis.subject import Subject
from dumpstream.reading.inputs import Input, find_inputs, is_capture
from dumpstream.statistics.table import json_value
from dumpstream.system.location import Prefix

_MOST_NEIGHBOURS = 20
_MOST_BINS = 48
_IO = ("input", "output", "buffer", "space")


class Said(NamedTuple):
    """The sentence about a run."""

    sentence: str | None = None  #: None if nothing is bad
    origin: int | None = None  #: the row that it is about


@dataclass(frozen=True, eq=False)
class Details:
    """The tensors of a run as they were when it was read, and their data flow."""

    subject: Subject
    evidence: Evidence

    @property
    def trace(self) -> Trace:
        return self.subject.trace

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
            "extract": self._extract(row),
        }

    def said(self) -> Said:
        """Return what `diagnose` says of the run."""
        origins = find_origins(self.evidence)
        diagnosis = answer(self.subject, self.evidence, origins)
        return Said(diagnosis.sentence, origins.found[0].row) if diagnosis.found else Said()

    def content(self, row: int) -> dict[str, Any]:
        """Return what the stored bytes of the tensor that is *row* say: header, histogram and values.

        Raises:
            DumpstreamError: the file cannot be read.
            LookupError: there is no such row.
        """
        item = self._input(row)
        described = describe(item)
        io, index = _IO[int(self.trace.io[row])], self.trace.number("index", row)
        tensors = described.pop("tensors")
        found = next((it for it in tensors if (it["io"], it["index"]) == (io, index)), None)
        if found is not None and found["histogram"] is not None:
            found["exponents"] = _exponents(item, io, index)
        return {"header": described, "tensor": found}

    def _input(self, row: int) -> Input:
        self._check(row)
        name = self.trace.text("file", row) or ""
        path = self.subject.path
        process = self.trace.processes[int(self.trace.process[row])]
        ranks = [] if process.rank is None or not is_capture(path) else [process.rank]
        # A name may also be a pattern that others match.
        hosts = [] if process.host is None or not is_capture(path) else [process.host]
        inputs = find_inputs([path], ranks, [_below(path, name)], hosts=hosts)
        found = (it for it in inputs if name in {it.name, it.label})
        item = next(found, None)
        if item is None:
            raise DumpstreamError(f"{name} is not in {path}")
        return item

    def _check(self, row: int) -> None:
        if not 0 <= row < len(self.trace) or self.evidence.executions.of_row[row] == UNKNOWN:
            raise LookupError(f"there is no tensor {row}")

    def _extract(self, row: int) -> str | None:
        """Return the command that extracts the file; None if the run is not a capture."""
        if not is_capture(self.subject.path):
            return None
        name = _escaped(self.trace.text("file", row) or "")
        return shlex.join(["dumpstream", "extract", str(self.subject.path), name, "--out", "dumps"])

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


def details_of(subject: Subject) -> Details:
    """Find out how the tensors of *subject* belong together."""
    return Details(subject, examine(subject))


def _below(path: Path | Prefix, name: str) -> str:
    """Return the name by which `find_inputs` knows the file that is called *name* in statistics."""
    if is_capture(path) or not Path(name).is_relative_to(str(path)):
        return name
    return without_suffix(str(Path(name).relative_to(str(path))))


def _exponents(item: Input, io: str, index: int | None) -> dict[str, Any] | None:
    with item.open() as dump:
        for tensor in dump.tensors:
            if (tensor.io, tensor.index) == (io, index):
                return count_exponents(dump.elements(tensor), _MOST_BINS)._asdict()
    return None


def _real(value: float) -> Any:
    return None if np.isnan(value) else json_value(float(value))


def _escaped(name: str) -> str:
    """Return a pattern that only *name* matches."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
