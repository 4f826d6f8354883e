"""Capture: a run of the pipeline into a directory, from registering the callback to the last verdict."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.archive.destination import Destination, absolute, explained
from dumpstream.archive.journal import Journal
from dumpstream.archive.manifest import PROFILE
from dumpstream.archive.rows import Outcome
from dumpstream.objectstore.patience import Patience
from dumpstream.pipeline import Pipeline
from dumpstream.profiling.profile import profiling
from dumpstream.reassemble import Reassembler
from dumpstream.remote.destination import RemoteDestination, held_lock
from dumpstream.remote.outbox import Outbox, waiting_text
from dumpstream.remote.writeahead import open_local_journal
from dumpstream.request import (
    DEFAULT_SINKS,
    Request,
    as_json,
    as_kept,
    dump_path_of,
    load_asked,
    refuse_without_directory,
)
from dumpstream.session import Session
from dumpstream.sinks import Sink, SinkSettings, find_factory, make_sink, prepare
from dumpstream.sinks.objectstore import ObjectStoreSink
from dumpstream.source import RingSource, Source
from dumpstream.stages.options import CaptureOptions, StageOptions
from dumpstream.stages.outlet import Outlet
from dumpstream.system.cancellation import finish_in_thread, isolated
from dumpstream.system.heldbytes import HeldBytes
from dumpstream.system.location import Prefix, as_location, is_store

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from obstore.store import ObjectStore

    from dumpstream.acl.driver import Driver
    from dumpstream.acl.dump import Dump
    from dumpstream.archive.journal import Lines
    from dumpstream.archive.manifest import Configured
    from dumpstream.profiling.settings import ProfileSettings
    from dumpstream.remote.storelock import StoreLock
    from dumpstream.stages.report import Report
    from dumpstream.system.durable import Fsync

    StrPath = str | os.PathLike[str]


class Capture:
    """A capture that is running, or has run."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def path(self) -> Path | Prefix:
        """The directory, or the place in an object store, that it goes to."""
        return self._session.place.path

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
    place = as_location(destination)
    if isinstance(place, Prefix) and profile is not None:
        raise ValueError("a profile needs a directory; use open_profile beside a capture in an object store")
    path = place if isinstance(place, Prefix) else await run_sync(absolute, place)
    directory = path if isinstance(path, Path) else Path()
    request = Request(
        path,
        sinks or DEFAULT_SINKS,
        StageOptions.divide(options, directory=directory, with_ring=source is None),
        config=None if config is None else Path(config),
        acl_library=acl_library,
        driver=driver,
        source=source,
        profile=profile,
        append=append,
        force=force,
    )
    patience = Patience(spills=request.stages.sinks.spill is not None)
    async with isolated(open_request(request, as_json(options), patience)) as capture:
        yield capture


