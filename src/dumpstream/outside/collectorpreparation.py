"""Preparation of a collector: every step that may be refused, before the first one that lasts."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.to_thread import run_sync

from dumpstream.archive.manifestwriter import ManifestWriter
from dumpstream.objectstore.client import RETRY_S
from dumpstream.objectstore.patience import Patience, ask
from dumpstream.outside.collectorrequest import CollectorRequest
from dumpstream.outside.connection import listen, make_private_directory
from dumpstream.remote.destination import RemoteDestination
from dumpstream.remote.quota import Quota
from dumpstream.remote.storelock import StoreLock
from dumpstream.remote.uploader import SHORT_RETRY_S
from dumpstream.run.preparation import check_directory, check_sink, held_destination, load_asked
from dumpstream.sinks import find_factory
from dumpstream.sinks._shape import refuse_misshapen
from dumpstream.sinks.objectstore import probe_store
from dumpstream.sinks.resources import Resources
from dumpstream.system.cancellation import finish_in_thread
from dumpstream.system.location import Prefix, is_remote

if TYPE_CHECKING:
    from dumpstream.config import AclConfig


class CollectorPreparation(NamedTuple):
    """A collector that nothing can refuse any more."""

    request: CollectorRequest
    asked: AclConfig | None  #: what every process is asked to dump
    destination: ManifestWriter
    resources: Resources  #: what the captures of all processes share
    listener: socket.socket
    socket_path: Path


@asynccontextmanager
async def prepared_collector(
    request: CollectorRequest, socket_path: Path | None
) -> AsyncIterator[CollectorPreparation]:
    """Do everything that may be refused, and undo it after the block as far as nothing has begun."""
    settings = request.stages.sinks
    asked = await run_sync(load_asked, request.config)
    resources = Resources(
        quota=Quota(settings.spill_bytes),
        threads=anyio.CapacityLimiter(settings.workers),
        patience=Patience(spills=settings.spill is not None),
    )
    async with (
        _listening(socket_path) as (listener, path),
        _held_sinks(request, resources.patience) as locks,
        held_destination(request, resources, asked) as (destination, _),
    ):
        if isinstance(destination, RemoteDestination):
            locks.append(destination.lock)
        resources = replace(resources, locks=locks)
        yield CollectorPreparation(request, asked, destination, resources, listener, path)


@asynccontextmanager
async def _listening(path: Path | None) -> AsyncIterator[tuple[socket.socket, Path]]:
    """Listen at *path*, or in a new private directory."""
    async with AsyncExitStack() as stack:
        if path is None:
            directory = await run_sync(make_private_directory)
            stack.push_async_callback(finish_in_thread, directory.close)
            path = directory.path / "socket"
        listener = await run_sync(listen, path)
        stack.callback(listener.close)
        stack.push_async_callback(finish_in_thread, partial(path.unlink, missing_ok=True))
        yield listener, path


@asynccontextmanager
async def _held_sinks(request: CollectorRequest, patience: Patience) -> AsyncIterator[list[StoreLock]]:
    """Hold the stores that the sinks of all processes write to, and return the locks.

    Raises:
        SinkError: the processes cannot have such a sink, or its store does not answer.
        DestinationInUseError: another capture is writing there.
    """
    async with AsyncExitStack() as stack:
        locks = await ask(partial(_check_sinks, request, patience))
        for lock in locks:
            await stack.enter_async_context(lock.held())
            await ask(lock.take)
        yield locks


def _check_sinks(request: CollectorRequest, patience: Patience) -> list[StoreLock]:
    locks = []
    for sink in request.sinks:
        check_sink(sink, request.destination)
        if is_remote(sink):
            prefix = Prefix.parse(sink)
            probe_store(prefix)
            retry_s = RETRY_S if request.stages.sinks.spill is None else SHORT_RETRY_S
            locks.append(StoreLock(prefix, retry_s=retry_s, patience=patience))
        else:
            check_directory(sink)
            kind = sink.partition(":")[0]
            factory = find_factory(kind)
            if isinstance(factory, type):
                refuse_misshapen(kind, factory)
    return locks
