"""First element: the coordinates of the first bad element of a tensor, if its bytes are stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dumpstream._errors import DumpstreamError
from dumpstream.diagnosis.badness import Badness
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.subject import Subject
from dumpstream.format.header import IO, Tensor
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.inputs import find_inputs

_IO = [*IO]


def first_bad_element(subject: Subject, evidence: Evidence, row: int) -> tuple[int, ...] | None:
    """Return where the first bad element of *row* is; None if its bytes are not stored, or do not show it."""
    trace = evidence.trace
    kind = evidence.findings.kind(row)
    name = trace.text("file", row)
    if kind not in {Badness.NAN, Badness.INF} or name is None or trace.text("source", row) != "host":
        return None
    wanted = (_IO[trace.io[row]], trace.number("index", row))
    try:
        with _open(subject, name) as dump:
            tensor = next((it for it in dump.tensors if (it.io, it.index) == wanted), None)
            return None if tensor is None or not tensor.stored else _first(dump, tensor, kind)
    except (DumpstreamError, LookupError, OSError, ValueError):  # the statistics do not need the bytes
        return None


def _open(subject: Subject, name: str) -> DumpFile:
    """Open the file that rows call *name*; raises `LookupError` if it is not there."""
    if isinstance(subject.path, Path) and Path(name).is_relative_to(subject.path):
        return DumpFile.open(Path(name))
    for item in find_inputs([subject.path], patterns=[name]):
        if item.label == name and item.not_stored is None:
            return item.open()
    raise LookupError(name)


def _first(dump: DumpFile, tensor: Tensor, kind: Badness) -> tuple[int, ...] | None:
    start = 0
    for block in dump.elements(tensor):
        values = block.view(block.real.dtype) if np.iscomplexobj(block) else block
        bad = np.isnan(values) if kind is Badness.NAN else np.isinf(values)
        if bad.any():
            place = start + int(np.argmax(bad)) // (len(values) // max(len(block), 1))
            shape = tensor.shape or (place + 1,)
            return tuple(int(it) for it in np.unravel_index(place, shape))
        start += len(block)
    return None
