"""Roster: the processes of a collector, recorded in its manifest as they come and end."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import CollectorError, DumpstreamError
from dumpstream.archive.manifestwriter import ManifestWriter
from dumpstream.outside.process import CapturedProcess
from dumpstream.outside.refusals import Refusals
from dumpstream.stages.report import Report, total_report

#: Processes that one manifest lists: with more, no reader would take it.
_MOST_PROCESSES = 16384


@dataclass(slots=True, eq=False)
class _Change:
    """A change of the manifest that waits to be written."""

    make: Callable[[], None]
    made: bool = False
    error: DumpstreamError | None = None

    def try_to_make(self) -> None:
        self.made = True
        try:
            self.make()
        except DumpstreamError as exc:
            self.error = exc


def _unwritten(error: Exception) -> str:
    problem = "out of memory" if isinstance(error, MemoryError) else repr(error)
    return f"the list of processes cannot be written: {problem}; let the collector capture fewer processes"


class Roster:
    """The processes in the manifest of *destination*.

    One write is in flight at a time, and the next one has everything that has changed meanwhile.
    """

    def __init__(self, destination: ManifestWriter) -> None:
        self.processes: list[CapturedProcess] = []  #: in the order in which they came
        self.error: DumpstreamError | None = None  #: why the manifest could not be written
        self._present: dict[CapturedProcess, None] = {}  # those whose figures may still change
        self._past = Report(seconds=0)  # the figures of all others together
        self._refusals = Refusals()
        self._destination = destination
        self._writing = anyio.Lock()
        self._changes: deque[_Change] = deque()

    @property
    def whole(self) -> bool:
        """Whether all were captured as they should have been, and everything is whole."""
        return self._refusals.count == 0 and all(process.whole for process in self.processes)

    def report(self, seconds: float) -> Report:
        """Return the figures of all processes together, after *seconds*."""
        return total_report([self._past, *(process.report for process in self._present)], seconds)

    def finish(self, process: CapturedProcess) -> None:
        """Keep only the figures of a process whose capture is over: a collector may run for a long time."""
        process.finish()
        del self._present[process]
        self._past = total_report([self._past, process.report], 0)

    def refuse_if_full(self) -> None:
        """Raise `CollectorError` if the manifest lists as many processes as it can."""
        if len(self._destination.manifest.processes) >= _MOST_PROCESSES:
            raise CollectorError(
                f"the collector's list is full: it has {_MOST_PROCESSES} processes; start another collector, "
                "with another --out"
            )

    async def add(self, process: CapturedProcess, ring: Path | None = None) -> None:
        """Record a process that is captured; its record gets the directory for that.

        Raises:
            DestinationError: the manifest cannot be written.
        """
        process.record.ring = None if ring is None else str(ring)
        await self._add(process)
        self._present[process] = None

    async def refuse(self, process: CapturedProcess, reason: str) -> None:
        """Record a process that is not captured."""
        with suppress(DumpstreamError):
            if self._refusals.add(process, reason):
                await self._add(process, refused=True)
            else:
                await self._write(self._destination.update_processes)

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
            self._changes.append(_Change(partial(self._destination.forget_process, process.record)))
            raise

    async def _write(self, make: Callable[[], None]) -> None:
        """Return when the change that *make* makes is written, in one go with those of other callers."""
        change = _Change(make)
        self._changes.append(change)
        async with self._writing:
            if not change.made:
                await run_sync(self._write_all)
        if change.error is not None:
            self.error = self.error or change.error
            raise change.error

    def _write_all(self) -> None:
        # Taken here: a caller that is cancelled before its thread begins must not take those of others along.
        changes: list[_Change] = []
        try:
            with self._destination.gathering():
                while self._changes:
                    changes.append(self._changes.popleft())
                    changes[-1].try_to_make()
        except Exception as exc:  # noqa: BLE001 - a caller must not take for written what is not
            error = exc if isinstance(exc, DumpstreamError) else CollectorError(_unwritten(exc))
            for change in changes:
                change.error = change.error or error
