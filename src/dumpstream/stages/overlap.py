"""Overlap: pieces of a file that came out of order, held behind a gap, and what came again in their place."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from typing_extensions import Buffer

from dumpstream.chunk import Chunk
from dumpstream.stages.events import Event, Held, Hold, Part, Recall

if TYPE_CHECKING:
    from dumpstream.stages.assembly import File

_COMPARE_BYTES = 1 << 16
_OFFSET = attrgetter("offset")

Bytes = Chunk | memoryview | bytes


class HeldPieces:
    """The pieces of *file* that wait behind a gap. No two of them overlap: of two bytes, the first stays."""

    __slots__ = ("_file", "count", "pieces")

    def __init__(self, file: File) -> None:
        self._file = file
        self.pieces: list[Held] = []  #: by offset
        self.count = 0  #: of them and of their repeats

    def add(self, held: Held, offset: int) -> None:
        """Add *held*, whose bytes go to *offset*, where no other piece is."""
        held.offset = offset
        insort(self.pieces, held, key=_OFFSET)
        self.count += 1

    def hold(self, offset: int, data: Bytes, events: list[Event]) -> None:
        """Hold *data*, which begins behind a gap; beyond the limit, the file refuses it."""
        for start, stop, first in list(self.divide(offset, offset + len(data))):
            whole = stop - start == len(data)
            piece = data if whole else memoryview(data)[start - offset : stop - offset]
            if first is not None:
                self.repeat(start, piece, first, events)
            elif self._file.full:
                self._file.refuse(len(piece))
            else:
                held = Held(self._file, len(piece))
                self.add(held, start)
                events.append(Hold(held, piece))

    def repeat(self, start: int, data: Bytes, first: Held, events: list[Event]) -> None:
        """Hold *data*, which came in the place of *first*, to compare it, unless the verdict is known."""
        file = self._file
        file.dropped_bytes += len(data)
        file.overlapped = file.overlapped or file.full
        if not file.overlapped:
            held = Held(file, len(data), start, first=first)
            first.repeats = [*(first.repeats or ()), held]
            self.count += 1
            events.append(Hold(held, data))

    def divide(self, start: int, end: int) -> Iterator[tuple[int, int, Held | None]]:
        """Yield the ranges from *start* to *end*, in order, each with the piece that is there already."""
        pieces = self.pieces
        index = bisect_right(pieces, start, key=_OFFSET)
        if index and pieces[index - 1].end > start:
            index -= 1
        for held in pieces[index : bisect_right(pieces, end - 1, key=_OFFSET)]:
            if start < held.offset:
                yield start, held.offset, None
                start = held.offset
            yield start, min(end, held.end), held
            start = held.end
        if start < end:
            yield start, end, None

    def take(self, end: int) -> list[Held]:
        """Return and forget the pieces that continue what reaches to *end*, in order."""
        count = 0
        for held in self.pieces:
            if held.offset > end:
                break
            end = max(end, held.end)
            count += 1
        taken = self.pieces[:count]
        del self.pieces[:count]
        self.count -= count + sum([len(held.repeats) for held in taken if held.repeats])
        return taken


def recall(held: Held, part: Part, events: list[Event]) -> None:
    """Recall *held* as the next piece of *part*, and then what repeats it."""
    for one in (held, *(held.repeats or ())):
        one.part = part
        events.append(Recall(one))


def differs(repeat: Held, data: Buffer) -> bool:
    """Whether *data*, the bytes of *repeat*, differ from those that were recalled just before."""
    first = repeat.first
    assert first is not None
    assert first.data is not None
    assert first.repeats is not None
    start = repeat.offset - first.offset
    before = memoryview(first.data)[start : start + repeat.length]
    if repeat is first.repeats[-1]:
        first.data = None
    return not _same(before, memoryview(data))


def _same(one: memoryview, other: memoryview) -> bool:
    """Compare two views of equal length in blocks; ``==`` of views would compare element by element."""
    return all(
        bytes(one[at : at + _COMPARE_BYTES]) == bytes(other[at : at + _COMPARE_BYTES])
        for at in range(0, len(one), _COMPARE_BYTES)
    )
