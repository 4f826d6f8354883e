"""Quota: how many bytes may wait on the disk, of one capture or of several together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(eq=False)
class _Room:
    capacity: int
    used: int = 0
    freed: asyncio.Event = field(default_factory=asyncio.Event)


class Quota:
    """*capacity* bytes; with *within*, they are part of a room that other captures use as well."""

    def __init__(self, capacity: int, within: Quota | None = None) -> None:
        self._own = _Room(capacity)
        self._shared = self._own if within is None else within._own  # noqa: SLF001 - its own kind

    @property
    def capacity(self) -> int:
        """How many bytes there can ever be."""
        return min(self._own.capacity, self._shared.capacity)

    @property
    def free(self) -> int:
        """How many bytes are left."""
        return min(room.capacity - room.used for room in (self._own, self._shared))

    def take(self, size: int) -> None:
        """Use *size* bytes of what is free."""
        for room in {self._own, self._shared}:
            room.used += size

    def give_back(self, size: int) -> None:
        """Use *size* bytes less; for the event loop's thread."""
        self.take(-size)
        self.wake()

    def leave(self, *, cleared: bool) -> None:
        """Stop using it; unless the disk was *cleared*, other captures have so much less from now on."""
        if not cleared:
            self._shared.capacity -= self._own.used
        self.give_back(self._own.used)

    async def freed(self) -> None:
        """Return when a capture that shares the room has given something back, or `wake` was called."""
        await self._shared.freed.wait()

    def wake(self) -> None:
        """Let all callers of `freed` look again, because something has changed."""
        self._shared.freed.set()
        self._shared.freed = asyncio.Event()
