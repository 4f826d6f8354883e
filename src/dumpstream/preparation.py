"""Preparation: every step of a capture that may be refused, before the first one that lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import SinkError
from dumpstream.acl.dump import Dump
from dumpstream.acl.library import load_acl, load_profiling
from dumpstream.acl.lifecycle import Lifecycle
from dumpstream.archive.destination import Destination
from dumpstream.profiling.profiler import Profiler
from dumpstream.remote.destination import RemoteDestination, open_remote_destination
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.outboxes import state_directory
from dumpstream.remote.quota import Quota
from dumpstream.request import Request
from dumpstream.sinks import Sink, find_factory, make_sink, prepare
from dumpstream.sinks.objectstore import ObjectStoreSink
from dumpstream.sinks.resources import Resources
from dumpstream.stages.outlet import Outlet
from dumpstream.system.cancellation import finish_in_thread
from dumpstream.system.location import Prefix, is_remote, is_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from dumpstream.config import AclConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """A capture that nothing can refuse any more."""

    request: Request
    resources: Resources  #: with the outbox of the capture, if it has one
    asked: AclConfig | None  #: what the request's *config* asks for
    destination: Destination | RemoteDestination
    outlets: Sequence[Outlet]
    unused_sinks: AsyncExitStack  #: closes the sinks, unless a session has taken them over
    dump: Dump | None
    profiler: Profiler | None


@asynccontextmanager
async def prepared(request: Request, resources: Resources) -> AsyncIterator[Preparation]:
    """Do everything that may be refused, and undo it after the block as far as no run has begun."""
    asked = await run_sync(load_asked, request.config)
    async with (
        held_destination(request, resources, asked) as (destination, outbox),
        AsyncExitStack() as unused_sinks,
    ):
        resources = replace(resources, outbox=outbox)
        outlets = []
        for sink in request.sinks:
            outlets.append(await _make_outlet(sink, request, resources, destination))
            unused_sinks.push_async_callback(_give_up_sink, outlets[-1].sink)
            await prepare(outlets[-1].sink)
        yield Preparation(
            request=request,
            resources=resources,
            asked=asked,
            destination=destination,
            outlets=outlets,
            unused_sinks=unused_sinks,
            dump=await run_sync(_load_dump, request),
            profiler=await run_sync(_load_profiler, request),
        )


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
        outbox = await run_sync(make_outbox, request, resources)
        if outbox is not None:
            stack.push_async_callback(outbox.aclose)
        options = {"append": request.append, "force": request.force, "of_processes": request.of_processes}
        destination: Destination | RemoteDestination
        if isinstance(request.destination, Prefix):
            assert outbox is not None
            patience, held = resources.patience, resources.locks
            destination = await stack.enter_async_context(
                open_remote_destination(request.destination, outbox, patience=patience, held=held, **options)
            )
        else:
            dump_path = Path(asked.dump.dump_path) if asked and asked.dump.dump_path else None
            opening = partial(Destination.open, request.destination, dump_path=dump_path, **options)
            destination = await run_sync(opening)
            stack.push_async_callback(finish_in_thread, destination.close)
        yield destination, outbox


def make_outbox(request: Request, resources: Resources) -> Outbox | None:
    """Make the local directory of a capture that writes to a store; blocks. None if it does not."""
    settings, destination = request.stages.sinks, request.destination
    spills = settings.spill is not None and not request.of_processes and any(map(is_remote, request.sinks))
    if isinstance(destination, Path) and not spills:
        return None
    return Outbox.make(
        settings.spill or state_directory(),
        destination.url if isinstance(destination, Prefix) else str(destination),
        quota=Quota(settings.spill_bytes, resources.quota) if settings.spill else None,
        on_full=request.on_full,
    )


def load_asked(config: Path | None) -> AclConfig | None:
    """Return what the file *config* asks for, if there is one.

    Raises:
        ConfigError: CANN would refuse it.
    """
    if config is None:
        return None
    from dumpstream.config import load_config  # noqa: PLC0415 - pydantic takes long to load

    return load_config(config).config


def refuse_without_directory(kind: str, location: str, destination: Path | Prefix) -> None:
    """Raise `SinkError` if a sink needs a directory and has none, because the capture is in a store."""
    if isinstance(destination, Prefix) and kind == "stats" and not location.partition("?")[0]:
        raise SinkError("stats: needs a directory if the capture is in a store; write stats:DIR")


async def _make_outlet(
    sink: str | Sink | ObjectStore,
    request: Request,
    resources: Resources,
    destination: Destination | RemoteDestination,
) -> Outlet:
    settings = request.stages.sinks
    if is_store(sink):
        return Outlet("object", ObjectStoreSink(Prefix.of(sink), settings, resources))
    if not isinstance(sink, str):
        return Outlet(type(sink).__name__.removesuffix("Sink").lower(), cast("Sink", sink))
    kind, _, location = sink.partition(":")
    refuse_without_directory(kind, location, request.destination)
    if isinstance(destination, RemoteDestination) and kind == "zstd" and not location:
        return Outlet(kind, ObjectStoreSink(destination.path, settings, resources, inside=destination))
    factory = await run_sync(find_factory, kind, resources)
    return Outlet(kind, make_sink(kind, factory, location, settings))


async def _give_up_sink(sink: Sink) -> None:
    with anyio.CancelScope(shield=True), suppress(Exception):
        await sink.aclose()


def _load_dump(request: Request) -> Dump | None:
    if request.source is not None:
        return None
    driver = request.driver or load_acl(request.acl_library)
    return Dump(Lifecycle(driver, initialized=True), request.config)


def _load_profiler(request: Request) -> Profiler | None:
    return None if request.profile is None else Profiler(load_profiling(request.acl_library))
