"""PairBlock: executions of two directories, compared: their records, of which rows are made if asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream._native import PAIR_ROW
from dumpstream.comparison.divergence import is_collective
from dumpstream.comparison.execution import Execution, Pair
from dumpstream.comparison.plain.pairing import PlainPairs
from dumpstream.comparison.plain.verdicts import (
    DIFFERENT,
    Doubles,
    Records,
    Roles,
    errors_of,
    not_finite,
    roles_of,
)
from dumpstream.comparison.sidetensor import Identity, SideTensor
from dumpstream.comparison.table import Role
from dumpstream.format.dtypes import DType, dtype_of
from dumpstream.format.formats import format_of
from dumpstream.format.header import IO
from dumpstream.statistics.table import Number

_IOS = tuple(io.value for io in IO)
_NO_ELEMENT = (1 << 64) - 1


class _Found(NamedTuple):
    """What one record says, as `ComparisonSummary` has it."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    finite: int
    nan_both: int
    nan_mine: int
    nan_golden: int
    inf_differs: int
    bit_equal: int
    beyond_1: int
    beyond_5: int
    xx: float
    yy: float
    xy: float
    errors: float
    squares: float
    rmse: float
    relative: float
    max_relative: float
    mean: float
    golden_mean: float
    std: float
    golden_std: float
    max_error: Number
    max_ulp: float | None
    worst: int | None
    worst_mine: Number | None
    worst_golden: Number | None
    kl: float | None


_PLACE = {name: place for place, name in enumerate(np.dtype(PAIR_ROW).names or ())}  # type: ignore[call-overload]
_FOUND = len(_Found._fields)  #: a record begins with them
assert [*_PLACE][:_FOUND] == [*_Found._fields]


