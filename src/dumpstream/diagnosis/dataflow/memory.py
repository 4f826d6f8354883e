"""Memory: which rows wrote the bytes of a device last."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple


class Span(NamedTuple):
    """Contiguous bytes with one owner."""

    start: int
    stop: int
    owner: int


class Memory:
    """The owners of addresses; what was never written has none."""

    __slots__ = ("_owners", "_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._owners: list[int] = []

    def write(self, start: int, stop: int, owner: int) -> None:
        """Make *owner* that of the bytes from *start* to *stop*."""
        starts, stops, owners = self._starts, self._stops, self._owners
        first = self._first(start)
        if first < len(starts) and starts[first] == start and stops[first] == stop:
            owners[first] = owner  # as in every step, if the memory is planned
            return
        last = first
        while last < len(starts) and starts[last] < stop:
            last += 1
        spans = [Span(start, stop, owner)]
        if last > first:
            if starts[first] < start:
                spans.insert(0, Span(starts[first], start, owners[first]))
            if stops[last - 1] > stop:
                spans.append(Span(stop, stops[last - 1], owners[last - 1]))
        starts[first:last] = [span.start for span in spans]
        stops[first:last] = [span.stop for span in spans]
        owners[first:last] = [span.owner for span in spans]

    def read(self, start: int, stop: int) -> list[Span]:
        """Return the owners of the bytes from *start* to *stop*, in order; gaps have none."""
        starts, stops, owners = self._starts, self._stops, self._owners
        place = self._first(start)
        found = []
        while place < len(starts) and starts[place] < stop:
            found.append(Span(max(start, starts[place]), min(stop, stops[place]), owners[place]))
            place += 1
        return found

    def _first(self, start: int) -> int:
        """Return the place of the first span that ends behind *start*."""
        place = bisect_right(self._starts, start) - 1
        return place if place >= 0 and self._stops[place] > start else place + 1
