"""Quota: how many bytes may wait on the disk, of one capture or of several together."""

from __future__ import annotations

import asyncio


class Quota:
    """*capacity* bytes; with *within*, they are part of a room that other captures use as well."""

    def __init__(self, capacity: int, within: Quota | None = None) -> None:
        self._capacity = capacity
        self._within = within
        self._used = 0
        self._freed = asyncio.Event()

    @property
    def capacity(self) -> int:
        """How many bytes there can ever be."""
        return self._capacity if self._within is None else min(self._capacity, self._within.capacity)

    @property
    def free(self) -> int:
        """How many bytes are left."""
        own = self._capacity - self._used
        return own if self._within is None else min(own, self._within.free)

    def take(self, size: int) -> None:
        """Use *size* bytes of what is free."""
        self._used += size
        if self._within is not None:
            self._within.take(size)

    def give_back(self, size: int) -> None:
        """Use *size* bytes less; for the event loop's thread."""
        self._used -= size
        if self._within is None:
            self.wake()
        else:
            self._within.give_back(size)

    def leave(self, *, cleared: bool) -> None:
        """Stop using it; unless the disk was *cleared*, other captures have so much less from now on."""
        if cleared:
            self.give_back(self._used)
        elif self._within is not None:
            self._within._shrink(self._used)  # noqa: SLF001 - its own kind
            self._used = 0

    async def freed(self) -> None:
        """Return when a capture that shares the room has given something back, or `wake` was called."""
        await (self._freed.wait() if self._within is None else self._within.freed())

    def wake(self) -> None:
        """Let all callers of `freed` look again, because something has changed."""
        if self._within is not None:
            self._within.wake()
            return
        self._freed.set()
        self._freed = asyncio.Event()

    def _shrink(self, size: int) -> None:
        self._capacity -= size
        self._used -= size
        self.wake()
