"""FusedPairs: the tensors of a compiled graph's operators, with the golden's outputs that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dumpstream.comparison.execution import Pair
from dumpstream.comparison.pairs.catalog import Catalog, Which
from dumpstream.comparison.pairs.correspondence import Correspondence
from dumpstream.comparison.pairs.fusion import Fusion, Output
from dumpstream.comparison.pairs.grouping import operator_number
from dumpstream.comparison.pairs.members import EXECUTION, ExecutionRow, Key, Members, are_identical, in_file
from dumpstream.comparison.sides.origin import clean_operator
from dumpstream.comparison.sides.side import Side

_FIND = f"SELECT {EXECUTION} FROM executions WHERE side = ? AND loose = ? AND number = ?"  # noqa: S608 - constants
_MATCH = f"SELECT guess, {EXECUTION} FROM matches JOIN executions ON golden = id WHERE mine = ?"  # noqa: S608
_OUTPUT = "output"
_UNKNOWN = "the fusion file does not say what of the golden stands for it"
_MISSING = "the golden has no such output of this execution"


class FusedPairs:
    """Makes the pairs of operators that *fusion* knows.

    Every tensor of mine is in one pair. An output of the golden may be in several: in that of the output that
    stands for it, and in those of the inputs that come from it. It is alone in a pair only if it is in no
    other.
    """

    def __init__(
        self, fusion: Fusion, sides: Mapping[Which, Side], correspondence: Correspondence, catalog: Catalog
    ) -> None:
        self.fusion = fusion
        self._sides, self._correspondence, self._catalog = sides, correspondence, catalog
        catalog.write("CREATE INDEX by_name ON executions (loose, number, side)")

    def pairs(
        self, row: ExecutionRow, mine: Members, golden: Members | None, absence: str | None
    ) -> Iterator[Pair]:
        """Yield the pairs of the execution *row*, which is that of *golden*; *absence* is why there is none.

        An input of a fused operator is compared with the golden's output that it comes from.
        """
        name = clean_operator(row.op_name or "")
        own: set[Key] = set()
        for key in sorted(mine.found, key=in_file):
            if golden is not None and key in golden.found and self._is_direct(name, key):
                own.add(key)
                yield _pair(mine, key, golden, key, None)
                continue
            target = self._target(name, key)
            if target is None:
                yield Pair(mine.tensor(key), None, absence or _UNKNOWN)
                continue
            theirs: Key = (_OUTPUT, target.index)
            if golden is not None and key[0] == _OUTPUT and golden.name == target.op_name:
                own.add(theirs)
                yield _pair(mine, key, golden, theirs, None, order=target.order)
            else:
                reason = f"with output {target.index} of {target.op_name}, as the fusion file says"
                yield _pair(mine, key, self._lender(row, target), theirs, reason, order=target.order)
        yield from (Pair(tensor, None, absence) for tensor in mine.rest())
        if golden is not None:
            keys = [key for key in golden.found.keys() - own if not self.is_lent(golden.row, key)]
            left = [golden.tensor(key) for key in sorted(keys, key=in_file)]
            reason = f"{row.op_name} of mine has nothing that stands for it, as the fusion file says"
            yield from (Pair(None, tensor, reason) for tensor in [*left, *golden.rest()])

    def is_lent(self, row: ExecutionRow, key: Key) -> bool:
        """Whether a tensor of the golden's execution *row* is in the pair of a tensor of another operator."""
        io, index = key
        borrowers = self.fusion.borrowers(clean_operator(row.op_name or ""), index) if io == _OUTPUT else ()
        return any(self._borrows(row, *borrower) for borrower in borrowers)

    def _borrows(self, row: ExecutionRow, op_name: str, io: str, index: int) -> bool:
        """Whether the tensor of mine was dumped, and is compared with an output of *row*."""
        mine = self._find(Which.MINE, row, self.fusion.golden_name(op_name) or op_name)
        if mine is None or mine.name != op_name or (io, index) not in mine.found:
            return False
        guess, *found = next(self._catalog.ask(_MATCH, mine.row.id), (0,))
        if guess:
            return False
        golden = self._members(Which.GOLDEN, ExecutionRow._make(found)) if found else None
        direct = golden is not None and (io, index) in golden.found and self._is_direct(op_name, (io, index))
        return not direct

    def _is_direct(self, name: str, key: Key) -> bool:
        """Whether the tensor is the same in the golden, because the operator was not changed."""
        return key[0] != _OUTPUT and not self.fusion.is_fused(name)

    def _target(self, name: str, key: Key) -> Output | None:
        io, index = key
        if io == _OUTPUT:
            return self.fusion.golden_output(name, index)
        return self.fusion.golden_input(name, index) if io == "input" else None

    def _lender(self, row: ExecutionRow, target: Output) -> Members | None:
        """Return the golden's execution that *target* is an output of, in the same run of the graph."""
        return self._find(Which.GOLDEN, row, target.op_name)

    def _find(self, side: Which, row: ExecutionRow, golden_name: str) -> Members | None:
        """Return the execution of *side* that the golden calls so, in the same run of the graph as *row*."""
        rank, model, step, _ = self._correspondence
        values = ((rank, row.own_rank), (model, row.own_model), (step, row.own_step))
        keys = tuple(dimension.key(side.other, value) for dimension, value in values)
        found = next(
            self._catalog.ask(_FIND, int(side), operator_number(keys, golden_name), row.number), None
        )
        return None if found is None else self._members(side, ExecutionRow._make(found))

    def _members(self, side: Which, row: ExecutionRow) -> Members:
        return Members(self._sides[side].sources, row, self._catalog.files(row.file_ids), place=0)


def _pair(
    mine: Members,
    key: Key,
    golden: Members | None,
    theirs: Key,
    reason: str | None,
    *,
    order: str | None = None,
) -> Pair:
    ours = mine.tensor(key)
    tensor = None if golden is None else golden.tensor(theirs)
    if golden is None or tensor is None:
        return Pair(ours, None, f"the golden has no such output ({reason})" if reason else _MISSING)
    if tensor.order is None and order is not None:
        tensor = replace(tensor, order=order)
    identical = theirs in golden.found and are_identical(*mine.found[key], *golden.found[theirs])
    return Pair(ours, tensor, reason, known_identical=identical)
