"""Collection: all captures of a location, one, or one for each of several processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dumpstream._errors import DumpstreamError, NotACaptureError
from dumpstream.archive.manifest import Manifest, Process
from dumpstream.archive.place import Place, WritingProcess
from dumpstream.reading.stored import State, StoredCapture, open_place
from dumpstream.system.location import Prefix

_REFUSED = "was refused, and ran without being captured"


class Member(NamedTuple):
    """A capture and, if it is one of several, its process."""

    capture: StoredCapture | None
    process: Process | None = None
    problem: str | None = None  #: why there is no capture

    @property
    def prefix(self) -> str:
        """The beginning of the names of its files, by which those of several processes differ."""
        return f"{self.process.directory}/" if self.process is not None and self.process.directory else ""

    @property
    def rank(self) -> int | None:
        return None if self.process is None else self.process.rank


@dataclass(eq=False)
class Collection:
    """Captures as they were when they were opened; the members are read one by one."""

    place: Place
    manifest: Manifest
    writer: WritingProcess | None  #: the process that is writing it, if any
    processes: Sequence[Process] | None  #: those asked for, by rank; None if it is the capture of one process

    @classmethod
    def open(cls, path: str | os.PathLike[str] | Prefix | Any, ranks: Iterable[int] = ()) -> Collection:
        """Read the manifest of the capture at *path*, also while it is written.

        Args:
            path: a directory, a URL such as ``s3://bucket/run``, or a store of obstore.
            ranks: only the processes of these; by default all.

        Raises:
            NotACaptureError: there is no capture, or one that this version cannot read.
            StoreError: *path* is a URL that is not valid, or the store refuses or does not answer.
            DumpstreamError: there is no process of one of the *ranks*.
        """
        place = open_place(path)
        # Before the manifest: if the capture ends in between, the manifest has all its processes.
        writer = place.find_writer()
        manifest = place.read_manifest()
        wanted = set(ranks)
        if manifest.runs:
            if wanted:
                raise DumpstreamError(f"{place.path} is the capture of one process; leave --rank out")
            return cls(place, manifest, writer=writer, processes=None)
        _check_ranks(place.path, wanted, manifest.processes)
        chosen = [process for process in manifest.processes if not wanted or process.rank in wanted]
        chosen.sort(key=lambda process: (process.rank is None, process.rank))
        return cls(place, manifest, writer=writer, processes=chosen)

    @property
    def path(self) -> Path | Prefix:
        return self.place.path

    def members(self) -> Iterator[Member]:
        """Yield every capture, read in its turn; raises `NotACaptureError` if the only one cannot be read."""
        if self.processes is None:
            yield Member(StoredCapture.read(self.place))
            return
        for process in self.processes:
            yield self._member(process)

    def state(self, members: Iterable[State]) -> State:
        """Return the state of the whole, given those of its members."""
        states = {*members}
        unended = any(it.directory and it.ended is None for it in self.processes or ())
        if State.RUNNING in states or (self.writer is not None and self.processes is not None):
            return State.RUNNING
        return State.INTERRUPTED if unended or State.INTERRUPTED in states else State.FINISHED

    def _member(self, process: Process) -> Member:
        if not process.directory:
            return Member(None, process, process.problem or _REFUSED)
        try:
            return Member(StoredCapture.read(self.place.member(process.directory)), process)
        except NotACaptureError as exc:
            return Member(None, process, str(exc))


def _check_ranks(path: Path | Prefix, wanted: set[int], processes: Sequence[Process]) -> None:
    known = {process.rank for process in processes if process.rank is not None}
    if missing := sorted(wanted - known):
        have = f"it has {', '.join(map(str, sorted(known)))}" if known else "no process there has one"
        raise DumpstreamError(f"{path} has no rank {missing[0]}; {have}")
