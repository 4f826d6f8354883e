"""Collection: a capture as what it consists of, which is itself or the captures of several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dumpstream._errors import DumpstreamError, NotACaptureError
from dumpstream.lock import lock_holder
from dumpstream.manifest import read_manifest
from dumpstream.stored import State, StoredCapture

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from dumpstream.manifest import Manifest, Process

_REFUSED = "was refused, and ran without being captured"


class Member(NamedTuple):
    """A capture and, if it is one of several, the process that it is of."""

    capture: StoredCapture | None
    process: Process | None = None
    problem: str | None = None  #: why there is no capture

    @property
    def prefix(self) -> str:
        """What stands before the names of its files, so that those of different processes differ."""
        return f"{self.process.directory}/" if self.process is not None and self.process.directory else ""

    @property
    def rank(self) -> int | None:
        """The rank of the process, if it is known."""
        return None if self.process is None else self.process.rank


class Collection:
    """What the directory of a capture says, as of when it was opened; the members are read one by one."""

    def __init__(
        self, path: Path, manifest: Manifest, *, pid: int | None, processes: Sequence[Process] | None
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.pid = pid  #: the process that is writing it, if any
        self.processes = processes  #: those asked for, by rank; None if one process captured itself

    @classmethod
    def open(cls, path: Path, ranks: Iterable[int] = ()) -> Collection:
        """Read the manifest in the directory *path*, also while a capture writes there.

        Args:
            path: the directory.
            ranks: of these only; by default of all processes.

        Raises:
            NotACaptureError: there is no capture, or one that this version cannot read.
            DumpstreamError: there is no process of one of the *ranks*.
        """
        # Before the manifest: one that ends in between has then written down all its processes.
        pid = lock_holder(path)
        manifest = read_manifest(path)
        wanted = set(ranks)
        if manifest.runs:
            if wanted:
                raise DumpstreamError(f"{path} is the capture of one process; leave --rank out")
            return cls(path, manifest, pid=pid, processes=None)
        _check_ranks(path, wanted, manifest.processes)
        chosen = [process for process in manifest.processes if not wanted or process.rank in wanted]
        chosen.sort(key=lambda process: (process.rank is None, process.rank))
        return cls(path, manifest, pid=pid, processes=chosen)

    def members(self) -> Iterator[Member]:
        """Yield every capture; each is read when it is asked for, and may be large.

        Raises:
            NotACaptureError: it is the capture of one process, and cannot be read.
        """
        if self.processes is None:
            yield Member(StoredCapture.open(self.path))
            return
        for process in self.processes:
            yield self._member(process)

    def state(self, members: Iterable[State]) -> State:
        """Return the state of the whole, given those of its members."""
        states = {*members}
        unended = any(it.directory and it.ended is None for it in self.processes or ())
        if State.RUNNING in states or (self.pid is not None and self.processes is not None):
            return State.RUNNING
        return State.INTERRUPTED if unended or State.INTERRUPTED in states else State.FINISHED

    def _member(self, process: Process) -> Member:
        if not process.directory:
            return Member(None, process, process.problem or _REFUSED)
        path = self.path / process.directory
        if path.is_symlink():
            return Member(None, process, f"{path} is a symbolic link, and not followed")
        try:
            return Member(StoredCapture.open(path), process)
        except NotACaptureError as exc:
            return Member(None, process, str(exc))


def _check_ranks(path: Path, wanted: set[int], processes: Sequence[Process]) -> None:
    known = {process.rank for process in processes if process.rank is not None}
    if missing := sorted(wanted - known):
        have = f"it has {', '.join(map(str, sorted(known)))}" if known else "no process there has one"
        raise DumpstreamError(f"{path} has no rank {missing[0]}; {have}")