@asynccontextmanager
async def open_request(
    request: Request, options: dict[str, Any], patience: Patience
) -> AsyncIterator[Capture]:
    """Make the stages, begin, and run: what lasts is not touched before all that may be refused has been."""
    stages = request.stages
    async with AsyncExitStack() as stack:
        asked = await run_sync(load_asked, request.config)
        outbox = await run_sync(request.make_outbox)
        if outbox is not None:
            stack.push_async_callback(outbox.aclose)
        lock = None
        if isinstance(request.path, Prefix) and outbox is not None:
            lock = await stack.enter_async_context(
                held_lock(request.path, outbox, patience, fresh=request.fresh)
            )
        settings = replace(stages.sinks, outbox=outbox, patience=patience)
        outlets = []
        unused_sinks = await stack.enter_async_context(AsyncExitStack())  # the session closes those it used
        for sink in request.sinks:
            outlets.append(await _make_outlet(sink, request, settings, lock))
            unused_sinks.push_async_callback(_give_up_sink, outlets[-1].sink)
            await prepare(outlets[-1].sink)
        dump = await run_sync(request.load_dump)
        profiler = await run_sync(request.load_profiler)
        place = await request.open_destination(dump_path_of(asked), outbox, lock, patience)
        stack.push_async_callback(finish_in_thread, place.close)
        unused = await stack.enter_async_context(AsyncExitStack())  # what a run that has begun keeps
        held = HeldBytes(place.work_directory, memory_bytes=stages.pipeline.held_bytes)
        stack.push_async_callback(held.aclose)
        source = await stack.enter_async_context(request.source or RingSource(stages.ring))
        if dump is not None:
            await run_sync(dump.begin)
            stack.push_async_callback(_undo, dump)
        libraries = None if dump is None else ", ".join(dump.driver.paths)
        about_profile = None
        if profiler is not None and request.profile is not None and isinstance(place, Destination):
            unused.push_async_callback(finish_in_thread, place.drop_profile)
            path = await run_sync(place.make_profile)
            await stack.enter_async_context(profiling(profiler, path, request.profile))
            about_profile = request.profile.as_dict()
        about_config = None if asked is None else as_kept(asked)
        number = await run_sync(
            lambda: place.begin_run(
                options, acl_library=libraries, config=about_config, profile=about_profile
            )
        )
        unused.pop_all()
        journal = await _open_journal(place, outbox, stages.sinks.fsync, stack)
        pipeline = Pipeline(
            source=source,
            reassembler=Reassembler(stages.reassembly),
            outlets=outlets,
            journal=journal,
            held=held,
            options=stages.pipeline,
        )
        session = Session(
            place=place,
            number=number,
            pipeline=pipeline,
            outlets=outlets,
            journal=journal,
            dump=dump,
            patience=patience,
            modes=None if asked is None else asked.dump.modes,
            profile=None if profiler is None else PROFILE,
        )
        unused_sinks.pop_all()
        async with session.running():
            yield Capture(session)
    if pipeline.error is not None:
        if journal.waiting:
            pipeline.error.add_note(waiting_text(journal.waiting_files, stages.sinks.spill))
        raise pipeline.error


async def _make_outlet(
    sink: str | Sink | ObjectStore, request: Request, settings: SinkSettings, lock: StoreLock | None
) -> Outlet:
    if is_store(sink):
        return Outlet("object", ObjectStoreSink(Prefix.of(sink), settings))
    if not isinstance(sink, str):
        return Outlet(type(sink).__name__.removesuffix("Sink").lower(), cast("Sink", sink))
    kind, _, location = sink.partition(":")
    refuse_without_directory(kind, location, request.path)
    if isinstance(request.path, Prefix) and kind == "zstd" and not location:
        fresh = request.force or request.fresh
        store = ObjectStoreSink(request.path, settings, inside=lock, fresh=fresh, probed=request.fresh)
        return Outlet(kind, store)
    factory = await run_sync(find_factory, kind)
    return Outlet(kind, make_sink(kind, factory, location, settings))


async def _open_journal(
    place: Destination | RemoteDestination, outbox: Outbox | None, fsync: Fsync, stack: AsyncExitStack
) -> Lines:
    with anyio.CancelScope(shield=True):  # the run has begun, so it must come to an end
        try:
            with explained(place.path):
                journal = await stack.enter_async_context(_journal(place, outbox, fsync))
        except BaseException:
            await run_sync(place.end_run, Outcome.FAILED)
            raise
    return journal


def _journal(
    place: Destination | RemoteDestination, outbox: Outbox | None, fsync: Fsync
) -> AbstractAsyncContextManager[Lines]:
    if isinstance(place, RemoteDestination):
        return place.open_journal(fsync)
    if outbox is not None:
        return open_local_journal(outbox, place.journal_path, place.manifest, fsync)
    return Journal.open(place.journal_path, fsync=fsync)


async def _undo(dump: Dump) -> None:
    """Undo a beginning that came to nothing; why it did is what the caller must hear of."""
    with suppress(DumpstreamError):
        await finish_in_thread(dump.undo)


async def _give_up_sink(sink: Sink) -> None:
    """Close a sink if the capture could not begin; after a run it is closed already."""
    with anyio.CancelScope(shield=True), suppress(Exception):
        await sink.aclose()
