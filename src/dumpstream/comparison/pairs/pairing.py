"""Pairing: every tensor of two sides with its counterpart, or with the reason why it has none."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Self

from dumpstream.comparison.execution import Execution
from dumpstream.comparison.pairs.catalog import Catalog, Which
from dumpstream.comparison.pairs.correspondence import EVERYTHING, Ties, find_correspondence
from dumpstream.comparison.pairs.fusion import Fusion
from dumpstream.comparison.pairs.grouping import group_files
from dumpstream.comparison.pairs.matching import match_executions, order_executions
from dumpstream.comparison.pairs.members import EXECUTION, ExecutionRow
from dumpstream.comparison.pairs.namemap import NameMap
from dumpstream.comparison.pairs.pairmaker import PairMaker
from dumpstream.comparison.plain.pairing import PlainPairs, pair_plain
from dumpstream.comparison.sides.origin import clean_operator
from dumpstream.comparison.sides.side import Side
from dumpstream.system.scratch import ScratchDirectory

_SIDES = {Which.MINE: "mine", Which.GOLDEN: "the golden"}
_EXECUTIONS = 256  #: that are read at one go
_IN_GOLDEN_ORDER = """
SELECT e.scope, p.place, e.id, q.place FROM places p JOIN executions e ON e.id = p.id
LEFT JOIN matches m ON m.golden = e.id LEFT JOIN places q ON q.id = m.mine WHERE e.side = 1 ORDER BY p.place
"""
_FIRST_PLACES = (
    "SELECT scope, min(place) FROM executions JOIN places USING (id) WHERE side = 0 GROUP BY scope"
)
# What the golden alone has comes behind what ran before it there.
_IN_ORDER = """
SELECT p.place AS at, 0, p.place, e.id, m.golden, m.guess FROM places p JOIN executions e ON e.id = p.id
LEFT JOIN matches m ON m.mine = e.id WHERE e.side = 0
UNION ALL SELECT behind, 1, place, NULL, id, 0 FROM extra ORDER BY 1, 2, 3
"""
_ABOUT = """
SELECT count(*), count(*) FILTER (WHERE reference IS NULL AND whole) FROM files JOIN contents USING (id)
WHERE side = ?
"""
_MATCHED = """
SELECT count(*) FILTER (WHERE side = 0), count(*) FILTER (WHERE side = 1),
(SELECT count(*) FROM matches WHERE NOT guess) FROM executions
"""
_LAST = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingOptions:
    """What belongs together where names do not say so."""

    ranks: Ties = EVERYTHING
    models: Ties = EVERYTHING
    steps: Ties = EVERYTHING
    names: NameMap | None = None  #: what the golden calls the operators of mine
    fusion: Fusion | None = None  #: what the operators of mine were made of; *names* come first
    guess: bool = True  #: whether to align by type and shape what is left

    @property
    def may_mirror(self) -> bool:
        """Whether a copy of mine is paired as if it were mine."""
        return self.names is None and self.fusion is None and not self.ranks.pairs

    @property
    def is_plain(self) -> bool:
        """Whether every tensor of mine is compared with the one of the golden that is called the same."""
        return self.may_mirror and not self.models.pairs and not self.steps.pairs

    def golden_name(self, op_name: str) -> str:
        """Return what the golden calls an operator of mine, as the device writes names."""
        name = None if self.names is None else self.names.golden_name(op_name)
        own = clean_operator(op_name)
        if name is None and self.fusion is not None:
            name = self.fusion.golden_name(own)
        return own if name is None else clean_operator(name)


class Pairing(Iterator[Execution]):
    """The executions of both sides, in the order in which mine ran; use it in a ``with`` block.

    The first one comes when all files of both sides are known. What only the golden has comes behind what ran
    before it there.
    """

    def __init__(self, mine: Side, golden: Side, options: PairingOptions) -> None:
        self._sides = {Which.MINE: mine, Which.GOLDEN: golden}
        self._options = options
        self.notes: list[
            str
        ] = []  #: what the user should know, one line each; complete with the first execution
        self._executions = self._run()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Execution:
        return next(self._executions)

    def close(self) -> None:
        """Remove what was written to the disk; does nothing if that was done."""
        self._executions.close()

    def count_copied(self, tell: Callable[[int], None]) -> int | None:
        """Return how many tensors both sides have if the golden is a copy of mine, and all are whole.

        None if that is not so; then the executions tell. Takes a fraction of their time. *tell* is called
        with the tensors that were counted so far.
        """
        if not self._options.is_plain:
            return None
        mine, golden = self._sides.values()
        count = golden.count_copied(mine, tell)
        if count is not None:
            self.notes += [*mine.notes, *golden.notes]
        return count

    def plain(self) -> PlainPairs | None:
        """Return the executions as columns, if both are directories and names tell all; None if not."""
        mine, golden = (side.directory for side in self._sides.values())
        if mine is None or golden is None or not self._options.is_plain:
            return None
        return pair_plain(mine, golden)

    def _run(self) -> Generator[Execution, None, None]:
        with ExitStack() as stack:
            directory = stack.enter_context(ScratchDirectory("compare"))
            catalog = Catalog(directory.path / "catalog.sqlite")
            stack.callback(catalog.close)
            for side, location in self._sides.items():
                self._load(catalog, side, location)
            options = self._options
            unused = [] if options.names is None else options.names.unused()
            self.notes += [f"no operator of mine matches the rule {it.mine} -> {it.golden}" for it in unused]
            correspondence = find_correspondence(catalog, options.ranks, options.models, options.steps)
            self.notes += correspondence.notes
            for side in Which:
                group_files(catalog, side, correspondence)
            order_executions(catalog)
            files = all(side.is_file for side in self._sides.values())
            match_executions(catalog, guess=options.guess, files=files)
            self.notes += _note_strangers(catalog)
            _place_golden(catalog)
            yield from _paired(catalog, PairMaker(self._sides, correspondence, catalog, options.fusion))

    def _load(self, catalog: Catalog, which: Which, side: Side) -> None:
        options, mine = self._options, self._sides[Which.MINE]
        if which is Which.GOLDEN:
            catalog.end_mine()
            if options.may_mirror and side.mirror(mine):
                catalog.mirror()
        if not side.sources:
            name_of = options.golden_name if which is Which.MINE else clean_operator
            ranks = [pair[which] for pair in options.ranks.pairs]
            for entries in side.entries(catalog, ranks):
                catalog.add(which, entries, name_of)
        self.notes += side.notes
        files, only_statistics = next(catalog.ask(_ABOUT, int(which)))
        if not files:
            self.notes.append(f"{_SIDES[which]} is empty: {side.location} has no dump files")
        elif only_statistics:
            some = "" if files == only_statistics else f", for {only_statistics} of its {files} files"
            self.notes.append(f"{_SIDES[which]} has only statistics{some}, so only these are compared")


def pair_sides(mine: Side, golden: Side, options: PairingOptions | None = None) -> Pairing:
    """Return the pairs of all tensors of *mine* and *golden*, execution by execution.

    Every tensor of either side is in one pair, with the reason if it is alone there.

    Raises:
        DumpstreamError: a side cannot be read, or *options* name what is not there.
    """
    return Pairing(mine, golden, options or PairingOptions())


def _note_strangers(catalog: Catalog) -> Iterator[str]:
    """Yield that the sides have nothing in common, if so."""
    mine, golden, named = next(catalog.ask(_MATCHED))
    if mine and golden and not named:
        yield "mine and the golden have no operator in common; --map FILE says which belong together"


def _place_golden(catalog: Catalog) -> None:
    """Write down behind which execution of mine those come that only the golden has."""
    first_places = dict(catalog.ask(_FIRST_PLACES))
    catalog.write("INSERT INTO extra VALUES (?, ?, ?)", _places(catalog, first_places))


def _places(catalog: Catalog, first_places: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    scope, behind = None, 0
    for of, place, id_, mine in catalog.ask(_IN_GOLDEN_ORDER):
        if of != scope:
            scope, behind = of, first_places.get(of, _LAST) - 1
        if mine is None:
            yield id_, behind, place
        else:
            behind = mine


def _paired(catalog: Catalog, maker: PairMaker) -> Iterator[Execution]:
    found = catalog.ask(_IN_ORDER)
    while some := [*islice(found, _EXECUTIONS)]:
        ids = {id_ for *_, mine, golden, _ in some for id_ in (mine, golden) if id_ is not None}
        rows = _rows(catalog, ids)
        files = catalog.files(file for row in rows.values() for file in row.file_ids)
        for _, _, place, mine, golden, guess in some:
            both = {Which.MINE: rows.get(mine), Which.GOLDEN: rows.get(golden)}
            known = {side: row for side, row in both.items() if row is not None}
            execution = maker.make(known, files, place, guess=bool(guess))
            if execution.pairs:  # unless all its tensors are in the pairs of others
                yield execution


def _rows(catalog: Catalog, ids: set[int]) -> dict[int, ExecutionRow]:
    query = f"SELECT {EXECUTION} FROM executions WHERE id IN ({','.join(map(str, ids))})"  # noqa: S608 - numbers
    return {row[0]: ExecutionRow._make(row) for row in catalog.ask(query)}
