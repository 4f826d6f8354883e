"""Overlap: pieces that came out of order, held behind a gap and merged where they overlap. Does no I/O."""

from __future__ import annotations

from bisect import insort
from itertools import pairwise
from operator import attrgetter, itemgetter

from typing_extensions import Buffer

from dumpstream.stages.events import Event, Held, Part, Recall

_COMPARE_BYTES = 1 << 16


class HeldPieces:
    """The pieces of a file that wait behind a gap."""

    __slots__ = ("_count", "pieces", "reach")

    def __init__(self) -> None:
        self.pieces: list[Held] = []  #: by offset
        self.reach = 0  #: the end of the furthest byte that was ever expected behind a gap
        self._count = 0

    def next_order(self) -> int:
        """Return the number of the piece that comes now: of two that overlap, the lower came first."""
        self._count += 1
        return self._count

    def add(self, held: Held, offset: int) -> None:
        """Add *held*, whose bytes go to *offset*."""
        held.offset = offset
        held.order = self.next_order()
        insort(self.pieces, held, key=attrgetter("offset"))
        self.reach = max(self.reach, offset + held.length)

    def recall(self, merge: Merge, end: int, events: list[Event]) -> int:
        """Recall the pieces that continue *merge*, which reaches to *end*; return how far they reach."""
        count = 0
        for held in self.pieces:
            if held.offset > end:
                break
            end = max(end, held.offset + held.length)
            count += 1
        recalled = self.pieces[:count]
        del self.pieces[:count]
        recalled[-1].until = end
        for held, following in pairwise(recalled):
            held.until = following.offset
        for held in recalled:
            held.merge = merge
            events.append(Recall(held))
        return end


class Merge:
    """Pieces that have become contiguous, passed on in the order of the file.

    Where pieces overlap, the bytes of the one that came first count, and the others are compared with them.
    """

    __slots__ = ("_at", "_live", "_part")

    def __init__(self, part: Part, at: int) -> None:
        self._part = part
        self._at = at  #: everything before it has been passed on
        self._live: list[tuple[int, int, memoryview]] = []  #: order, start and bytes of the unfinished pieces

    def add(self, start: int, data: Buffer, *, order: int, until: int) -> list[Event]:
        """Take in the piece at *start*; pass on what comes before *until*, where the next piece starts."""
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
    """Compare two views of equal length in blocks; ``==`` of views would compare element by element."""
    return all(
        bytes(one[at : at + _COMPARE_BYTES]) == bytes(other[at : at + _COMPARE_BYTES])
        for at in range(0, len(one), _COMPARE_BYTES)
    )
