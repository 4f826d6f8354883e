"""Capture: a run of the pipeline, from registering the callback to the last verdict."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import anyio
from anyio.lowlevel import checkpoint
from anyio.to_thread import run_sync

from dumpstream._errors import CompanionError, DumpstreamError
from dumpstream.acl.driver import Driver
from dumpstream.archive.destination import absolute
from dumpstream.archive.manifest import Configured
from dumpstream.archive.remains import Remains
from dumpstream.objectstore.patience import Patience
from dumpstream.profiling.settings import ProfileSettings
from dumpstream.run.apart import Apart, apart, companion
from dumpstream.run.beginning import begun
from dumpstream.run.obstacle import obstacle
from dumpstream.run.preparation import prepared
from dumpstream.run.request import DEFAULT_SINKS, Request
from dumpstream.run.session import Session
from dumpstream.sinks import Sink
from dumpstream.sinks.resources import Resources
from dumpstream.source import Source
from dumpstream.stages.feed import Files
from dumpstream.stages.finished import FinishedFile
from dumpstream.stages.notices import OnSlow, Progress
from dumpstream.stages.options import CaptureOptions, StageOptions
from dumpstream.stages.report import Report
from dumpstream.system.cancellation import isolated
from dumpstream.system.location import Prefix, as_location

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from dumpstream.diagnosis.alerts import Alerts
    from dumpstream.diagnosis.badness import Badness
    from dumpstream.run.request import StrPath


_log = logging.getLogger(__name__)


class Capture:
    """A capture that is running, or has run."""

    def __init__(self, session: Session | Apart) -> None:
        self._session = session

    @property
    def path(self) -> Path | Prefix | None:
        """The directory, or the prefix in an object store, that it goes to; None if it stores nothing."""
        return self._session.path

    @property
    def report(self) -> Report:
        """What has been seen and done so far; may be read at any time, also after the end."""
        return self._session.report()

    @property
    def error(self) -> DumpstreamError | None:
        """Why the capture ended early; it is raised when the block is left."""
        return self._session.error

    @property
    def remains(self) -> Remains:
        """What *force* left of what it found, because the deleted capture had not made it."""
        return self._session.remains

    @property
    def ended(self) -> bool:
        """Whether the capture is over: its report is final, and `files` has no further file."""
        return self._session.notices.ended

    def files(
        self,
        *,
        max_files: int = 256,
        max_bytes: int = 64 << 20,
        on_slow: OnSlow | str = OnSlow.WAIT,
        timeout: float | None = 120.0,
    ) -> Files:
        """Return an iterator over the files that finish from now on, for ``async for``.

        It ends when the capture does, after the files that are still queued, and raises the error that ended
        the capture, if there was one. Several consumers may iterate at the same time, each over every file.
        The capture ends after the block is left, so let a task that outlives the block iterate; a task group
        inside the block would wait for its consumer for ever.

        Args:
            max_files: how many files may wait for the consumer.
            max_bytes: how many of their bytes may be kept in memory, or in a temporary file if the capture
                stores nothing. A larger file has to be read with `FinishedFile.pieces`.
            on_slow: what happens when the queue is full: the capture waits for the consumer, or skips the
                file and counts it (`Files.skipped`, `Report.skipped_files`).
            timeout: how many seconds the capture waits for a consumer that takes nothing; then it skips
                files until the consumer takes one. None: for ever. It does not wait for a consumer whose
                task has ended or has left the block.

        Raises:
            ValueError: an argument is out of range.
        """
        if max_files < 1 or max_bytes < 0:
            raise ValueError(f"max_files must be at least 1 and max_bytes 0, not {max_files} and {max_bytes}")
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout must be at least 0 seconds, or None for no limit, not {timeout}")
        subscription = self._session.notices.subscribe(
            FinishedFile, most=max_files, most_bytes=max_bytes, on_slow=OnSlow(on_slow), timeout=timeout
        )
        if isinstance(self._session, Apart):
            self._session.forward(max_bytes)
        return Files(subscription)

    def alerts(self) -> Alerts:
        """Return an iterator over what is found to be bad, for ``async for``, what was found before included.

        It has the first bad tensor of each device, within two seconds of its file, judged by what has come
        until then. If later files show otherwise, it comes again with `Alert.corrects`. The iterator
        ends as that of `files` does. The capture never waits for it.

        Raises:
            ValueError: the capture was opened without *alert*.
        """
        from dumpstream.diagnosis.alerts import Alerts  # noqa: PLC0415 - loads slowly, and few programs need it

        told = self._session.alerts
        if told is None:
            raise ValueError("the capture does not look for bad values; open it with alert=True")
        return Alerts(told, self._session.notices)

    def step(self, number: int) -> None:
        """Mark the beginning of a step: files that begin from now on belong to it.

        For files whose names have no step of their own, it is in the journal, in `FinishedFile.step`, in the
        column *iteration* of statistics and in ``ls``. Synchronise the device first: a chunk belongs to the
        step at which the runtime delivers it, and what it has queued to the next. Never waits, and may be
        called from any thread. Has no effect once the block is left.

        Raises:
            ValueError: *number* is negative or has more than 18 digits, or the capture has a source of its
                own, whose batches say the step.
        """
        self._session.mark(number)

    async def changed(self, since: Report | None = None) -> Report:
        """Return the report once something has happened: files finished, or the capture failed or ended.

        With a report that was returned before as *since*, nothing in between is missed: returns at once if
        the report has changed since then. Returns at once, too, when the capture has `ended`. Does not raise
        what ended the capture: see `Report.failure`.
        """
        with self._session.notices.subscribed(Progress, most=1) as progress:
            if self.ended or (since is not None and self.report.differs(since)):
                await checkpoint()
                return self.report
            with suppress(anyio.EndOfStream, DumpstreamError):
                await progress.receive()
        return self.report

    def leave(self) -> None:
        """Expect no more of the task that leaves the block; called by `open_capture`."""
        self._session.notices.leave(asyncio.current_task())

    async def configure(self, configured: Sequence[Configured]) -> None:
        """Record what a process that is captured from outside says of its dump configurations."""
        if isinstance(self._session, Session):
            await self._session.configure(configured)

    def hurry(self, seconds: float | None = None) -> None:
        """End soon once the block is left, even if an object store does not answer.

        The capture waits at most *seconds* for an answer (by default 15, or 30 without a spill). Files that
        the store has not got by then stay in the spill; without a spill they are lost.
        """
        self._session.hurry(seconds)

    async def wait(self) -> None:
        """Return when the capture has ended; while the block runs, that is only if it has failed."""
        await self._session.ended.wait()


@asynccontextmanager
async def open_capture(
    destination: StrPath | Prefix | ObjectStore | None,
    *,
    config: StrPath | None = None,
    acl_library: StrPath | None = None,
    driver: Driver | None = None,
    sinks: Sequence[str | Sink | ObjectStore] | None = None,
    source: Source | None = None,
    profile: ProfileSettings | None = None,
    append: bool = False,
    force: bool = False,
    alert: bool | Iterable[Badness | str] = False,
    own_process: bool | None = None,
    **options: Unpack[CaptureOptions],
) -> AsyncIterator[Capture]:
    """Capture every dumped file into *destination* while the block runs.

    Entering registers the callback and, with *config*, calls ``aclmdlInitDump`` and ``aclmdlSetDump``; load
    your models inside the block then. Leaving drains and closes, and undoes what entering did:
    ``aclmdlFinalizeDump`` is called only if *config* was given. Before that, the device is synchronised if
    the thread that leaves the block has a device context; if other threads drive devices, synchronise them.

    Without *config* the dump is yours: finalise it before you leave the block. Otherwise the runtime writes
    every chunk that is still queued to its own disk, and this capture never sees it.

    ``aclInit`` is never called; call it before. Losses and verdicts never raise: they are in `Capture.report`
    and in the journal. If a sink fails, the block goes on: finished files stay, the capture discards and
    counts what follows, and the error is raised when the block is left. A cancelled block ends at once; an
    exception in it is raised after everything was drained. If entering fails or is cancelled, it is undone
    and leaves no trace, and *force* has deleted nothing.

    Args:
        destination: a directory for this capture alone, a URL such as ``s3://bucket/run``, or a store of
            obstore; None to store nothing, for consumers of `Capture.files`.
        config: the dump configuration to apply (``acl.json``).
        acl_library: the library with the ACL functions; by default it is searched for.
        driver: makes the ACL calls instead of a library, such as the one that `load_pyacl` returns.
        sinks: ``kind:location`` strings, objects, or stores of obstore; by default ``zstd:``, files below
            *destination*, or none if there is no destination.
        source: where chunks come from, such as a `PyAclSource`; with it no dump function is called.
        profile: also profile the block, into ``profile`` below *destination*, as `open_profile` does.
        append: add a run to the capture that is in *destination*.
        force: delete the capture that is in *destination*.
        alert: look for bad values while the capture runs, for `Capture.alerts` and the journal: True for NaN,
            infinity and overflow, or some of `Badness`, but not drift and divergence. Uses what a statistics
            sink measures; without one, measures by itself.
        own_process: whether a process of its own stores the files, so that only the callback runs here. By
            default it does if nothing is lost by that: there is a destination, all sinks are built in and
            named by strings, and *source* and *profile* are not used. `Report.own_process` says which.
        **options: see `CaptureOptions`.

    Raises:
        ConfigError: CANN would refuse *config*; nothing was done.
        DestinationError: *destination* cannot take a capture.
        LibraryNotFoundError: no ACL library was found.
        AclError: an ACL function refused.
        ProfilingError: no library can profile, another process is profiling, or *profile* is refused.
        CaptureInUseError: this process is capturing already.
        SinkError: a sink could not be made, or lacks a method; or, on leaving, it failed.
        StoreError: *destination* is a URL that does not name a bucket or container.
        TypeError: there is no such option.
        ValueError: an option is out of range, or options exclude each other.
    """
    if source is not None and (config is not None or acl_library is not None or driver is not None):
        raise ValueError(
            "config, acl_library and driver need the default source; with source= drive the dump yourself"
        )
    if driver is not None and acl_library is not None:
        raise ValueError("driver and acl_library exclude each other; the driver has its own library")
    location = None if destination is None else as_location(destination)
    if profile is not None and not isinstance(location, Path):
        raise ValueError("a profile needs a directory; use open_profile beside a capture that has none")
    if location is None and (append or force or options.get("spill") is not None):
        raise ValueError("append, force and spill need a destination; a capture into None stores nothing")
    if isinstance(location, Path):
        location = await run_sync(absolute, location)
    request = Request(
        destination=location,
        stages=StageOptions.divide(options, directory=location, with_ring=source is None),
        sinks=sinks or (() if location is None else DEFAULT_SINKS),
        config=None if config is None else Path(config),
        acl_library=acl_library,
        driver=driver,
        source=source,
        profile=profile,
        append=append,
        force=force,
        alert=await kinds_of_alert(alert),
    )
    resources = Resources(patience=Patience(spills=request.stages.sinks.spill is not None))
    why_not = obstacle(request)
    if own_process and why_not is not None:
        raise ValueError(f"own_process=True is not possible: {why_not}; leave it out")
    if own_process is False or why_not is not None:
        opening = open_request(request, resources)
    else:
        opening = _open_apart(request, resources, required=own_process is True)
    async with isolated(opening) as capture:
        try:
            yield capture
        finally:
            capture.leave()


async def kinds_of_alert(alert: bool | Iterable[Badness | str]) -> Sequence[str] | None:  # noqa: FBT001
    """Return what *alert* asks to look for."""
    if alert is False:
        return None
    await run_sync(import_module, "dumpstream.diagnosis.alerts")  # numpy takes long to load
    from dumpstream.diagnosis.alerts import alert_kinds  # noqa: PLC0415 - likewise

    return alert_kinds(alert)


@asynccontextmanager
async def _open_apart(request: Request, resources: Resources, *, required: bool) -> AsyncIterator[Capture]:
    """Open a capture that a companion stores; if none starts and none is *required*, one in this process."""
    async with AsyncExitStack() as stack:
        try:
            interpreter = await stack.enter_async_context(companion())
        except CompanionError as exc:
            if required:
                raise
            _log.warning("%s; the capture is stored in this process", exc.ending)
            yield await stack.enter_async_context(open_request(request, resources))
            return
        yield Capture(await stack.enter_async_context(apart(request, interpreter)))


@asynccontextmanager
async def open_request(request: Request, resources: Resources) -> AsyncIterator[Capture]:
    """Prepare, begin and run a capture: the one way for `open_capture`, collectors and `recover`."""
    async with prepared(request, resources) as preparation, begun(preparation) as session, session.running():
        yield Capture(session)
    session.raise_error()
