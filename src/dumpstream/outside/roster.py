"""Roster: the processes of a collector, recorded in its manifest as they come and end."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.archive.manifestwriter import ManifestWriter
from dumpstream.outside.process import CapturedProcess

#: Refused processes that are recorded; a job that has more of them has a problem that these show.
_MAX_REFUSED = 1024


class Roster:
    """The processes in the manifest of *destination*, which is written for every change, one at a time."""

    def __init__(self, destination: ManifestWriter) -> None:
        self.processes: list[CapturedProcess] = []  #: in the order in which they came
        self.refused = 0
        self.error: DumpstreamError | None = None  #: why the manifest could not be written
        self._destination = destination
        self._writing = anyio.Lock()

    @property
    def whole(self) -> bool:
        """Whether all were captured as they should have been, and everything is whole."""
        return self.refused == 0 and all(process.whole for process in self.processes)

    async def add(self, process: CapturedProcess, ring: Path | None = None) -> None:
        """Record a process that is captured; its record gets the directory for that.

        Raises:
            DestinationError: the manifest cannot be written.
        """
        process.record.ring = None if ring is None else str(ring)
        await self._add(process)

    async def refuse(self, process: CapturedProcess, reason: str) -> None:
        """Record a process that is not captured."""
        process.fail(reason)
        self.refused += 1
        if self.refused <= _MAX_REFUSED:
            with suppress(DumpstreamError):
                await self._add(process, refused=True)

    async def drop_ring(self, process: CapturedProcess) -> None:
        """Record that nothing is left in the ring of a process, if that is in a file."""
        if process.record.ring is not None:
            process.record.ring = None
            with suppress(DumpstreamError):
                await self._write(self._destination.update_processes)

    async def end(self, process: CapturedProcess, ending: str) -> None:
        """Record how a process ended."""
        with suppress(DumpstreamError):
            await self._write(partial(self._destination.end_process, process.record, ending))

    async def _add(self, process: CapturedProcess, *, refused: bool = False) -> None:
        self.processes.append(process)
        try:
            await self._write(partial(self._destination.begin_process, process.record, refused=refused))
        except BaseException:
            self.processes.remove(process)
            raise

    async def _write(self, change: Callable[[], None]) -> None:
        async with self._writing:
            try:
                await run_sync(change)
            except DumpstreamError as exc:
                self.error = self.error or exc
                raise
