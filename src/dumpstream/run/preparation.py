"""Preparation: every step of a capture that may be refused, before the first one that lasts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DestinationInUseError, SinkError, StoreError
from dumpstream.acl.dump import Dump
from dumpstream.acl.library import load_profiling
from dumpstream.archive.destination import Destination, join_job
from dumpstream.archive.nowhere import Nowhere
from dumpstream.names import NamePatterns
from dumpstream.objectstore.patience import ask
from dumpstream.profiling.profiler import Profiler
from dumpstream.remote.destination import RemoteDestination, join_store_job, open_remote_destination
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.outboxes import state_directory
from dumpstream.remote.quota import Quota
from dumpstream.run.dumping import load_dump
from dumpstream.run.forwarding import Forwarder
from dumpstream.run.request import Request
from dumpstream.sinks import (
    Sink,
    SinkFactory,
    find_factory,
    make_sink,
    prepare,
    sink_directory,
    stores_bytes,
)
from dumpstream.sinks._failure import refuse_unwritable
from dumpstream.sinks._shape import refuse_misshapen
from dumpstream.sinks._spool import Spool
from dumpstream.sinks.objectstore import ObjectStoreSink
from dumpstream.sinks.resources import Resources
from dumpstream.stages.finished import FinishedFile
from dumpstream.stages.notices import Notices
from dumpstream.stages.outlet import Only, Outlet
from dumpstream.system.cancellation import finish_in_thread
from dumpstream.system.location import SCHEMES, Prefix, is_remote, is_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from dumpstream.config import AclConfig
    from dumpstream.run.alerting import Alerting


_log = logging.getLogger(__name__)
_ALERTING = "dumpstream.run.alerting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """A capture that nothing can refuse any more."""

    request: Request
    resources: Resources  #: with the outbox of the capture, if it has one
    asked: AclConfig | None  #: what the request's *config* asks for
    destination: Destination | RemoteDestination | Nowhere
    notices: Notices
    forwarder: Forwarder | None  #: takes files to the consumers, if they are in another process
    spool: Spool | None  #: the sink that keeps files for their consumers, if nothing is stored
    alerting: Alerting | None  #: looks for bad values while it runs
    outlets: Sequence[Outlet]
    unused_sinks: AsyncExitStack  #: closes the sinks, unless a session has taken them over
    dump: Dump | None
    library: str | None  #: where the dump functions come from
    profiler: Profiler | None


@asynccontextmanager
async def prepared(
    request: Request, resources: Resources, forwarder: Forwarder | None = None
) -> AsyncIterator[Preparation]:
    """Do everything that may be refused, and undo it after the block as far as no run has begun."""
    asked = await run_sync(load_asked, request.config)
    async with (
        _held_destination(request, resources, asked) as (destination, outbox),
        AsyncExitStack() as unused_sinks,
    ):
        notices = Notices()
        wanted = partial(notices.wants, FinishedFile) if forwarder is None else forwarder.is_wanted
        alerting = await _make_alerting(request, asked, notices)
        listener = None if alerting is None else alerting.lookout
        resources = replace(resources, outbox=outbox, rows_wanted=wanted, listener=listener)
        spool = Spool(wanted) if isinstance(destination, Nowhere) else None
        outlets = [] if spool is None else [Outlet("spool", spool)]
        for sink in request.sinks:
            outlet = await _make_outlet(sink, request, resources, destination)
            outlets.append(outlet._replace(only=_only(request, outlet.sink)))
            unused_sinks.push_async_callback(_give_up_sink, outlets[-1].sink)
            refuse_misshapen(outlet.label, outlet.sink)
            await prepare(outlets[-1].sink)
        if alerting is not None:
            outlets += await run_sync(_measuring, request, resources, outlets)
        dump = await run_sync(load_dump, request)
        yield Preparation(
            request=request,
            resources=resources,
            asked=asked,
            destination=destination,
            notices=notices,
            forwarder=forwarder,
            spool=spool,
            alerting=alerting,
            outlets=outlets,
            unused_sinks=unused_sinks,
            dump=dump,
            library=None if dump is None else ", ".join(dump.driver.paths),
            profiler=await run_sync(_load_profiler, request),
        )


def _held_destination(
    request: Request, resources: Resources, asked: AclConfig | None
) -> AbstractAsyncContextManager[tuple[Destination | RemoteDestination | Nowhere, Outbox | None]]:
    """Do as `held_destination`, also if *request* has no destination."""
    if request.destination is None:
        return nullcontext((Nowhere(), None))
    return held_destination(request, resources, asked)


@asynccontextmanager
async def held_destination(
    request: Request, resources: Resources, asked: AclConfig | None = None
) -> AsyncIterator[tuple[Destination | RemoteDestination, Outbox | None]]:
    """Hold the destination of *request*, and its outbox if it needs one, while the block runs.

    Raises:
        DestinationInUseError: another capture is writing there.
        DestinationError: it cannot take a capture.
    """
    async with AsyncExitStack() as stack:
        await _join(request.job, request.destination)
        outbox = await run_sync(make_outbox, request, resources)
        if outbox is not None:
            stack.push_async_callback(outbox.aclose)
        options = {"append": request.append, "force": request.force, "of_processes": request.of_processes}
        destination: Destination | RemoteDestination
        if isinstance(request.destination, Prefix):
            assert outbox is not None
            patience, held = resources.patience, resources.locks
            with _told_of_host(request):
                destination = await stack.enter_async_context(
                    open_remote_destination(
                        request.destination, outbox, patience=patience, held=held, **options
                    )
                )
        else:
            assert request.destination is not None
            dump_path = Path(asked.dump.dump_path) if asked and asked.dump.dump_path else None
            opening = partial(Destination.open, request.destination, dump_path=dump_path, **options)
            with _told_of_host(request):
                destination = await run_sync(opening)
            stack.push_async_callback(finish_in_thread, destination.close)
        if request.job is not None:
            destination.manifest.host = request.destination.name
        yield destination, outbox


async def _join(job: Path | Prefix | None, host: Path | Prefix | None) -> None:
    """Mark *job*, if there is one, unless another host has done so."""
    if isinstance(job, Prefix):
        await ask(partial(join_store_job, job))
    elif job is not None:
        assert host is not None
        await run_sync(join_job, job, host.name)


@contextmanager
def _told_of_host(request: Request) -> Iterator[None]:
    """Say in an error of the block that another host of the job may have the same name."""
    try:
        yield
    except DestinationInUseError as exc:
        if request.job is None:
            raise
        remedy = "if that is another host of the job, give each its own name with --host (host=)"
        raise DestinationInUseError(exc.path, exc.pid, exc.host, remedy=remedy) from None


def make_outbox(request: Request, resources: Resources) -> Outbox | None:
    """Make the local directory of a capture that writes to a store; blocks. None if it does not."""
    settings, destination = request.stages.sinks, request.destination
    spills = settings.spill is not None and not request.of_processes and any(map(is_remote, request.sinks))
    if destination is None or (isinstance(destination, Path) and not spills):
        return None
    return Outbox.make(
        settings.spill or state_directory(),
        destination.url if isinstance(destination, Prefix) else str(destination),
        quota=Quota(settings.spill_bytes, resources.quota) if settings.spill else None,
        on_full=request.on_full,
    )


def load_asked(config: Path | None) -> AclConfig | None:
    """Return what the file *config* asks for, if there is one; log it if that is nothing.

    Raises:
        ConfigError: CANN would refuse it.
    """
    if config is None:
        return None
    from dumpstream.config import find_emptiness, load_config  # noqa: PLC0415 - pydantic takes long to load

    loaded = load_config(config)
    for problem in find_emptiness(loaded.content):
        _log.warning("%s: %s: %s", config, problem.path, problem.text)
    if "exception" in loaded.config.dump.modes:
        _log.warning("%s: exception dumps go to disk, never through the callback: expect no files", config)
    return loaded.config


def check_directory(sink: str) -> None:
    """Raise `SinkError` if *sink* has a directory of its own that cannot be written; blocks."""
    kind, _, location = sink.partition(":")
    if kind in {"stats", "zstd"} and (root := sink_directory(kind, location)) is not None:
        refuse_unwritable(kind, root)


def check_sink(spec: str, destination: Path | Prefix | None) -> None:
    """Raise `SinkError` if the sink *spec* of a capture at *destination* cannot write where it is to."""
    kind, _, location = spec.partition(":")
    if kind in SCHEMES:
        try:
            prefix = Prefix.parse(spec)
        except StoreError as exc:
            raise SinkError(f"--sink {kind}: {exc}") from None
        if prefix == destination:
            raise SinkError(
                f"{prefix} is where the capture itself is; to store files there write --sink zstd:"
            )
    if kind in {"zstd", "stats"}:
        sink_directory(kind, location)
    if destination is None and kind in {"stats", "zstd"} and not location.partition("?")[0]:
        raise SinkError(f"{kind}: needs a directory if the capture stores nothing; write {kind}:DIR")


async def _make_outlet(
    sink: str | Sink | ObjectStore,
    request: Request,
    resources: Resources,
    destination: Destination | RemoteDestination | Nowhere,
) -> Outlet:
    settings = request.stages.sinks
    if is_store(sink):
        return Outlet("object", ObjectStoreSink(Prefix.of(sink), settings, resources))
    if not isinstance(sink, str):
        return Outlet(type(sink).__name__.removesuffix("Sink").lower(), cast("Sink", sink))
    check_sink(sink, request.destination)
    if not request.prefix:  # a collector has looked once, at what its processes have in common
        await run_sync(check_directory, sink)
    kind, _, location = sink.partition(":")
    if isinstance(destination, RemoteDestination) and kind == "zstd" and not location:
        return Outlet(kind, ObjectStoreSink(destination.path, settings, resources, inside=destination))
    factory = await run_sync(find_factory, kind, resources)
    if isinstance(destination, RemoteDestination) and kind == "stats":
        factory = cast("SinkFactory", partial(cast("Any", factory), inside=destination))
    return Outlet(kind, make_sink(kind, factory, location, settings))


async def _make_alerting(request: Request, asked: AclConfig | None, notices: Notices) -> Alerting | None:
    if request.alert is None:
        return None
    await run_sync(import_module, _ALERTING)  # numpy takes long to load
    from dumpstream.run.alerting import Alerting  # noqa: PLC0415 - likewise

    alerting = Alerting(request.alert, notices)
    if asked is not None:
        alerting.lookout.configure([asked.dump])
    return alerting


def _measuring(request: Request, resources: Resources, outlets: Sequence[Outlet]) -> list[Outlet]:
    """Return a sink that measures for the alerts, unless one of *outlets* does so already."""
    from dumpstream.sinks.measuring import MeasuringSink  # noqa: PLC0415 - numpy takes long to load

    if any(isinstance(outlet.sink, MeasuringSink) for outlet in outlets):
        return []
    threads = max(request.stages.sinks.workers, 1)
    return [Outlet("alert", MeasuringSink(threads, resources.threads, listener=resources.listener))]


def _only(request: Request, sink: Sink) -> Only | None:
    """Return which files *sink* gets, if not all."""
    patterns = request.stages.pipeline.only
    return Only(NamePatterns(patterns), request.prefix) if patterns and stores_bytes(sink) else None


async def _give_up_sink(sink: Sink) -> None:
    with anyio.CancelScope(shield=True), suppress(Exception):
        await sink.aclose()


def _load_profiler(request: Request) -> Profiler | None:
    return None if request.profile is None else Profiler(load_profiling(request.acl_library))
