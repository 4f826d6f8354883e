"""Grouping: the executions that the files in the catalog are of, in the order in which they ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from dumpstream.comparison.pairs.catalog import TEXT, Catalog, Which, as_text, number_of
from dumpstream.comparison.pairs.correspondence import Correspondence, Dimension

_KEYS = 6  #: columns that all executions of an operator have in common
_COLUMNS = ("?",) * 6 + (TEXT, "?", TEXT, TEXT) + ("?",) * 6
_ADD = f"INSERT INTO executions VALUES (NULL, {', '.join(_COLUMNS)})"  # noqa: S608 - constants
_READ = "name, op_type, part, step, model, op_name, same, started, sequence, time, task, id, ios"
_INPUTS, _OUTPUTS = frozenset({"input"}), frozenset({"output", "buffer", "space"})


class _File(NamedTuple):
    rank: int | None
    model: str | None
    step: int | None
    name: str
    op_type: str | None
    part: str
    own_step: int | None
    own_model: str | None
    op_name: str | None
    same: int
    started: int
    sequence: int | None
    time: int | None
    task: int | None
    id: int
    ios: str


class Groupable(Protocol):
    """What tells whether files of the same operator are of one execution."""

    @property
    def id(self) -> int: ...
    @property
    def started(self) -> int: ...
    @property
    def sequence(self) -> int | None: ...
    @property
    def same(self) -> object:
        """Files that have it in common are of one execution, if they have different tensors."""

    @property
    def ios(self) -> str:
        """Which tensors it has, as `ios_text` writes them."""


_F = TypeVar("_F", bound=Groupable)


class _Group(Generic[_F]):
    """The files of an execution, as far as they have come."""

    def __init__(self, first: _F) -> None:
        self.first = first
        self.ids = [first.id]
        self._tensors = _tensors(first.ios)

    def takes(self, file: _F) -> bool:
        """Take *file* if it is of the same execution; return whether it is."""
        first, tensors = self.first, _tensors(file.ios)
        if file.started != first.started or not self._tensors.isdisjoint(tensors):
            return False
        if file.same != first.same and (
            file.sequence is not None or len(self.ids) > 1 or not self._is_continued(tensors)
        ):
            return False
        self.ids.append(file.id)
        self._tensors |= tensors
        return True

    def _is_continued(self, tensors: frozenset[tuple[str, int]]) -> bool:
        """Whether only inputs came before, and *tensors* are outputs.

        Of a file that cannot be read, either may be so; of two such files nothing is known.
        """
        before, behind = {io for io, _ in self._tensors}, {io for io, _ in tensors}
        return before <= _INPUTS and behind <= _OUTPUTS and bool(before or behind)


@lru_cache(4096)
def _tensors(ios: str) -> frozenset[tuple[str, int]]:
    words = ios.split()
    return frozenset((io, int(index)) for io, index in zip(words[::2], words[1::2], strict=True))


def operator_number(keys: tuple[Any, ...], name: str, part: str = "") -> int:
    """Return what all executions of an operator have in common; *keys* are rank, model and step."""
    return number_of(f"{keys!r}{name}\0{part}")


def group_files(catalog: Catalog, side: Which, correspondence: Correspondence) -> None:
    """Write the executions of *side* into the catalog."""
    catalog.write(_ADD, _executions(catalog, side, correspondence))


def _executions(catalog: Catalog, side: Which, correspondence: Correspondence) -> Iterator[tuple[Any, ...]]:
    scopes: dict[tuple[Any, ...], _Scope | None] = {}
    for key, files in groupby(_files(catalog, side, correspondence), key=lambda file: file[:_KEYS]):
        *_, name, op_type, part = key
        values = key[:3]
        if values not in scopes:
            scopes[values] = _scope_of(correspondence, side, values)
        scope = scopes[values]
        if scope is None:
            continue
        loose = operator_number(scope.keys, name, part)
        operator = number_of(f"{loose}{op_type}")
        ran: dict[tuple[Any, ...], int] = {}
        for number, (first, ids) in enumerate(groups_of(files)):
            own = (first.own_model, first.own_step, first.op_name)
            occurrence = ran.get(own, 0)
            ran[own] = occurrence + 1
            yield (
                int(side),
                operator,
                number,
                loose,
                scope.number,
                values[0],
                as_text(first.own_model),
                first.own_step,
                as_text(op_type),
                as_text(first.op_name),
                occurrence,
                first.started,
                first.sequence,
                first.time,
                first.task,
                ",".join(map(str, ids)),
            )


class _Scope(NamedTuple):
    """What executions of the same rank, model and step have in common."""

    keys: tuple[Any, ...]
    number: int  #: the same for all models


def _scope_of(correspondence: Correspondence, side: Which, values: tuple[Any, ...]) -> _Scope | None:
    """Return the scope of executions with these *values*; None if they do not take part."""
    dimensions = (correspondence.rank, correspondence.model, correspondence.step)
    if not all(it.takes_part(side, value) for it, value in zip(dimensions, values, strict=True)):
        return None
    keys = tuple(it.key(side, value) for it, value in zip(dimensions, values, strict=True))
    return _Scope(keys, number_of(repr((keys[0], keys[2]))))


def _files(catalog: Catalog, side: Which, correspondence: Correspondence) -> Iterator[_File]:
    keys = [_expression(it, side) for it in (correspondence.rank, correspondence.model, correspondence.step)]
    query = (
        f"SELECT {', '.join(keys)}, {_READ} FROM files WHERE side = ? "  # noqa: S608 - constants
        "ORDER BY 1, 2, 3, 4, 5, 6, started, sequence, time, task, id"
    )
    return map(_File._make, catalog.ask(query, int(side)))


def _expression(dimension: Dimension, side: Which) -> str:
    return "NULL" if dimension.ignored else dimension.columns[side]


def groups_of(files: Iterator[_F]) -> Iterator[tuple[_F, Sequence[int]]]:
    """Yield the executions of an operator, whose *files* are in order: the first of each, and all numbers."""
    first = next(files)
    second = next(files, None)
    if second is None:  # as of most operators
        yield first, (first.id,)
        return
    group = _Group(first)
    for file in chain([second], files):
        if not group.takes(file):
            yield group.first, group.ids
            group = _Group(file)
    yield group.first, group.ids
