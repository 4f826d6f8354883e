"""Stretch: pieces of a file that have become contiguous, put together where they overlap."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from dumpstream.stages.events import Event, Part

_COMPARE_BYTES = 1 << 16


class Stretch:
    """Pieces that have become contiguous, on their way out in the order of the file.

    Where pieces overlap, the one that came first gives the bytes and the others are compared with it.
    """

    __slots__ = ("_at", "_live", "_part")

    def __init__(self, part: Part, at: int) -> None:
        self._part = part
        self._at = at  #: everything before it has left
        self._live: list[tuple[int, int, memoryview]] = []  #: order, start and bytes, none of them all gone

    def add(self, start: int, data: Buffer, *, order: int, until: int) -> list[Event]:
        """Take in the piece at *start*; let out what comes before *until*, where the next piece starts."""
        self._live.append((order, start, memoryview(data)))
        self._live.sort(key=itemgetter(0))
        file = self._part.file
        events: list[Event] = []
        while self._live and self._at < until:
            at = self._at
            end = min(until, *(begin + len(view) for _, begin, view in self._live))
            first, *others = [view[at - begin : end - begin] for _, begin, view in self._live]
            file.pass_on(self._part, at, first, events)
            for other in others:
                file.dropped_bytes += len(other)
                file.overlapped = file.overlapped or not _same(first, other)
            self._at = end
            self._live = [piece for piece in self._live if piece[1] + len(piece[2]) > end]
        return events


def _same(one: memoryview, other: memoryview) -> bool:
    """Compare two views of equal length; ``==`` would take them element by element."""
    return all(
        bytes(one[at : at + _COMPARE_BYTES]) == bytes(other[at : at + _COMPARE_BYTES])
        for at in range(0, len(one), _COMPARE_BYTES)
    )
