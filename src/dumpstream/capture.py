"""Capture: a run of the pipeline into a directory, from registering the callback to the last verdict."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from anyio.to_thread import run_sync

from dumpstream.archive.destination import absolute
from dumpstream.beginning import begun
from dumpstream.objectstore.patience import Patience
from dumpstream.preparation import prepared
from dumpstream.request import DEFAULT_SINKS, Request, as_json
from dumpstream.sinks.resources import Resources
from dumpstream.stages.options import CaptureOptions, StageOptions
from dumpstream.system.cancellation import isolated
from dumpstream.system.location import Prefix, as_location

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Sequence

    from obstore.store import ObjectStore

    from dumpstream._errors import DumpstreamError
    from dumpstream.acl.driver import Driver
    from dumpstream.archive.manifest import Configured
    from dumpstream.profiling.settings import ProfileSettings
    from dumpstream.session import Session
    from dumpstream.sinks import Sink
    from dumpstream.source import Source
    from dumpstream.stages.report import Report

    StrPath = str | os.PathLike[str]


class Capture:
    """A capture that is running, or has run."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def path(self) -> Path | Prefix:
        """The directory, or the place in an object store, that it goes to."""
        return self._session.destination.path

    @property
    def report(self) -> Report:
        """What has been seen and done so far; may be read at any time, also after the end."""
        return self._session.report()

    @property
    def error(self) -> DumpstreamError | None:
        """Why the capture ended early; it is raised when the block is left."""
        return self._session.pipeline.error

    async def configure(self, configured: Sequence[Configured]) -> None:
        """Take what has become known of what is dumped in a process captured from outside."""
        await self._session.configure(configured)

    def hurry(self, seconds: float | None = None) -> None:
        """End soon once the block is left, also if an object store is away.

        One that has not answered for *seconds* (by default 15, without a spill 30) is given up: what it has
        not got waits in the spill, as it does after a capture that was killed, and without a spill is lost.
        """
        self._session.patience.limit(seconds)

    async def wait(self) -> None:
        """Return when the capture has ended: in the block that is only if it failed."""
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
    ``aclmdlFinalizeDump`` only if *config* was given, after synchronising the device if the thread that
    leaves the block has a device context (synchronise yourself if other threads drive devices).

    Without *config* the dump is yours: finalise it before you leave the block. If you do not, the runtime
    writes every chunk still queued to the path in its name, on its own disk, and this capture never sees it.

    ``aclInit`` is never called; call it before. Losses and verdicts never raise: they are in `Capture.report`
    and in the journal. If a sink fails, the block goes on: the capture discards from then on and counts, what
    was finished stays, and the error is raised when the block is left. A cancelled block ends at once, an
    exception in it is raised after everything was drained. What fails or is cancelled before the block is
    entered is undone and leaves no trace, and *force* has deleted nothing.

    Args:
        destination: a directory for this capture alone, or a place in an object store: a URL such as
            ``s3://bucket/run``, or a store of obstore.
        config: the dump configuration to apply (``acl.json``).
        acl_library: the library with the ACL functions, where it is not to be searched for.
        driver: makes the ACL calls instead of a library that is searched for, such as `load_pyacl` returns.
        sinks: ``kind:location`` strings, objects, or stores of obstore; by default ``zstd:``, files below
            *destination*.
        source: where chunks come from instead, such as a `PyAclSource`; then no dump function is called.
        profile: profile the block, too, into ``profile`` below *destination*, as `open_profile` does.
        append: add a run to the capture that is in *destination*.
        force: delete the capture that is in *destination*.
        **options: see `CaptureOptions`.

    Raises:
        ConfigError: CANN would refuse *config*; nothing was done.
        DestinationError: *destination* cannot take a capture.
        LibraryNotFoundError: no ACL library was found.
        AclError: an ACL function refused.
        ProfilingError: no library can profile, another process does, or it cannot be done so.
        CaptureInUseError: this process is capturing already.
        SinkError: a sink could not be made; or, on leaving, it failed.
        StoreError: *destination* is a URL that names no place.
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
        options=as_json(options),
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
    """Prepare, begin and run a capture: one way for every caller."""
    async with prepared(request, resources) as preparation, begun(preparation) as session, session.running():
        yield Capture(session)
    session.raise_error()
