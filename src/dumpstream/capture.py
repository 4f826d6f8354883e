"""Capture: a run of the pipeline, from registering the callback to the last verdict."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.acl.driver import Driver
from dumpstream.archive.destination import absolute
from dumpstream.archive.manifest import Configured
from dumpstream.archive.remains import Remains
from dumpstream.beginning import begun
from dumpstream.objectstore.patience import Patience
from dumpstream.preparation import prepared
from dumpstream.profiling.settings import ProfileSettings
from dumpstream.request import DEFAULT_SINKS, Request
from dumpstream.session import Session
from dumpstream.sinks import Sink
from dumpstream.sinks.resources import Resources
from dumpstream.source import Source
from dumpstream.stages.options import CaptureOptions, StageOptions
from dumpstream.stages.report import Report
from dumpstream.system.cancellation import isolated
from dumpstream.system.location import Prefix, as_location

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from dumpstream.request import StrPath


class Capture:
    """A capture that is running, or has run."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def path(self) -> Path | Prefix:
        """The directory, or the prefix in an object store, that it goes to."""
        return self._session.destination.path

    @property
    def report(self) -> Report:
        """What has been seen and done so far; may be read at any time, also after the end."""
        return self._session.report()

    @property
    def error(self) -> DumpstreamError | None:
        """Why the capture ended early; it is raised when the block is left."""
        return self._session.pipeline.error

    @property
    def remains(self) -> Remains:
        """What *force* left of what it found, because the deleted capture had not made it."""
        return self._session.destination.remains

    async def configure(self, configured: Sequence[Configured]) -> None:
        """Record what a process that is captured from outside says of its dump configurations."""
        await self._session.configure(configured)

    def hurry(self, seconds: float | None = None) -> None:
        """End soon once the block is left, even if an object store does not answer.

        The capture waits at most *seconds* for an answer (by default 15, or 30 without a spill). Files that
        the store has not got by then stay in the spill; without a spill they are lost.
        """
        self._session.patience.limit(seconds)

    async def wait(self) -> None:
        """Return when the capture has ended; while the block runs, that is only if it has failed."""
        await self._session.pipeline.ended.wait()


@asynccontextmanager
async def open_capture(
    destination: StrPath | Prefix | ObjectStore,
    *,
    config: StrPath | None = None,
    acl_library: StrPath | None = None,
    driver: Driver | None = None,
    sinks: Sequence[str | Sink | ObjectStore] | None = None,
    source: Source | None = None,
    profile: ProfileSettings | None = None,
    append: bool = False,
    force: bool = False,
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
            obstore.
        config: the dump configuration to apply (``acl.json``).
        acl_library: the library with the ACL functions; by default it is searched for.
        driver: makes the ACL calls instead of a library, such as the one that `load_pyacl` returns.
        sinks: ``kind:location`` strings, objects, or stores of obstore; by default ``zstd:``, files below
            *destination*.
        source: where chunks come from, such as a `PyAclSource`; with it no dump function is called.
        profile: also profile the block, into ``profile`` below *destination*, as `open_profile` does.
        append: add a run to the capture that is in *destination*.
        force: delete the capture that is in *destination*.
        **options: see `CaptureOptions`.

    Raises:
        ConfigError: CANN would refuse *config*; nothing was done.
        DestinationError: *destination* cannot take a capture.
        LibraryNotFoundError: no ACL library was found.
        AclError: an ACL function refused.
        ProfilingError: no library can profile, another process is profiling, or *profile* is refused.
        CaptureInUseError: this process is capturing already.
        SinkError: a sink could not be made; or, on leaving, it failed.
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
    location = as_location(destination)
    if isinstance(location, Prefix) and profile is not None:
        raise ValueError("a profile needs a directory; use open_profile beside a capture in an object store")
    if isinstance(location, Path):
        location = await run_sync(absolute, location)
    request = Request(
        destination=location,
        stages=StageOptions.divide(options, directory=location, with_ring=source is None),
        sinks=sinks or DEFAULT_SINKS,
        config=None if config is None else Path(config),
        acl_library=acl_library,
        driver=driver,
        source=source,
        profile=profile,
        append=append,
        force=force,
    )
    resources = Resources(patience=Patience(spills=request.stages.sinks.spill is not None))
    async with isolated(open_request(request, resources)) as capture:
        yield capture


@asynccontextmanager
async def open_request(request: Request, resources: Resources) -> AsyncIterator[Capture]:
    """Prepare, begin and run a capture: the one way for `open_capture`, collectors and `recover`."""
    async with prepared(request, resources) as preparation, begun(preparation) as session, session.running():
        yield Capture(session)
    session.raise_error()
