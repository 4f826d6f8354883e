"""Members: the tensors of two executions that belong together, paired one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import zip_longest
from typing import NamedTuple, overload

from dumpstream.comparison.execution import Execution, Pair
from dumpstream.comparison.pairs.catalog import Catalog, CatalogFile, Which
from dumpstream.comparison.pairs.correspondence import Correspondence
from dumpstream.comparison.sides.descriptor import Descriptor, statistics_of
from dumpstream.comparison.sides.side import Side
from dumpstream.comparison.sidetensor import Identity, SideTensor

_SIDES = {Which.MINE: "mine", Which.GOLDEN: "the golden"}
_TIMES = {1: "once", 2: "twice"}
_IO_ORDER = {"input": 0, "output": 1, "buffer": 2, "space": 3}

_Key = tuple[str, int]


class ExecutionRow(NamedTuple):
    """An execution as the catalog has it."""

    id: int
    operator: int
    own_rank: int | None
    own_model: str | None
    own_step: int | None
    op_type: str | None
    op_name: str | None
    occurrence: int
    files: str

    @property
    def file_ids(self) -> list[int]:
        """The numbers of its files."""
        return [int(id_) for id_ in self.files.split(",")]


class _Members:
    """The tensors of an execution, and the files of which no tensor is known."""

    def __init__(self, side: Side, row: ExecutionRow, files: Mapping[int, CatalogFile], place: int) -> None:
        self._side, self._row, self._place = side, row, place
        self.found: dict[_Key, tuple[CatalogFile, Descriptor]] = {}
        self.unreadable: list[CatalogFile] = []
        self._stands_in = False
        for file in map(files.__getitem__, row.file_ids):
            for tensor in file.tensors:
                self.found[tensor.io, tensor.index] = file, tensor
            if not file.tensors:
                self.unreadable.append(file)

    def tensor(self, key: _Key) -> SideTensor | None:
        """Return the tensor *key*; one that cannot be read if it may be in a file that cannot."""
        if key in self.found:
            return self._tensor(*self.found[key])
        if not self.unreadable:
            return None
        self._stands_in = True
        file = self.unreadable[0]
        return self._tensor(file, Descriptor(*key, problem=file.problem))

    def rest(self) -> list[SideTensor]:
        """Return a tensor for each file that cannot be read, and that `tensor` has not returned one of."""
        return [
            self._tensor(file, Descriptor("", 0, problem=file.problem or "it has no tensors"))
            for file in self.unreadable[self._stands_in :]
        ]

    def _tensor(self, file: CatalogFile, descriptor: Descriptor) -> SideTensor:
        row = self._row
        io, index, dtype, format_, shape, original_shape, count, size, address, hash_, problem, _ = descriptor
        opened = None
        if file.reference is not None and io and file.problem is None:
            opened = partial(self._side.sources[file.source].open, file.reference, io, index)
        return SideTensor(
            identity=Identity(
                row.own_rank,
                row.own_model,
                row.own_step,
                row.op_type,
                row.op_name,
                io,
                index,
                row.occurrence,
            ),
            place=self._place,
            file=file.file,
            dtype=dtype,
            format=format_,
            shape=shape,
            original_shape=original_shape,
            count=count,
            size=size,
            address=address,
            hash=hash_,
            statistics=statistics_of(descriptor),
            problem=problem,
            open=opened,
        )


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

    def __init__(self, sides: Mapping[Which, Side], correspondence: Correspondence, catalog: Catalog) -> None:
        self._sides, self._correspondence, self._catalog = sides, correspondence, catalog

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
        identical = len(rows) == len(Which) and _have_same_content(rows, files)
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
        members = {side: _Members(self._sides[side], row, files, place) for side, row in rows.items()}
        if len(rows) == len(Which):
            called = rows[Which.GOLDEN].op_name
            reason = f"a guess by type and shape: {called} in the golden" if guess else None
            return [*_both(members[Which.MINE], members[Which.GOLDEN], reason, guess=guess)]
        ((side, row),) = rows.items()
        return [*_alone(side, members[side], self._absence(side, row))]

    def _absence(self, side: Which, row: ExecutionRow) -> str:
        """Return why the other side does not have the execution."""
        rank, model, step, _ = self._correspondence
        for dimension, value in ((rank, row.own_rank), (model, row.own_model), (step, row.own_step)):
            if absence := dimension.absence(side, value):
                return absence
        query = "SELECT count(*) FROM executions WHERE operator = ? AND side = ?"
        (times,) = next(self._catalog.ask(query, row.operator, int(side.other)))
        other = _SIDES[side.other]
        if times:
            return f"ran {_TIMES.get(times, f'{times} times')} in {other}"
        return f"{other} has no such operator"


def _both(mine: _Members, golden: _Members, reason: str | None, *, guess: bool) -> Iterator[Pair]:
    for key in sorted(mine.found.keys() | golden.found.keys(), key=_in_file):
        ours, theirs = mine.tensor(key), golden.tensor(key)
        if ours is None or theirs is None:
            side = "mine" if ours is None else "the golden"
            yield Pair(ours, theirs, f"{side} has no {key[0]} {key[1]} of this execution", guess)
        else:
            identical = key in mine.found and key in golden.found
            identical = identical and _are_identical(*mine.found[key], *golden.found[key])
            yield Pair(ours, theirs, reason, guess, identical)
    for ours, theirs in zip_longest(mine.rest(), golden.rest()):
        yield Pair(ours, theirs, reason, guess)


def _alone(side: Which, members: _Members, reason: str) -> Iterator[Pair]:
    found = [members.tensor(key) for key in sorted(members.found, key=_in_file)]
    for tensor in [*found, *members.rest()]:
        yield Pair(tensor, None, reason) if side is Which.MINE else Pair(None, tensor, reason)


def _have_same_content(rows: Mapping[Which, ExecutionRow], files: Mapping[int, CatalogFile]) -> bool:
    """Whether the files of both executions are known to be the same, and all their tensors are whole."""
    mine, golden = ([files[id_] for id_ in row.file_ids] for row in rows.values())
    return len(mine) == len(golden) and all(map(_are_same, mine, golden))


def _are_same(file: CatalogFile, other: CatalogFile) -> bool:
    if not file.whole or file.packed != other.packed:
        return False
    return file.hashed or (file.content is not None and file.content == other.content)


def _count(row: ExecutionRow, files: Mapping[int, CatalogFile]) -> int:
    return sum(files[id_].whole for id_ in row.file_ids)


def _in_file(key: _Key) -> tuple[int, int]:
    return _IO_ORDER.get(key[0], len(_IO_ORDER)), key[1]


def _are_identical(file: CatalogFile, tensor: Descriptor, other_file: CatalogFile, other: Descriptor) -> bool:
    """Whether two tensors are known to be the same: their files are, or their hashes, types and shapes."""
    if tensor.problem is not None or other.problem is not None:
        return False
    if file.content is not None and file.content == other_file.content:
        return True
    same = tensor.dtype == other.dtype and tensor.shape == other.shape
    return same and tensor.hash is not None and tensor.hash == other.hash
