"""ManifestWriter: the runs and processes of a capture, recorded in its manifest wherever that is."""

import platform
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError
from dumpstream._native import has_libzstd
from dumpstream.archive.manifest import ENVIRONMENT, PROFILE, Configured, Manifest, Process, Run
from dumpstream.archive.pulse import Pulse
from dumpstream.archive.remains import Remains
from dumpstream.archive.rows import Outcome, timestamp
from dumpstream.codec import Codec
from dumpstream.system.location import Prefix


class ManifestWriter(ABC):
    """The runs of a capture, or the processes with a capture each, as its manifest records them.

    Every method blocks: call it from a worker thread. Until a run or processes begin, all changes are undone
    by `close`.
    """

    path: Path | Prefix

    def __init__(self) -> None:
        self.manifest = Manifest(dumpstream=version("dumpstream"), created=timestamp())
        self.remains = Remains()  #: of the capture that was replaced
        self._replaced: Manifest | None = None
        self._gathering = False
        self._earlier: set[str] | None = None  # the directories of the processes of earlier collectors
        self._counts: Counter[str] = Counter()  # by name without its number, the last number that was tried

    @property
    @abstractmethod
    def work_directory(self) -> Path:
        """A local directory for temporary files."""

    @property
    def waiting(self) -> bool:
        """Whether the manifest still has to be uploaded."""
        return False

    def tell(self, pulse: Pulse) -> None:
        """Let other processes see how the capture is getting on; where that costs too much, do nothing."""
        del pulse

    def begin_run(
        self,
        options: Mapping[str, Any],
        *,
        codec: Codec | None = None,
        acl_library: str | None = None,
        config: Mapping[str, Any] | None = None,
        profile: Mapping[str, Any] | None = None,
    ) -> int:
        """Delete a capture that is to be replaced, record that a run begins, and return its number."""
        run = Run(
            run=max((run.run for run in self.manifest.runs), default=0) + 1,
            started=timestamp(),
            options=dict(options),
            codec=None if codec is None else {"name": str(codec), "libzstd": has_libzstd()},
            python=platform.python_version(),
            platform=platform.platform(),
            acl_library=acl_library,
            config=None if config is None else dict(config),
            profile=None if profile is None else {"path": PROFILE, **profile},
        )
        self.manifest.runs.append(run)
        self._begin()
        return run.run

    def configure_run(self, configured: Sequence[Configured]) -> None:
        """Record the dump configurations of the run that began last, the latest last."""
        run = self.manifest.runs[-1]
        if run.configured != configured:
            run.configured = list(configured)
            given = [it.config for it in configured if it.by != ENVIRONMENT]
            run.config = given[-1] if given else None
            self._write()

    def end_run(self, outcome: Outcome) -> None:
        """Record how the run that began last ended."""
        run = self.manifest.runs[-1]
        run.ended, run.outcome = timestamp(), str(outcome)
        self._write()

    async def finish_run(self, outcome: Outcome) -> None:
        """Do what `end_run` does, which blocks; raises `DestinationError`."""
        await run_sync(self.end_run, outcome)

    def begin_processes(self) -> None:
        """Delete a capture that is to be replaced, and record that processes may follow."""
        self.manifest.ended = None
        self._begin()

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Write the manifest once, after the block, instead of for every process that the block records."""
        self._gathering = True
        try:
            yield
        finally:
            self._gathering = False
        self._write()

    def begin_process(self, process: Process, *, refused: bool = False) -> None:
        """Record *process*; unless it is *refused*, its capture goes to a new `directory`."""
        if not refused:
            process.directory = self._choose_directory(process.rank, process.pid)
        self.manifest.processes.append(process)
        self.update_processes()

    def forget_process(self, process: Process) -> None:
        """Take *process*, which could not be recorded, from the list again."""
        self.manifest.processes[:] = [it for it in self.manifest.processes if it is not process]

    def update_processes(self) -> None:
        """Record what has changed in processes."""
        if not self._gathering:
            self._write()

    def end_process(self, process: Process, ending: str) -> None:
        """Record how *process* ended."""
        process.ended, process.ending = timestamp(), ending
        self.update_processes()

    def end_processes(self) -> None:
        """Record that no more processes come; the manifest is `waiting` if it could not be uploaded.

        Raises:
            DestinationError: it cannot be uploaded; the message says what to do.
        """
        self.manifest.ended = timestamp()
        self._end_processes()

    @abstractmethod
    def close(self) -> None:
        """Release the destination; a second call does nothing."""

    @abstractmethod
    def _begin(self) -> None:
        """Delete a capture that is to be replaced, and write the manifest."""

    @abstractmethod
    def _end_processes(self) -> None:
        """Write the manifest for the last time."""

    @abstractmethod
    def _write(self) -> None:
        """Replace the manifest; a reader sees the old one or the new one, whole."""

    @abstractmethod
    def _is_taken(self, name: str) -> bool:
        """Whether the directory *name* exists already, so that no new process can have it."""

    def _accept(self, earlier: Manifest, *, append: bool, force: bool, of_processes: bool) -> None:
        """Add to *earlier*, or remember to replace it; raise `DestinationError` if neither is wanted."""
        if append:
            _refuse_mixture(self.path, earlier, of_processes=of_processes)
            self.manifest = earlier
        elif force:
            self._replaced = earlier
        elif earlier.runs or earlier.processes:
            raise DestinationError(
                self.path,
                "already holds a capture; add to it with --append (append=True), "
                "or delete it and start anew with --force (force=True)",
            )

    def _take_replaced(self) -> Manifest | None:
        """Return the manifest of the capture that is to be replaced, once."""
        replaced, self._replaced = self._replaced, None
        return replaced

    def _choose_directory(self, rank: int | None, pid: int) -> str:
        name = f"pid-{pid}" if rank is None else f"rank-{rank}"
        if self._earlier is None:
            self._earlier = {process.directory for process in self.manifest.processes}
        while True:
            self._counts[name] += 1
            count = self._counts[name]
            free = name if count == 1 else f"{name}.{count}"
            if free not in self._earlier and not self._is_taken(free):
                return free


def refuse_both(*, append: bool, force: bool) -> None:
    """Raise `ValueError` if both are true."""
    if append and force:
        raise ValueError("append and force exclude each other: one keeps what is there, one deletes it")


def _refuse_mixture(path: Path | Prefix, earlier: Manifest, *, of_processes: bool) -> None:
    if of_processes and earlier.runs:
        raise DestinationError(
            path, "holds the capture of one process, to which no others can be added; choose another --out"
        )
    if earlier.processes and not of_processes:
        raise DestinationError(
            path,
            "holds the captures of several processes, to which no run can be added; choose another --out",
        )
