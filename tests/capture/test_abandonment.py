from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from dumpstream._native import Chunk
from dumpstream.chunk import Batch
from dumpstream.source import RingSource
from dumpstream.stages.abandonment import Abandonment
from dumpstream.stages.tally import Tally

pytestmark = pytest.mark.anyio

_NAMES = 20_000


class Kept:
    """A journal whose lines can be counted."""

    full, waiting, waiting_files = False, 0, 0

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, line: str, custodies: Sequence[object] = ()) -> None:
        assert not custodies
        self.lines.append(line)

    async def drain(self) -> None:
        """Do nothing; every line is there."""

    async def aclose(self) -> None:
        """Do nothing; there is nothing to close."""


class Stubborn(RingSource):
    """Has chunks of ever new names, although it was told to discard them."""

    def __init__(self, journal: Kept) -> None:
        super().__init__()
        self._journal = journal
        self._given = 0
        self.most_unwritten = 0

    async def receive(self) -> Batch:
        self.most_unwritten = max(self.most_unwritten, self._given - len(self._journal.lines))
        if self._given == _NAMES:
            raise anyio.EndOfStream
        self._given += 1000
        return Batch([Chunk(f"{self._given}.{number}", b"x", is_last=True) for number in range(1000)], [])


async def test_an_abandoned_capture_keeps_few_of_the_names_that_still_come() -> None:
    journal = Kept()
    source = Stubborn(journal)
    abandoned = Abandonment(Tally(journal, []), "cancelled")

    await abandoned.drain(source, patience=10)
    await abandoned.record()

    assert len(journal.lines) == _NAMES
    assert source.most_unwritten < _NAMES / 2
