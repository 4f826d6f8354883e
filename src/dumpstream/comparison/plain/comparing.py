"""Comparing plain pairs: many small files with one native call, and every other file by itself."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream._native import PAIR_ROW, compare_files
from dumpstream.comparison.divergence import Finding
from dumpstream.comparison.dumpelements import is_blocked
from dumpstream.comparison.examination import Examination, finding_of
from dumpstream.comparison.execution import Execution, Pair
from dumpstream.comparison.judgement import judge
from dumpstream.comparison.metrics import metrics_of, native_side
from dumpstream.comparison.pairs.catalog import CatalogFile, content_row
from dumpstream.comparison.pairs.members import ExecutionRow, Members, pair_both
from dumpstream.comparison.plain.block import PairBlock
from dumpstream.comparison.plain.listing import PlainFiles
from dumpstream.comparison.plain.pairing import PlainPairs
from dumpstream.comparison.plain.verdicts import AGREEMENTS, verdicts_of
from dumpstream.comparison.precision import is_numeric
from dumpstream.comparison.sides.source import PathSource
from dumpstream.format.dtypes import DTYPES
from dumpstream.format.formats import FORMATS
from dumpstream.statistics.kernels import encoding_of
from dumpstream.system.batches import run_batches

#: Fewer executions in a block take longer, and more let threads wait for the last one.
_LEAST_EXECUTIONS, _MOST_EXECUTIONS = 64, 512
_BLOCKS = 8  #: if there are enough executions
_RECORD: np.dtype[Any] = np.dtype(PAIR_ROW)  # type: ignore[call-overload]  # numpy has no type for a layout
_TYPES = [
    (number, encoding.components, native_side(dtype, packed=False))
    for number, dtype in DTYPES.items()
    if is_numeric(dtype) and (encoding := encoding_of(number, packed=False)) and encoding.table is None
]
_ARRANGED = [number for number, it in FORMATS.items() if is_blocked(it.name)]


class ComparedBlock(NamedTuple):
    """A block with the verdicts of its records, and what was found of the executions without records."""

    block: PairBlock
    verdicts: NDArray[np.int8]
    others: dict[int, list[Finding]]
    bytes: int  #: of the elements that were compared, of both sides


class PlainComparison:
    """Compares *pairs*."""

    def __init__(self, pairs: PlainPairs, examination: Examination) -> None:
        self._pairs, self._examination = pairs, examination
        self._kl = examination.kl or examination.limits.base.needs_kl
        self._sources = PathSource(0)
        self._block = min(max(len(pairs) // _BLOCKS, _LEAST_EXECUTIONS), _MOST_EXECUTIONS)

    def blocks(self, workers: int | None) -> Generator[ComparedBlock, None, None]:
        """Yield all executions, in order, many at a time."""
        starts = range(0, len(self._pairs), self._block)
        compared = run_batches(self._compared, starts, bytes_of=lambda _: 0, most_items=1, workers=workers)
        with closing(compared):
            for block, verdicts in compared:
                others = {} if not block.others else self._others(block, workers)
                size = int(block.records["size"].sum() + block.records["golden_size"].sum())
                size += sum(_bytes_of(found) for found in others.values())
                yield ComparedBlock(block, verdicts, others, size)

    def findings(self, block: PairBlock, number: int) -> list[Finding]:
        """Return the findings of an execution that has records."""
        execution = block.execution_of(number)
        limits = self._examination.limits.of(execution.op_name, execution.op_type)
        found = []
        for row in block.rows_of(number):
            pair = block.pair(execution, number, row)
            mine, golden = block.dtypes(row)
            metrics = metrics_of(block.found(row), mine, golden, block.shape(row))
            found.append(finding_of(execution, pair, judge(metrics, mine, golden, limits), metrics))
        return found

    def _compared(self, starts: Sequence[int]) -> list[tuple[PairBlock, NDArray[np.int8]]]:
        (start,) = starts
        pairs = self._pairs
        stop = min(start + self._block, len(pairs))
        mine, golden = (files[start:stop].tolist() for files in pairs.files)
        ours, theirs = pairs.mine.paths(mine), pairs.golden.paths(golden)
        for number in range(start, stop) if pairs.several else ():
            if number in pairs.several:
                ours[number - start] = ""  # is not a file
        taken, records, *shapes = compare_files(ours, theirs, _TYPES, _ARRANGED, self._kl)
        block = PairBlock(
            pairs,
            start,
            np.frombuffer(taken, np.bool_),
            np.frombuffer(records, _RECORD),
            (np.frombuffer(shapes[0], np.uint64), np.frombuffer(shapes[1], np.uint64)),
        )
        return [(block, self._verdicts(block))]

    def _verdicts(self, block: PairBlock) -> NDArray[np.int8]:
        limits = self._examination.limits
        verdicts, unclear = verdicts_of(block.records, limits.base)
        if limits.base.metrics or limits.rules:
            unclear = np.ones(len(verdicts), np.bool_)
        for number in np.unique(block.execution[unclear]).tolist():
            rows = block.rows_of(number)
            found = self.findings(block, number)
            verdicts[rows.start : rows.stop] = [AGREEMENTS.index(it.row.verdict) for it in found]
        return verdicts

    def _others(self, block: PairBlock, workers: int | None) -> dict[int, list[Finding]]:
        executions = [self._execution(block, number) for number in block.others]
        examined = run_batches(
            lambda some: [self._examination.findings_of(it) for it in some],
            executions,
            bytes_of=_size_of,
            workers=workers,
        )
        return dict(zip(block.others, examined, strict=True))

    def _execution(self, block: PairBlock, number: int) -> Execution:
        """Return an execution whose tensors take a closer look."""
        pairs, place = self._pairs, block.start + number
        execution = block.execution_of(number)
        files = pairs.several.get(place) or tuple([int(it[place])] for it in pairs.files)
        mine, golden = (
            self._members(execution, side, some, place + 1)
            for side, some in zip((pairs.mine, pairs.golden), files, strict=True)
        )
        return replace(execution, pairs=[*pair_both(mine, golden, None, guess=False)])

    def _members(self, execution: Execution, side: PlainFiles, files: Sequence[int], place: int) -> Members:
        entries = self._sources.entries([side.input(file) for file in files])
        found = {
            number: CatalogFile._make(content_row(number, entry))
            for number, entry in enumerate(entries)
            if entry is not None
        }
        row = ExecutionRow(
            place,
            0,
            0,
            execution.rank,
            execution.model,
            execution.step,
            execution.op_type,
            execution.op_name,
            execution.occurrence,
            ",".join(map(str, found)),
        )
        return Members([self._sources], row, found, place)


def _size_of(execution: Execution) -> int:
    return _bytes_of(execution.pairs)


def _bytes_of(found: Iterable[Pair | Finding]) -> int:
    tensors = (it for one in found for it in (one.mine, one.golden) if it is not None)
    return sum(it.size or 0 for it in tensors)
