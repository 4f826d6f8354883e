"""Collector: captures processes from outside, each into a capture of its own below one destination."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Unpack

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.archive.destination import absolute
from dumpstream.archive.job import choose_host
from dumpstream.capture import Capture, kinds_of_alert
from dumpstream.outside.collectorpreparation import CollectorPreparation, prepared_collector
from dumpstream.outside.collectorrequest import CollectorRequest, sink_below
from dumpstream.outside.process import CapturedProcess
from dumpstream.outside.reception import Reception
from dumpstream.outside.roster import Roster
from dumpstream.outside.service import Service
from dumpstream.outside.shares import LEAST_SHARE, Shares
from dumpstream.outside.wire import local_size_in
from dumpstream.remote.outboxes import waiting_text
from dumpstream.run.request import DEFAULT_SINKS
from dumpstream.stages.options import CaptureOptions, StageOptions
from dumpstream.stages.report import Report
from dumpstream.system.cancellation import finish_in_thread, isolated
from dumpstream.system.location import Prefix, as_location

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from dumpstream.diagnosis.badness import Badness

    StrPath = str | os.PathLike[str]


@asynccontextmanager
async def open_collector(
    destination: StrPath | Prefix | ObjectStore,
    *,
    socket_path: StrPath | None = None,
    config: StrPath | None = None,
    sinks: Sequence[str] | None = None,
    host: str | None = None,
    append: bool = False,
    force: bool = False,
    alert: bool | Iterable[Badness | str] = False,
    **options: Unpack[CaptureOptions],
) -> AsyncIterator[Collector]:
    """Capture every process that joins while the block runs, each into a capture of its own.

    A process joins if it has the environment that `target_environment` makes, or calls `attach`. Leaving the
    block finishes what has come, and takes nothing more from processes that still run. If the capture of one
    process fails, its report says so; nothing is raised, and the others go on.

    Args:
        destination: a directory for these captures alone, a URL such as ``s3://bucket/run``, or a store of
            obstore; with *host*, the job that they are a part of.
        socket_path: where to listen; by default in a new private directory.
        config: the dump configuration (``acl.json``) that every process applies.
        sinks: ``kind:location`` strings, by default ``zstd:``; each process has a directory of its own below
            a location.
        host: the name of this host among those that capture into the same *destination*, which holds a
            directory for each; ``auto`` takes the number that the launcher gives it, or else its name.
        append: add processes to the captures that are in *destination*, or there of this host.
        force: delete the captures that are in *destination*, or there of this host.
        alert: look for bad values in the captures while they run, as `open_capture` does.
        **options: see `CaptureOptions`. `buffer_bytes`, `max_open_bytes`, `held_bytes`, `gathered_bytes`,
            `workers`, `max_descriptors` and `spill_bytes` are for all processes together; `buffer_file` is a
            directory, with a file each, and only for captures in directories.

    Raises:
        CollectorError: the socket cannot be made.
        ConfigError: CANN would refuse *config*.
        DestinationError: *destination* cannot take captures.
        SinkError: there is no such sink, or its store does not answer.
        DestinationInUseError: another capture is writing to *destination*, or to the store of a sink.
        StoreError: *destination* is a URL that does not name a bucket or container.
        TypeError: there is no such option.
        ValueError: an option is out of range.
    """
    location = as_location(destination)
    if isinstance(location, Path):
        location = await run_sync(absolute, location)
    job, directory = None, None if host is None else choose_host(host)
    if directory is not None:
        job, location = location, location / directory
    request = CollectorRequest(
        destination=location,
        job=job,
        stages=StageOptions.divide(options, directory=location),
        sinks=[it if directory is None else sink_below(it, directory) for it in sinks or DEFAULT_SINKS],
        config=None if config is None else await run_sync(absolute, config),
        append=append,
        force=force,
        alert=await kinds_of_alert(alert),
    )
    _refuse_ring(request)
    socket_path = None if socket_path is None else await run_sync(absolute, socket_path)
    async with isolated(_open_request(request, socket_path)) as collector:
        yield collector


def _refuse_ring(request: CollectorRequest) -> None:
    """Raise `ValueError` if the rings that processes are to share cannot be made."""
    if request.ring.buffer_bytes < LEAST_SHARE:
        raise ValueError(
            f"buffer_bytes must be at least {LEAST_SHARE} (4 MiB) for a capture from outside, "
            f"not {request.ring.buffer_bytes}"
        )
    if isinstance(request.destination, Prefix) and request.ring.buffer_file is not None:
        raise ValueError(
            "buffer_file is for captures in directories: `dumpstream recover` cannot write to an object store"
        )


@asynccontextmanager
async def _open_request(request: CollectorRequest, socket_path: Path | None) -> AsyncIterator[Collector]:
    """Prepare, begin and run a collector."""
    async with (
        prepared_collector(request, socket_path) as preparation,
        _begun(preparation) as shares,
        _running(preparation, shares) as collector,
    ):
        yield collector
    if collector.error is not None:
        if (report := collector.report).waiting:
            collector.error.add_note(waiting_text(report.waiting_files, request.stages.sinks.spill))
        raise collector.error


@asynccontextmanager
async def _begun(preparation: CollectorPreparation) -> AsyncIterator[Shares]:
    """Record that processes may join, and have rings for them."""
    destination, ring = preparation.destination, preparation.request.ring
    await run_sync(destination.begin_processes)
    try:
        # A command that is started with this environment passes it on to its processes.
        local_size = local_size_in(os.environ)
        async with aclosing(Shares(ring.buffer_bytes, ring.buffer_file, local_size)) as shares:
            yield shares
    finally:
        await finish_in_thread(destination.end_processes)


@asynccontextmanager
async def _running(preparation: CollectorPreparation, shares: Shares) -> AsyncIterator[Collector]:
    """Let processes join while the block runs, and finish what has come from them."""
    async with anyio.create_task_group() as tasks:
        collector = Collector(preparation, shares, tasks)
        try:
            yield collector
        finally:
            collector.stop()


class Collector:
    """A collector that is running, or has run."""

    def __init__(self, preparation: CollectorPreparation, shares: Shares, tasks: TaskGroup) -> None:
        self.path = preparation.destination.path  #: where the captures are
        self.socket_path = preparation.socket_path  #: where it listens
        #: What *force* left of what it found; see `Capture.remains`.
        self.remains = preparation.destination.remains
        self._destination = preparation.destination
        self._patience = preparation.resources.patience
        self._roster = Roster(preparation.destination)
        self._service = Service(preparation, self._roster, shares, tasks)
        listener = preparation.listener
        self._reception: Reception | None = Reception(listener, self._service.hear, self._service.hang_up)
        self._started = self._stopped = monotonic()

    @property
    def processes(self) -> Sequence[CapturedProcess]:
        """The processes that have joined, or tried to, in the order in which they came."""
        return tuple(self._roster.processes)

    @property
    def error(self) -> DumpstreamError | None:
        """Why the manifest could not be written; it is raised when the block is left."""
        return self._roster.error

    @property
    def running(self) -> int:
        """How many processes have not been seen to end."""
        return self._service.running

    @property
    def report(self) -> Report:
        """The figures of all processes together; may be read at any time."""
        running = self._service.served or self._reception is not None
        ended = monotonic() if running else max(self._stopped, self._service.ended)
        report = self._roster.report(ended - self._started)
        return replace(report, waiting=report.waiting + self._destination.waiting)

    @property
    def whole(self) -> bool:
        """Whether every process was captured as it should have been, and everything is whole."""
        return self._roster.whole

    @property
    def failed(self) -> Sequence[CapturedProcess]:
        """The processes that are not captured as they should be, known as soon as that is so."""
        return [process for process in self._roster.processes if process.failure is not None]

    def when_captured(self, herald: Callable[[CapturedProcess, Capture], object]) -> None:
        """Call *herald* with every process whose capture begins, however short its life is."""
        self._service.heralds.append(herald)

    def terminate(self, processes: Collection[CapturedProcess] | None = None) -> None:
        """Ask *processes* (all that are captured) to end, by SIGTERM."""
        self._service.terminate(processes)

    async def idle(self) -> None:
        """Return when no process is being captured, or about to join; others may still join later."""
        while self._reception is not None:
            self._reception.let_in()
            if not self._service.served and self._reception.empty:
                return
            await self._service.changed()

    async def stopped(self) -> None:
        """Return when `stop` was called."""
        while self._reception is not None:
            await self._service.changed()

    def stop(self) -> None:
        """Take nothing more from any process, let no other join, and finish what has come."""
        if self._reception is not None:
            self._reception.close()
            self._reception = None
            self._stopped = monotonic()
        self._service.stop()

    def hurry(self, seconds: float | None = None) -> None:
        """End soon once the block is left, even if an object store does not answer; see `Capture.hurry`."""
        self._patience.limit(seconds)
