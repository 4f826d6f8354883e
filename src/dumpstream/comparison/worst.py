"""Worst rows: the few rows of a comparison that agree least, whatever their number."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream.comparison.divergence import BY_SEVERITY, severity
from dumpstream.comparison.plain.block import PairBlock
from dumpstream.comparison.plain.comparing import ComparedBlock
from dumpstream.comparison.plain.verdicts import DIFFERENT
from dumpstream.comparison.table import Agreement, ComparisonRow

_AGREE = {Agreement.IDENTICAL, Agreement.CLOSE}
_SEVERE = BY_SEVERITY.index(Agreement.DIFFERENT)

#: Returns the rows of an execution of a block, by its number.
RowsOf = Callable[[int], list[ComparisonRow]]


class _Kept(NamedTuple):
    """A row, or how to make it; the worst is the largest, and of two that are as bad, the first."""

    severity: tuple[int, int, float]
    place: tuple[int, int]  #: in the run, negative: the execution, and the row in it
    make: Callable[[], ComparisonRow]


class WorstRows:
    """Keeps *most* rows, of which a block makes only those that are kept in the end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[_Kept] = []
        self._count = 0  #: of the executions and rows so far

    def rows(self) -> list[ComparisonRow]:
        """Return them, the worst first."""
        return [it.make() for it in sorted(self._kept, key=lambda it: it[:2], reverse=True)]

    def add(self, row: ComparisonRow) -> None:
        """Take the next row, which does not agree."""
        self._count += 1
        self._keep(severity(row), (-self._count, 0), partial(_same, row))

    def add_block(
        self, compared: ComparedBlock, others: Mapping[int, list[ComparisonRow]], rows_of: RowsOf
    ) -> None:
        """Take the next executions; *others* are the rows of those that have no records."""
        for execution, rows in others.items():
            for number, row in enumerate(rows):
                if row.verdict not in _AGREE:
                    place = -self._count - execution, -number
                    self._keep(severity(row), place, partial(_same, row))
        block = compared.block
        found = np.flatnonzero(compared.verdicts == DIFFERENT)
        if len(found):
            self._add_records(block, found, rows_of)
        self._count += block.count

    def _add_records(self, block: PairBlock, found: NDArray[np.intp], rows_of: RowsOf) -> None:
        unlike, errors = block.unlike[found].astype(np.int64), block.errors[found]
        errors[~np.isfinite(errors)] = math.inf
        errors[block.records["finite"][found] == 0] = -1.0
        if len(self._kept) == self._most:
            _, least, error = self._kept[0].severity
            worse = (unlike > least) | ((unlike == least) & (errors >= error))
            found, unlike, errors = found[worse], unlike[worse], errors[worse]
        for at in np.lexsort((np.arange(len(found)), -errors, -unlike))[: self._most].tolist():
            record = int(found[at])
            execution = int(block.execution[record])
            number = record - block.rows_of(execution).start
            key = _SEVERE, int(unlike[at]), float(errors[at])
            place = -self._count - execution, -number
            if not self._keep(key, place, partial(_made, rows_of, execution, number)):
                break

    def _keep(
        self, key: tuple[int, int, float], place: tuple[int, int], make: Callable[[], ComparisonRow]
    ) -> bool:
        """Keep a row if it is one of the worst; return whether it is."""
        kept = _Kept(key, place, make)
        if len(self._kept) < self._most:
            heapq.heappush(self._kept, kept)
            return True
        if kept[:2] < self._kept[0][:2]:
            return False
        heapq.heapreplace(self._kept, kept)
        return True


def _made(rows_of: RowsOf, execution: int, number: int) -> ComparisonRow:
    return rows_of(execution)[number]


def _same(row: ComparisonRow) -> ComparisonRow:
    return row
