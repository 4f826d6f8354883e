"""Members: the tensors of two executions that belong together, paired one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from dumpstream.comparison.execution import Pair
from dumpstream.comparison.pairs.catalog import CatalogFile, Which
from dumpstream.comparison.sides.descriptor import Descriptor, statistics_of
from dumpstream.comparison.sides.origin import clean_operator
from dumpstream.comparison.sides.source import Source
from dumpstream.comparison.sidetensor import Identity, SideTensor
from dumpstream.format.layouts import PLAIN

_SIDES = {Which.MINE: "mine", Which.GOLDEN: "the golden"}
_TIMES = {1: "once", 2: "twice"}
_IO_ORDER = {"input": 0, "output": 1, "buffer": 2, "space": 3}

#: Which tensor of an execution: input or output, and its number.
Key = tuple[str, int]


class ExecutionRow(NamedTuple):
    """An execution as the catalog has it."""

    id: int
    operator: int
    number: int
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


#: What the catalog is asked for.
EXECUTION = ", ".join(ExecutionRow._fields)


class Members:
    """The tensors of an execution, whose files *sources* open, and the files of which no tensor is known."""

    def __init__(
        self,
        sources: Sequence[Source],
        row: ExecutionRow,
        files: Mapping[int, CatalogFile],
        place: int,
    ) -> None:
        self._sources, self.row, self._place = sources, row, place
        self.found: dict[Key, tuple[CatalogFile, Descriptor]] = {}
        self.unreadable: list[CatalogFile] = []
        self._stands_in = False
        for file in map(files.__getitem__, row.file_ids):
            tensors = file.tensors
            for tensor in tensors:
                self.found[tensor.io, tensor.index] = file, tensor
            if not tensors:
                self.unreadable.append(file)

    @property
    def name(self) -> str:
        """The name of the operator, as the device writes it."""
        return clean_operator(self.row.op_name or "")

    def tensor(self, key: Key) -> SideTensor | None:
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
        row = self.row
        io, index, dtype, format_, shape, original_shape, count, size, address, hash_, problem, _ = descriptor
        opened = None
        if file.reference is not None and io and file.problem is None:
            source = self._sources[file.source]
            opened = partial(source.open, file.reference or file.file, io, index)
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
            order=format_ if format_ in PLAIN else None,
            count=count,
            size=size,
            address=address,
            hash=hash_,
            statistics=statistics_of(descriptor),
            problem=problem,
            open=opened,
        )


def pair_both(mine: Members, golden: Members, reason: str | None, *, guess: bool) -> Iterator[Pair]:
    """Yield the pairs of all tensors of two executions; *reason* is what they rest on."""
    for key in sorted(mine.found.keys() | golden.found.keys(), key=in_file):
        ours, theirs = mine.tensor(key), golden.tensor(key)
        if ours is None or theirs is None:
            side = "mine" if ours is None else "the golden"
            yield Pair(ours, theirs, f"{side} has no {key[0]} {key[1]} of this execution", guess)
        else:
            identical = key in mine.found and key in golden.found
            identical = identical and are_identical(*mine.found[key], *golden.found[key])
            yield Pair(ours, theirs, reason, guess, identical)
    for ours, theirs in zip_longest(mine.rest(), golden.rest()):
        if ours is None or theirs is None:
            side = "mine" if ours is None else "the golden"
            yield Pair(ours, theirs, f"{side} has no such file of this execution", guess)
        else:
            yield Pair(ours, theirs, reason, guess)


def pair_alone(side: Which, members: Members, reason: str) -> Iterator[Pair]:
    """Yield the tensors of an execution that the other side does not have, for this *reason*."""
    found = [members.tensor(key) for key in sorted(members.found, key=in_file)]
    for tensor in [*found, *members.rest()]:
        yield Pair(tensor, None, reason) if side is Which.MINE else Pair(None, tensor, reason)


def in_file(key: Key) -> tuple[int, int]:
    """Return what orders tensors as they are in a file."""
    return _IO_ORDER.get(key[0], len(_IO_ORDER)), key[1]


def are_identical(file: CatalogFile, tensor: Descriptor, other_file: CatalogFile, other: Descriptor) -> bool:
    """Whether two tensors are known to be the same: their files are, or their hashes, types and shapes."""
    if tensor.problem is not None or other.problem is not None:
        return False
    if file.content is not None and file.content == other_file.content:
        return True
    same = tensor[2:6] == other[2:6]  # type, format and shapes
    return same and tensor.hash is not None and tensor.hash == other.hash
