"""Divergence: which tensors of a run are not what a golden run has."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from dumpstream.comparison.comparison import compare
from dumpstream.comparison.table import Agreement
from dumpstream.diagnosis.dataflow.trace import Mask, Trace
from dumpstream.format.header import IO
from dumpstream.system.location import Prefix

_COMPARED = {Agreement.IDENTICAL, Agreement.CLOSE, Agreement.DIFFERENT}
_IO = {str(io): number for number, io in enumerate(IO)}


class Divergence(NamedTuple):
    """What a comparison with a golden run says of the rows of a trace."""

    different: Mask
    compared: Mask  #: the others have no counterpart, or cannot be read


def find_divergence(
    path: os.PathLike[str] | Prefix, golden: os.PathLike[str] | Prefix, trace: Trace
) -> Divergence:
    """Compare the run at *path*, whose rows are those of *trace*, with the *golden* one.

    Raises:
        DumpstreamError: the golden run cannot be read, or has nothing in common with the other.
    """
    files = {text: code for code, text in enumerate(trace.texts["file"])}
    columns = (trace.codes["file"], trace.io, trace.counts["index"])
    rows = {key: row for row, key in enumerate(zip(*(it.tolist() for it in columns), strict=True))}
    different = np.zeros(len(trace), np.bool_)
    compared = np.zeros(len(trace), np.bool_)
    with compare(path, golden) as comparison:
        for it in comparison:
            key = (files.get(it.mine, -1), _IO.get(it.io or "", -1), it.index)
            row = rows.get(key)
            if row is not None and it.verdict in _COMPARED:
                compared[row] = True
                different[row] = it.verdict is Agreement.DIFFERENT
    return Divergence(different, compared)
