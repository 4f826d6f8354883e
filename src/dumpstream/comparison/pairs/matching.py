"""Matching: which execution of mine is which of the golden: by name, and by guess what names do not tell."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from dumpstream.comparison.pairs.alignment import align
from dumpstream.comparison.pairs.catalog import Catalog, Which
from dumpstream.comparison.sides.descriptor import Descriptor

_ORDERS = {
    "steps": "own_step, ",
    "sequence": "started, sequence, time, task, id",
    "time": "started, time, task, sequence, id",
}
_BY_OPERATOR = """
INSERT INTO matches SELECT m.id, g.id, 0 FROM executions m JOIN executions g
ON g.side = 1 AND g.operator = m.operator AND g.number = m.number
WHERE m.side = 0 AND m.id NOT IN (SELECT mine FROM matches)
"""
_BY_USER = """
INSERT INTO matches SELECT m.id, g.id, 0 FROM executions m JOIN executions g ON g.side = 1 AND m.side = 0
WHERE (SELECT count(*) FROM executions) = 2
"""
_LEFT = """
SELECT id, loose, row_number() OVER (PARTITION BY loose ORDER BY place) AS number FROM executions
JOIN places USING (id) WHERE side = {side} AND id NOT IN (SELECT {column} FROM matches)
"""
_BY_NAME = f"""
INSERT INTO matches SELECT m.id, g.id, 0 FROM ({_LEFT.format(side=0, column="mine")}) m
JOIN ({_LEFT.format(side=1, column="golden")}) g ON g.loose = m.loose AND g.number = m.number
"""  # noqa: S608 - constants
_MOST_ALIGNED = 200_000  #: executions of one step of one rank
_UNMATCHED = """
SELECT scope, id, op_type, files FROM executions JOIN places USING (id)
WHERE side = ? AND id NOT IN (SELECT {} FROM matches) ORDER BY scope, place
"""
_COLUMN = {Which.MINE: "mine", Which.GOLDEN: "golden"}

_Tokens = Callable[[str | None, Sequence[Descriptor]], Hashable]


def order_executions(catalog: Catalog) -> None:
    """Write down the order in which the executions ran: by rank, by step, and then by call or time."""
    for side in Which:
        query = "SELECT count(*), count(own_step), count(sequence) FROM executions WHERE side = ?"
        count, with_step, with_sequence = next(catalog.ask(query, int(side)))
        steps = _ORDERS["steps"] if with_step == count else ""
        within = _ORDERS["sequence" if with_sequence == count else "time"]
        catalog.write(
            f"INSERT INTO places SELECT NULL, id FROM executions WHERE side = {int(side)} "  # noqa: S608 - constants
            f"ORDER BY own_rank, {steps}{within}"
        )


def match_executions(catalog: Catalog, *, guess: bool, files: bool = False) -> None:
    """Write down which executions belong together; with *guess*, also by what names do not tell.

    If the user named two *files*, they belong together.
    """
    if files:
        catalog.write(_BY_USER)
    catalog.write("CREATE INDEX by_operator ON executions (operator, number, side)")
    catalog.write(_BY_OPERATOR)
    catalog.write(_BY_NAME)
    if guess:
        for tokens in (_everything, _outputs, _shapes):
            catalog.write("INSERT INTO matches VALUES (?, ?, 1)", [*_aligned(catalog, tokens)])


def _aligned(catalog: Catalog, tokens: _Tokens) -> Iterator[tuple[int, int]]:
    left = [_unmatched(catalog, side) for side in Which]
    mine, golden = (next(groups, None) for groups in left)
    while mine is not None and golden is not None:
        if mine[0] < golden[0]:
            mine = next(left[0], None)
        elif golden[0] < mine[0]:
            golden = next(left[1], None)
        else:
            yield from _aligned_of_scope(catalog, [*mine[1]], [*golden[1]], tokens)
            mine, golden = (next(groups, None) for groups in left)


def _unmatched(catalog: Catalog, side: Which) -> Iterator[tuple[Any, Iterator[Any]]]:
    return groupby(catalog.ask(_UNMATCHED.format(_COLUMN[side]), int(side)), key=itemgetter(0))


def _aligned_of_scope(
    catalog: Catalog, mine: Sequence[Any], golden: Sequence[Any], tokens: _Tokens
) -> Iterator[tuple[int, int]]:
    if len(mine) > _MOST_ALIGNED or len(golden) > _MOST_ALIGNED:
        return
    typed = all(op_type is not None for some in (mine, golden) for _, _, op_type, _ in some)
    sides = [_tokens_of(catalog, some, tokens, typed=typed) for some in (mine, golden)]
    for place, other in align(*sides):
        yield mine[place][1], golden[other][1]


def _tokens_of(
    catalog: Catalog, executions: Sequence[Any], tokens: _Tokens, *, typed: bool
) -> list[Hashable]:
    found: list[Hashable] = []
    for _, id_, op_type, files in executions:
        tensors = [it for file in catalog.files(map(int, files.split(","))).values() for it in file.tensors]
        token = tokens(op_type if typed else None, sorted(tensors, key=itemgetter(0, 1)))
        found.append(id_ if token is None else token)  # what is not known is like nothing else
    return found


def _everything(op_type: str | None, tensors: Sequence[Descriptor]) -> Hashable:
    return (op_type, *[(it.io, it.index, it.dtype, it.shape) for it in tensors]) if tensors else None


def _outputs(op_type: str | None, tensors: Sequence[Descriptor]) -> Hashable:
    outputs = [(it.index, it.dtype, it.original_shape or it.shape) for it in tensors if it.io == "output"]
    return (op_type, *outputs) if outputs else None


def _shapes(op_type: str | None, tensors: Sequence[Descriptor]) -> Hashable:
    outputs = [(it.index, it.original_shape or it.shape) for it in tensors if it.io == "output"]
    return (op_type, *outputs) if outputs else None
