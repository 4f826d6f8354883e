"""First element: the coordinates of the first bad element of a tensor, if its bytes are stored."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from dumpstream._errors import DumpstreamError
from dumpstream.diagnosis.badness import Badness
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.subject import Subject
from dumpstream.format.header import IO, Tensor
from dumpstream.reading.dumpfile import DumpFile

_IO = [*IO]


def first_bad_element(subject: Subject, evidence: Evidence, row: int) -> tuple[int, ...] | None:
    """Return where the first bad element of *row* is; None if its bytes are not stored, or do not show it."""
    trace = evidence.trace
    kind = evidence.findings.kind(row)
    name = trace.text("file", row)
    if kind not in {Badness.NAN, Badness.INF} or name is None or trace.text("source", row) != "host":
        return None
    wanted = (_IO[trace.io[row]], trace.number("index", row))
    for dump, _ in subject.open_files([name]):
        with suppress(DumpstreamError, OSError, ValueError), dump:  # the statistics do not need the bytes
            tensor = next((it for it in dump.tensors if (it.io, it.index) == wanted), None)
            return None if tensor is None or not tensor.stored else _first(dump, tensor, kind)
    return None


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
