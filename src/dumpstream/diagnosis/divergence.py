"""Divergence: which tensors of a run are not what a golden run has."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from dumpstream.comparison.comparison import compare
from dumpstream.comparison.table import Agreement, ComparisonRow
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
    rows = RowsOfFiles(trace)
    different = np.zeros(len(trace), np.bool_)
    compared = np.zeros(len(trace), np.bool_)
    with compare(path, golden) as comparison:
        for it in comparison:
            row = rows.find(it)
            if row is not None and it.verdict in _COMPARED:
                compared[row] = True
                different[row] = it.verdict is Agreement.DIFFERENT
    return Divergence(different, compared)


class RowsOfFiles:
    """Finds the rows of a trace that a comparison tells of, without a key for each of them."""

    def __init__(self, trace: Trace) -> None:
        self._codes = {text: code for code, text in enumerate(trace.texts["file"])}
        codes = trace.codes["file"]
        self._order = np.argsort(codes, kind="stable")
        self._starts = np.searchsorted(codes[self._order], np.arange(len(self._codes) + 1))
        self._io, self._index = trace.io, trace.counts["index"]

    def find(self, row: ComparisonRow) -> int | None:
        """Return the number of the row that *row* is about; None if it is of the other run alone."""
        code = self._codes.get(row.mine)
        if code is None:
            return None
        io = _IO.get(row.io or "", -1)
        for found in self._order[self._starts[code] : self._starts[code + 1]].tolist():
            if self._io[found] == io and self._index[found] == row.index:
                return int(found)
        return None