class PairBlock:
    """Executions *start* and following of *pairs*; some of them were not compared natively.

    Attributes:
        start: the first execution.
        count: how many there are.
        records: of the tensors, one execution after the other.
        execution: the number of the execution in the block, for each record.
        others: the numbers of the executions that have no records.
    """

    def __init__(
        self,
        pairs: PlainPairs,
        start: int,
        taken: NDArray[np.bool_],
        records: Records,
        shapes: tuple[NDArray[np.uint64], NDArray[np.uint64]],
    ) -> None:
        self._pairs, self.start, self.count = pairs, start, len(taken)
        self.records, self._shapes = records, shapes
        self._values: dict[int, tuple[Any, ...]] = {}  # records that were read
        self.execution = records["pair"].astype(np.intp)
        self.others: list[int] = np.flatnonzero(~taken).tolist()

    @cached_property
    def errors(self) -> Doubles:
        """`rel` of each record; NaN if no pair of elements is finite."""
        return errors_of(self.records)

    @cached_property
    def unlike(self) -> NDArray[np.uint64]:
        """How many elements of each record have a NaN or an infinity on one side only."""
        return not_finite(self.records)

    @cached_property
    def _rows(self) -> NDArray[np.intp]:
        """Where the records of each execution begin, and the end of the last."""
        return np.searchsorted(self.execution, np.arange(self.count + 1))

    @cached_property
    def _ends(self) -> tuple[list[int], list[int]]:
        return np.cumsum(self.records["dims"]).tolist(), np.cumsum(self.records["original_dims"]).tolist()

    def _value(self, row: int) -> tuple[Any, ...]:
        """Return a record as a tuple, which is read faster."""
        found = self._values.get(row)
        if found is None:
            found = self._values[row] = self.records[row].tolist()
        return found

    def runs(self) -> Iterator[tuple[int, int, int | None, int | None]]:
        """Yield executions that follow each other in one step of a rank: first, end, rank and step."""
        scope = self._pairs.scope[self.start : self.start + self.count]
        edges = [0, *(np.flatnonzero(scope[1:] != scope[:-1]) + 1).tolist(), self.count]
        for first, end in pairwise(edges):
            rank, _, step = self._pairs.scopes[scope[first]]
            yield first, end, rank, step

    def rows_of(self, execution: int) -> range:
        """Return which records are of the tensors of *execution*."""
        return range(int(self._rows[execution]), int(self._rows[execution + 1]))

    def execution_of(self, execution: int) -> Execution:
        """Return an execution without its pairs."""
        pairs, number = self._pairs, self.start + execution
        rank, model, step = pairs.scopes[pairs.scope[number]]
        origin = pairs.mine.origin(int(pairs.files[0][number]))
        return Execution(
            rank=rank,
            model=model,
            step=step,
            op_type=origin.op_type,
            op_name=origin.op_name,
            occurrence=int(pairs.occurrence[number]),
        )

    def pair(self, execution: Execution, number: int, row: int) -> Pair:
        """Return the tensors of a record of *execution*, whose number in the block is *number*."""
        mine, golden = (self._tensor(execution, number, row, side) for side in (0, 1))
        return Pair(mine, golden)

    def found(self, row: int) -> Any:
        """Return what a record says, as `ComparisonSummary` has it."""
        record = self._value(row)
        found = _Found._make(record[:_FOUND])
        if record[_PLACE["is_integer"]]:
            exact = (_integer(record[_PLACE[name]]) for name in ("exact_max", "exact_mine", "exact_golden"))
            largest, mine, golden = exact
            found = found._replace(max_error=largest, worst_mine=mine, worst_golden=golden)
        if found.worst == _NO_ELEMENT:
            found = found._replace(worst=None, worst_mine=None, worst_golden=None)
        if not record[_PLACE["has_ulp"]]:
            found = found._replace(max_ulp=None)
        return found if record[_PLACE["has_kl"]] else found._replace(kl=None)

    def dtypes(self, row: int) -> tuple[DType, DType]:
        """Return the types of both tensors of a record."""
        record = self._value(row)
        return dtype_of(record[_PLACE["data_type"]]), dtype_of(record[_PLACE["golden_data_type"]])

    def shape(self, row: int, *, original: bool = False) -> tuple[int, ...]:
        """Return the shape of a tensor, or its *original* one."""
        end = self._ends[original][row]
        dims = self._value(row)[_PLACE["original_dims" if original else "dims"]]
        return tuple(self._shapes[original][end - dims : end].tolist())

    def differing(self, verdicts: NDArray[np.int8]) -> list[int]:
        """Return the executions of which a record has the verdict *different*."""
        found: list[int] = np.unique(self.execution[verdicts == DIFFERENT]).tolist()
        return found

    def roles(self, verdicts: NDArray[np.int8]) -> Roles:
        """Return the roles of the executions that have records."""
        return roles_of(
            self.records, self.execution, verdicts, self.count, errors=self.errors, unlike=self.unlike
        )

    def count_roles(self, roles: Roles, first: int, end: int) -> Mapping[Role, int]:
        """Return how many executions whose outputs differ have which role."""
        found: Counter[Role] = Counter()
        counted = np.flatnonzero(roles.counted[first:end]) + first
        inherits, added = roles.inherits[counted], roles.added[counted]
        names, files = self._pairs.mine.names, self._pairs.files[0][self.start + counted[added]]
        collectives = sum(is_collective(names[file]) for file in files.tolist())
        found[Role.INHERITED] = int(inherits.sum())
        found[Role.ADDED] = int(added.sum()) - collectives
        found[Role.UNDECIDED] = len(counted) - found[Role.INHERITED] - found[Role.ADDED]
        return +found

    def _tensor(self, execution: Execution, number: int, row: int, side: int) -> SideTensor:
        record, prefix = self._value(row), "golden_" if side else ""
        files = self._pairs.golden if side else self._pairs.mine
        it = execution
        io, index = _IOS[record[_PLACE["io"]]], record[_PLACE["index"]]
        shape = self.shape(row)
        return SideTensor(
            identity=Identity(it.rank, it.model, it.step, it.op_type, it.op_name, io, index, it.occurrence),
            place=self.start + number + 1,
            file=files.path(int(self._pairs.files[side][self.start + number])),
            dtype=self.dtypes(row)[side].short,
            format=format_of(record[_PLACE["format"]]).name,
            shape=shape,
            original_shape=self.shape(row, original=True),
            count=math.prod(shape),
            size=record[_PLACE[f"{prefix}size"]],
            address=record[_PLACE[f"{prefix}address"]],
        )


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)
