"""Plain pairs: the executions of two directories whose names tell which belong together, as columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream._native import count_segments
from dumpstream.comparison.pairs.grouping import groups_of
from dumpstream.comparison.plain.listing import PlainFiles, list_plain
from dumpstream.comparison.sides.entry import ios_text
from dumpstream.comparison.sides.origin import clean_operator
from dumpstream.comparison.sides.source import PathSource
from dumpstream.format.header import IO

_KEY_BYTES = 16
_NOTHING = -1  #: stands for a value that is not known, and comes before all others

_Integers = NDArray[np.int64]


class Scope(NamedTuple):
    """What the executions of a step of a rank have in common."""

    rank: int | None
    model: str | None
    step: int | None


class PlainPairs(NamedTuple):
    """The executions of both sides, in the order in which mine ran; each side has the same."""

    mine: PlainFiles
    golden: PlainFiles
    scopes: Sequence[Scope]
    scope: NDArray[np.intp]  #: of each execution
    occurrence: NDArray[np.intp]
    files: tuple[NDArray[np.intp], NDArray[np.intp]]  #: the first file of each, of mine and of the golden
    #: All files of those executions that have several, of mine and of the golden.
    several: dict[int, tuple[Sequence[int], Sequence[int]]]

    def __len__(self) -> int:
        return len(self.scope)


def pair_plain(mine: Path, golden: Path) -> PlainPairs | None:
    """Return the executions of two directories.

    None if it takes a closer look: names are of another form, or one side has an execution that the other
    does not have.
    """
    key = os.urandom(_KEY_BYTES)
    try:
        with ThreadPoolExecutor(2) as threads:  # native code lists them
            ours, theirs = threads.map(lambda root: list_plain(root, key), (mine, golden))
    except OSError:  # which the closer look tells
        return None
    if ours is None or theirs is None or len(ours.names) != len(theirs.names):
        return None
    if _has_ranks(ours) != _has_ranks(theirs):
        return None
    known: dict[Scope, int] = {}
    sides = [_Sorted.of(files, known) for files in (ours, theirs)]
    if not all(np.array_equal(*both) for both in zip(sides[0].keys, sides[1].keys, strict=True)):
        return None
    first, others = (_executions(side) for side in sides)
    if not np.array_equal(first, others):
        return None
    return _ordered(sides, first, [*known])


def _has_ranks(files: PlainFiles) -> bool:
    """Whether devices are taken for ranks, as there are several."""
    return len({origin.device for origin in files.origins} - {None}) > 1


class _Sorted(NamedTuple):
    """The files of a side, those of an operator in a scope together, as they were called."""

    files: PlainFiles
    order: NDArray[np.intp]
    keys: tuple[NDArray[np.intp], NDArray[np.uint64]]  #: scope and operator

    @classmethod
    def of(cls, files: PlainFiles, known: dict[Scope, int]) -> _Sorted:
        ranked = _has_ranks(files)
        scopes = [Scope(it.device if ranked else None, it.model, it.step) for it in files.origins]
        numbers = np.array([known.setdefault(it, len(known)) for it in scopes])
        scope, said = numbers[files.directory], files.said
        operator = said["operator_hash"]
        order = np.lexsort((said["task"], said["time"], said["sequence"], files.started, operator, scope))
        return cls(files, order, (scope[order], operator[order]))

    @property
    def begins(self) -> NDArray[np.bool_]:
        """Where the files of another operator begin."""
        scope, operator = self.keys
        found: NDArray[np.bool_] = np.ones(len(scope), np.bool_)
        found[1:] = (scope[1:] != scope[:-1]) | (operator[1:] != operator[:-1])
        return found


def _executions(side: _Sorted) -> NDArray[np.intp]:
    """Return where executions begin among the files of a side, as they are sorted."""
    begins = side.begins
    apart = begins.copy()
    sequence = side.files.said["sequence"][side.order]
    # The calls of aclnn have numbers, and those with other ones are other executions.
    apart[1:] |= (sequence[1:] != _NOTHING) & (sequence[1:] != sequence[:-1])
    looked = np.flatnonzero(~apart | np.r_[~apart[1:], False])
    if not len(looked):
        return np.arange(len(begins))
    counts = np.zeros((len(begins), len(IO)), np.uint32)
    counts[looked] = _counts_of(side.files, side.order[looked].tolist())
    # Two files with the same tensor are of two executions.
    apart[1:] |= (np.minimum(counts[1:], counts[:-1]) > 0).any(axis=1)
    starts = np.flatnonzero(begins)
    stops = np.r_[starts[1:], len(begins)]
    together = np.add.reduceat(~apart, starts) > 0
    for start, stop in zip(starts[together].tolist(), stops[together].tolist(), strict=True):
        apart[start:stop] = _grouped(side, counts, start, stop)
    return np.flatnonzero(apart)


class _Call(NamedTuple):
    """A file, as `groups_of` takes it."""

    id: int
    started: int
    sequence: int | None
    same: str
    ios: str


def _grouped(side: _Sorted, counts: NDArray[np.uint32], start: int, stop: int) -> list[bool]:
    """Return which files of an operator begin an execution."""
    calls = []
    for place in range(start, stop):
        origin = side.files.origin(int(side.order[place]))
        ios = ios_text(*counts[place].tolist())
        calls.append(_Call(place, origin.started, origin.sequence, origin.group, ios))
    first = {call.id for call, _ in groups_of(iter(calls))}
    return [place in first for place in range(start, stop)]


def _counts_of(files: PlainFiles, places: Sequence[int]) -> NDArray[np.uint32]:
    """Return how many inputs, outputs, buffers and spaces the files have."""
    counts = np.frombuffer(count_segments(files.paths(places)), np.uint32).reshape(-1, len(IO)).copy()
    for at in np.flatnonzero(~counts.any(axis=1)).tolist():  # it is large, or takes a closer look
        for entry in PathSource(0).entries([files.input(places[at])]):
            words = "" if entry is None else entry.packed.ios
            counts[at] = [words.count(f"{io} ") for io in IO]
    return counts


def _ordered(sides: Sequence[_Sorted], first: NDArray[np.intp], scopes: Sequence[Scope]) -> PlainPairs:
    mine, golden = sides
    scope = mine.keys[0][first]
    number = np.arange(len(first))
    operator_begins = mine.begins[first]
    occurrence = number - np.maximum.accumulate(np.where(operator_begins, number, 0))
    ours, theirs = mine.order[first], golden.order[first]
    order = _order(mine.files, ours, [scopes[it] for it in range(len(scopes))], scope)
    sizes = np.diff(np.r_[first, len(mine.order)])
    several: dict[int, tuple[Sequence[int], Sequence[int]]] = {}
    for place in np.flatnonzero(sizes[order] > 1).tolist():
        begin, size = int(first[order[place]]), int(sizes[order[place]])
        within = slice(begin, begin + size)
        several[place] = mine.order[within].tolist(), golden.order[within].tolist()
    return PlainPairs(
        mine.files,
        golden.files,
        scopes,
        scope[order],
        occurrence[order],
        (ours[order], theirs[order]),
        several,
    )


def _order(
    files: PlainFiles, first: NDArray[np.intp], scopes: Sequence[Scope], scope: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the order in which executions ran: by rank, by step, and then by call or time."""
    said, started = files.said[first], files.started[first]
    ranks = np.array([_NOTHING if it.rank is None else it.rank for it in scopes])[scope]
    with_steps = all(scopes[it].step is not None for it in set(scope.tolist()))
    steps = np.array([it.step if with_steps else _NOTHING for it in scopes], np.int64)[scope]
    within = [said["time"], said["task"]]
    sequenced = bool((said["sequence"] != _NOTHING).all())
    within.insert(0 if sequenced else len(within), said["sequence"])
    keys = [ranks, steps, started, *within]
    order = np.lexsort(keys[::-1])
    if _has_ties(keys, order):
        order = np.lexsort([_by_name(files, first, scopes, scope), *keys[::-1]])
    return order


def _has_ties(keys: Sequence[NDArray[Any]], order: NDArray[np.intp]) -> bool:
    same = np.ones(max(0, len(order) - 1), np.bool_)
    for key in keys:
        placed = key[order]
        same &= placed[1:] == placed[:-1]
    return bool(same.any())


def _by_name(
    files: PlainFiles, first: NDArray[np.intp], scopes: Sequence[Scope], scope: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the place of each execution in the order of models and names, which ends a tie."""
    keys = []
    for file, at in zip(first.tolist(), scope.tolist(), strict=True):
        origin = files.origin(file)
        name = clean_operator(origin.op_name or "")
        step = scopes[at].step
        keys.append((scopes[at].model or "", _NOTHING if step is None else step, name, origin.op_type or ""))
    places = np.empty(len(keys), np.intp)
    places[sorted(range(len(keys)), key=lambda it: (keys[it], it))] = np.arange(len(keys))
    return places
