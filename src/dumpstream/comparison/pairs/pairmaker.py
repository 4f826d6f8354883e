"""PairMaker: the pairs of each execution, with the reasons of those that are alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import overload

from dumpstream.comparison.execution import Execution, Pair
from dumpstream.comparison.pairs.catalog import Catalog, CatalogFile, Which
from dumpstream.comparison.pairs.correspondence import Correspondence
from dumpstream.comparison.pairs.fusedpairs import FusedPairs
from dumpstream.comparison.pairs.fusion import Fusion
from dumpstream.comparison.pairs.members import ExecutionRow, Members, pair_alone, pair_both
from dumpstream.comparison.sides.origin import clean_operator
from dumpstream.comparison.sides.side import Side

_SIDES = {Which.MINE: "mine", Which.GOLDEN: "the golden"}
_TIMES = {1: "once", 2: "twice"}


class _LaterPairs(Sequence[Pair]):
    """Pairs that *make* returns when they are looked at; there are *count* of them."""

    def __init__(self, make: Callable[[], list[Pair]], count: int) -> None:
        self._make, self._count = make, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | Sequence[Pair]:
        return self._made[index]

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._made)

    @cached_property
    def _made(self) -> list[Pair]:
        return self._make()


class PairMaker:
    """Makes the pairs of two executions, or of one that is alone."""

    def __init__(
        self,
        sides: Mapping[Which, Side],
        correspondence: Correspondence,
        catalog: Catalog,
        fusion: Fusion | None = None,
    ) -> None:
        self._sides, self._correspondence, self._catalog = sides, correspondence, catalog
        self._fused = None if fusion is None else FusedPairs(fusion, sides, correspondence, catalog)

    def make(
        self,
        rows: Mapping[Which, ExecutionRow],
        files: Mapping[int, CatalogFile],
        place: int,
        *,
        guess: bool,
    ) -> Execution:
        """Return the execution that *rows* are, of which there may be one; *place* is that in the order."""
        row = rows[min(rows)]
        both = len(rows) == len(Which) and self._fused is None
        identical = both and _have_same_content(rows, files)
        make = partial(self._pairs, rows, files, place, guess=guess)
        pairs = _LaterPairs(make, _count(row, files)) if identical else make()
        return Execution(
            rank=row.own_rank,
            model=row.own_model,
            step=row.own_step,
            op_type=row.op_type,
            op_name=row.op_name,
            occurrence=row.occurrence,
            pairs=pairs,
            identical=identical,
        )

    def _pairs(
        self,
        rows: Mapping[Which, ExecutionRow],
        files: Mapping[int, CatalogFile],
        place: int,
        *,
        guess: bool,
    ) -> list[Pair]:
        members = {side: Members(self._sides[side].sources, row, files, place) for side, row in rows.items()}
        mine, golden = members.get(Which.MINE), members.get(Which.GOLDEN)
        if self._fused is not None and mine is not None and mine.name in self._fused.fusion and not guess:
            row = rows[Which.MINE]
            absence = self._absence(Which.MINE, row) if golden is None else None
            return [*self._fused.pairs(row, mine, golden, absence)]
        if len(rows) == len(Which):
            called = rows[Which.GOLDEN].op_name
            reason = f"a guess by type and shape: {called} in the golden" if guess else None
            assert mine is not None
            assert golden is not None
            return [*pair_both(mine, golden, reason, guess=guess)]
        ((side, row),) = rows.items()
        alone = [*pair_alone(side, members[side], self._absence(side, row))]
        if side is Which.GOLDEN and self._fused is not None:
            lent = self._fused.is_lent
            alone = [it for it in alone if it.golden is None or not lent(row, it.golden.identity[5:7])]
        return alone

    def _absence(self, side: Which, row: ExecutionRow) -> str:
        """Return why the other side does not have the execution."""
        rank, model, step, _ = self._correspondence
        for dimension, value in ((rank, row.own_rank), (model, row.own_model), (step, row.own_step)):
            if absence := dimension.absence(side, value):
                return absence
        query = "SELECT count(*) FROM executions WHERE operator = ? AND side = ?"
        (times,) = next(self._catalog.ask(query, row.operator, int(side.other)))
        other = _SIDES[side.other]
        if side is Which.GOLDEN and self._fused is not None:
            fused = self._fused.fusion.fused_into(clean_operator(row.op_name or ""))
            if fused is not None:
                return f"mine has it fused into {fused}"
        if times:
            return f"ran {_TIMES.get(times, f'{times} times')} in {other}"
        return f"{other} has no such operator"


def _have_same_content(rows: Mapping[Which, ExecutionRow], files: Mapping[int, CatalogFile]) -> bool:
    """Whether the files of both executions are known to be the same, and all their tensors are whole."""
    mine, golden = rows[Which.MINE].file_ids, rows[Which.GOLDEN].file_ids
    if len(mine) != len(golden):
        return False
    return all(_are_same(files[id_], files[other]) for id_, other in zip(mine, golden, strict=True))


def _are_same(file: CatalogFile, other: CatalogFile) -> bool:
    if not file.whole or file.packed != other.packed:
        return False
    return file.hashed or (file.content is not None and file.content == other.content)


def _count(row: ExecutionRow, files: Mapping[int, CatalogFile]) -> int:
    return sum(files[id_].whole for id_ in row.file_ids)
