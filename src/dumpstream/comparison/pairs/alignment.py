"""Alignment: what two sequences have in common, in order, found in a time that is bounded."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence

#: Up to so many comparisons, the longest common subsequence is found; beyond, one that is good enough.
_EXACT_CELLS = 1 << 20


def align(mine: Sequence[Hashable], golden: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield places of equal items in *mine* and *golden*, both ascending.

    Items that both have once are anchors. Between two anchors, the longest common subsequence is found if
    there are not too many items, and otherwise items are taken as they come.
    """
    work = deque([(0, len(mine), 0, len(golden))])
    while work:
        start, stop, other_start, other_stop = work.popleft()
        while start < stop and other_start < other_stop and mine[start] == golden[other_start]:
            yield start, other_start
            start, other_start = start + 1, other_start + 1
        behind: list[tuple[int, int]] = []
        while start < stop and other_start < other_stop and mine[stop - 1] == golden[other_stop - 1]:
            stop, other_stop = stop - 1, other_stop - 1
            behind.append((stop, other_stop))
        if start < stop and other_start < other_stop:
            yield from _middle(mine[start:stop], golden[other_start:other_stop], start, other_start, work)
        yield from reversed(behind)


def _middle(
    mine: Sequence[Hashable],
    golden: Sequence[Hashable],
    start: int,
    other_start: int,
    work: deque[tuple[int, int, int, int]],
) -> Iterator[tuple[int, int]]:
    anchors = _anchors(mine, golden)
    if anchors:
        before = (-1, -1)
        for place, other in [*anchors, (len(mine), len(golden))]:
            work.append(
                (start + before[0] + 1, start + place, other_start + before[1] + 1, other_start + other)
            )
            before = place, other
        yield from ((start + place, other_start + other) for place, other in anchors)
        return
    few = len(mine) * len(golden) <= _EXACT_CELLS
    for place, other in (_longest if few else _greedy)(mine, golden):
        yield start + place, other_start + other


def _anchors(mine: Sequence[Hashable], golden: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the places of items that both have once, as many as are in the same order."""
    once, other_once = Counter(mine), Counter(golden)
    places = {item: place for place, item in enumerate(golden) if other_once[item] == 1}
    found = [(place, places[item]) for place, item in enumerate(mine) if once[item] == 1 and item in places]
    return _ascending(found)


def _ascending(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the most of *pairs*, whose first numbers ascend, so that the second ones do as well."""
    ends: list[int] = []
    last: list[int] = []  # the pair that each of *ends* is from
    before: list[int] = []
    for number, (_, other) in enumerate(pairs):
        at = bisect_left(ends, other)
        before.append(last[at - 1] if at else -1)
        ends[at : at + 1], last[at : at + 1] = [other], [number]
    found = []
    number = last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]


def _longest(mine: Sequence[Hashable], golden: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the places of the longest common subsequence."""
    rows = [[0] * (len(golden) + 1)]
    for item in reversed(mine):
        below = rows[-1]
        row = [0] * (len(golden) + 1)
        for other in range(len(golden) - 1, -1, -1):
            row[other] = below[other + 1] + 1 if item == golden[other] else max(below[other], row[other + 1])
        rows.append(row)
    rows.reverse()
    place = other = 0
    while place < len(mine) and other < len(golden):
        if mine[place] == golden[other]:
            yield place, other
            place, other = place + 1, other + 1
        elif rows[place + 1][other] >= rows[place][other + 1]:
            place += 1
        else:
            other += 1


def _greedy(mine: Sequence[Hashable], golden: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the places of a common subsequence: as many as ascend when equal items are taken in turn."""
    places: dict[Hashable, deque[int]] = defaultdict(deque)
    for other, item in enumerate(golden):
        places[item].append(other)
    taken = [(place, places[item].popleft()) for place, item in enumerate(mine) if places.get(item)]
    yield from _ascending(taken)
