"""Shares: the ring bytes of a collector, divided among the processes it captures."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import RingError
from dumpstream._native import SharedRing

#: The smallest ring of a process, in bytes.
LEAST_SHARE = 4 << 20
#: How many processes are expected on the machine if the launcher does not say.
EXPECTED = 8

_UNIT = 64 << 10


class Share:
    """A ring of *size* bytes for one process, and its file, if it is in one."""

    def __init__(self, shares: Shares, size: int, ring: SharedRing, file: Path | None) -> None:
        self.size, self.ring, self.file = size, ring, file
        self._shares = shares

    async def aclose(self) -> None:
        """Close the ring, delete its file, and give its bytes back."""
        with anyio.CancelScope(shield=True):
            await run_sync(self._close)
        self._shares.take_back(self.size)

    def _close(self) -> None:
        self.ring.discard()  # a process that still runs must not wait for a reader
        self.ring.close()
        if self.file is not None:
            with suppress(OSError):  # its process may have put anything at its path
                self.file.unlink()


class _Spare:
    """A ring of *size* bytes that is made before a process asks for it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ring: SharedRing | None = None
        self._made = anyio.Event()
        self._wanted = True

    async def make(self) -> None:
        """Make it; if that fails, there is none to take."""
        try:
            with suppress(OSError):
                self.ring = await run_sync(_make, self.size, None)
        finally:
            self._made.set()
        if not self._wanted:
            await self.aclose()

    async def take(self) -> SharedRing | None:
        """Return the ring, also if it is still being made: another one would take longer."""
        try:
            await self._made.wait()
        except BaseException:
            await self.aclose()
            raise
        ring, self.ring = self.ring, None
        return ring

    async def aclose(self) -> None:
        """Close it, now or when it is made."""
        self._wanted = False
        if self.ring is not None:
            ring, self.ring = self.ring, None
            with anyio.CancelScope(shield=True):
                await run_sync(ring.close)


class Shares:
    """Hands out rings, together of *total* bytes, in memory or in files in *directory*.

    A ring takes a while to make, and its process waits for it. So one spare ring in memory is kept ready, of
    the size that is likely to be wanted next; the first is for one of *local_size* processes.
    """

    def __init__(self, total: int, directory: Path | None, local_size: int | None = None) -> None:
        self.free = total
        self._total = total
        self._directory = directory
        self._local_size = local_size
        self._taken = 0
        self._spare: _Spare | None = None

    async def take(self, local_size: int | None, name: str) -> Share:
        """Return a ring for one of *local_size* processes; *name* is the name of its file, if it has one.

        Raises:
            RingError: less than the least share is left, or a ring cannot be made.
        """
        self._local_size = local_size
        size = self._share()
        if size < LEAST_SHARE:
            raise RingError(
                f"no ring is left for this process: all {self._total} bytes are shared out, at least "
                f"{LEAST_SHARE} (4 MiB) to each; give the collector more --buffer-bytes"
            )
        file = None if self._directory is None else self._directory / name
        self.free -= size
        try:
            ring = await self._take_spare(size)
            if ring is None:
                ring = await run_sync(_make, size, file)
        except OSError as exc:
            self.free += size
            where = "in memory" if file is None else f"in {file}"
            raise RingError(
                f"a ring of {size} bytes cannot be made {where}: {exc.strerror}; "
                "give the collector less --buffer-bytes, or another --buffer-file"
            ) from exc
        self._taken += 1
        return Share(self, size, ring, file)

    async def make_spare(self) -> None:
        """Make the spare ring, unless it is there or all processes of the job have theirs.

        If that fails, the next process waits for its ring.
        """
        if self._directory is not None or (self._local_size and self._taken >= self._local_size):
            return
        size = self._share()
        if size >= LEAST_SHARE and (self._spare is None or self._spare.size != size):
            unfit, self._spare = self._spare, _Spare(size)
            made = self._spare
            if unfit is not None:
                await unfit.aclose()
            await made.make()

    def take_back(self, size: int) -> None:
        """Count the ring of *size* bytes, which is closed, as free."""
        self.free += size
        self._taken -= 1

    async def aclose(self) -> None:
        """Close the spare ring."""
        if self._spare is not None:
            spare, self._spare = self._spare, None
            await spare.aclose()

    async def _take_spare(self, size: int) -> SharedRing | None:
        if self._spare is None or self._spare.size != size:
            return None
        spare, self._spare = self._spare, None  # no other process is to wait for it
        return await spare.take()

    def _share(self) -> int:
        # A part of what is free: something must be left for processes that the launcher does not count.
        if self._local_size:
            share = min(self._total // self._local_size, self.free // 2)
        else:
            share = 1 << (max(self.free // EXPECTED, 1).bit_length() - 1)  # so that sizes repeat
        return min(max(share, LEAST_SHARE), self.free) & -_UNIT


def _make(size: int, file: Path | None) -> SharedRing:
    if file is not None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return SharedRing(size, path=None if file is None else str(file))
