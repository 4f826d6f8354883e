"""Correspondence: which rank, model and step of mine stands for which of the golden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dumpstream._errors import DumpstreamError
from dumpstream.comparison.pairs.catalog import Catalog, Which

_LISTED = 8  #: values in a message
_SIDES = {Which.MINE: "mine", Which.GOLDEN: "the golden"}


class Ties(NamedTuple):
    """Values of mine, each with that of the golden that it is compared with; all values if there are none."""

    pairs: Sequence[tuple[Any, Any]] = ()

    @classmethod
    def parse(cls, texts: Sequence[str], what: str, *, whole: bool = True) -> Ties:
        """Return the ties that ``MINE:GOLDEN`` or ``BOTH`` stand for, several also with commas.

        Raises:
            ValueError: one is something else, or a value comes twice.
        """
        pairs = []
        for text in (part.strip() for given in texts for part in given.split(",")):
            mine, colon, golden = text.partition(":")
            if not mine or (colon and not golden):
                raise ValueError(f"--{what} {text}: write {what.upper()}, or MINE:GOLDEN")
            pairs.append((_value(mine, what, whole=whole), _value(golden or mine, what, whole=whole)))
        for values in zip(*pairs, strict=True):
            twice = [value for value in values if values.count(value) > 1]
            if twice:
                raise ValueError(f"--{what} has {twice[0]} twice; each is compared with one other")
        return cls(pairs)


def _value(text: str, what: str, *, whole: bool) -> int | str:
    if not whole:
        return text
    if not (text.isascii() and text.isdecimal() and len(text) < 19):  # noqa: PLR2004 - fits 63 bits
        raise ValueError(f"--{what} {text}: {what}s are numbers; write 0, or 0:3")
    return int(text)


#: No values are told, and all are compared.
EVERYTHING = Ties()


class Dimension(NamedTuple):
    """One of rank, model and step: how the values of both sides correspond."""

    name: str
    columns: Mapping[Which, str]  #: the columns of the catalog
    ignored: bool  #: whether executions are paired whatever it is
    golden_of: Mapping[Any, Any] | None  #: the golden's values by mine; None if they are the same
    selected: bool  #: whether other values are left out
    known: Mapping[Which, set[Any]]  #: the values of either side

    def key(self, side: Which, value: Any) -> Any:
        """Return the golden's value that *value* stands for."""
        if self.ignored:
            return None
        if side is Which.GOLDEN or self.golden_of is None:
            return value
        # Something that the golden does not have, and is different for each value of mine.
        return self.golden_of.get(value, ("only mine", value))

    def takes_part(self, side: Which, value: Any) -> bool:
        """Whether tensors with *value* are compared at all."""
        if not self.selected or self.golden_of is None:
            return True
        return value in (self.golden_of if side is Which.MINE else self.golden_of.values())

    def absence(self, side: Which, value: Any) -> str | None:
        """Return that the other side does not have what *value* of *side* stands for, if so."""
        if self.ignored:
            return None
        other = side.other
        counterpart = value
        if self.golden_of is not None:
            swapped = {golden: mine for mine, golden in self.golden_of.items()}
            counterpart = (self.golden_of if side is Which.MINE else swapped).get(value)
            if value not in (self.golden_of if side is Which.MINE else swapped):
                return f"{self._called(value)} is not in {_SIDES[other]}"
        if counterpart in self.known[other]:
            return None
        return f"{self._called(counterpart)} is not in {_SIDES[other]}"

    def _called(self, value: Any) -> str:
        return f"no {self.name}" if value is None else f"{self.name} {value}"


class Correspondence(NamedTuple):
    """How ranks, models and steps of both sides correspond."""

    rank: Dimension
    model: Dimension
    step: Dimension
    notes: Sequence[str]  #: what was assumed, one line each


def find_correspondence(catalog: Catalog, ranks: Ties, models: Ties, steps: Ties) -> Correspondence:
    """Return how the values in *catalog* correspond: as told, or else as the names suggest.

    What both sides have corresponds. If they have nothing in common, and each has one value, these do. If a
    side does not know models or steps, executions are paired in the order in which they ran; if one does not
    know ranks, with the first rank of the other.

    Raises:
        DumpstreamError: a side does not have a value that was told.
    """
    notes: list[str] = []
    rank = _find(catalog, "rank", "ranks", ranks, notes)
    model = _find(catalog, "model", "models", models, notes)
    return Correspondence(rank, model, _find(catalog, "step", "steps", steps, notes), notes)


def _find(catalog: Catalog, name: str, plural: str, ties: Ties, notes: list[str]) -> Dimension:
    columns = {side: _column(catalog, side, name) for side in Which}
    known = {side: _values(catalog, side, columns[side]) for side in Which}
    found = Dimension(name, columns, ignored=False, golden_of=None, selected=False, known=known)
    if ties.pairs:
        told = {side: _told(name, side, known[side], [pair[side] for pair in ties.pairs]) for side in Which}
        golden_of = dict(zip(told[Which.MINE], told[Which.GOLDEN], strict=True))
        return found._replace(golden_of=golden_of, selected=True)
    mine, golden = known[Which.MINE], known[Which.GOLDEN]
    if not mine or not golden or mine & golden:
        return found
    if len(mine) == 1 and len(golden) == 1:
        (one,), (other,) = mine, golden
        if one is not None and other is not None:
            notes.append(f"{name} {one} of mine is compared with {name} {other} of the golden, the only ones")
        return found._replace(golden_of={one: other})
    without = next((side for side in Which if known[side] == {None}), None)
    if without is None:
        return found
    if name == "rank":
        first = min(known[without.other] - {None})
        notes.append(
            f"{_SIDES[without]} has no ranks, and is compared with rank {first} of {_SIDES[without.other]}; "
            "--rank chooses another"
        )
        return found._replace(golden_of={None: first} if without is Which.MINE else {first: None})
    notes.append(f"{_SIDES[without]} has no {plural}: executions are paired in the order in which they ran")
    return found._replace(ignored=True)


def _told(name: str, side: Which, known: set[Any], told: Sequence[Any]) -> list[Any]:
    """Return the values of *side* that were *told*; one stands for all if the side does not know any."""
    if known == {None} and len(told) == 1:
        return [None]
    for value in told:
        if known and value not in known:
            have = ", ".join(str(it) for it in sorted(known - {None})[:_LISTED]) or "none"
            raise DumpstreamError(f"{_SIDES[side]} has no {name} {value}; it has {have}")
    return [*told]


def _values(catalog: Catalog, side: Which, column: str) -> set[Any]:
    query = f"SELECT DISTINCT {column} FROM files WHERE side = ?"  # noqa: S608 - a column
    return {value for (value,) in catalog.ask(query, int(side))}


def _column(catalog: Catalog, side: Which, name: str) -> str:
    """Return the column that has *name*: devices are taken for ranks if there are several and no ranks."""
    if name != "rank":
        return name
    query = "SELECT count(DISTINCT device), count(rank) FROM files WHERE side = ?"
    devices, ranked = next(catalog.ask(query, int(side)))
    return "device" if devices > 1 and not ranked else "rank"
