"""Beginning: the steps of a capture that last, once nothing can refuse it any more."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError
from dumpstream.archive.destination import Destination, explained
from dumpstream.archive.journal import Journal, Lines
from dumpstream.archive.manifest import LONGEST_CONFIG
from dumpstream.archive.nowhere import Nowhere
from dumpstream.archive.rows import Outcome
from dumpstream.pipeline import Pipeline
from dumpstream.profiling.profile import profiling
from dumpstream.reassemble import Reassembler
from dumpstream.remote.destination import RemoteDestination
from dumpstream.remote.writeahead import open_local_journal
from dumpstream.run.dumping import dumping
from dumpstream.run.preparation import Preparation
from dumpstream.run.readback import reading_feed
from dumpstream.run.session import Session
from dumpstream.source import RingSource
from dumpstream.stages.feed import Feed, FileFeed
from dumpstream.system.heldbytes import HeldBytes

if TYPE_CHECKING:
    from dumpstream.config import AclConfig


@asynccontextmanager
async def begun(preparation: Preparation) -> AsyncIterator[Session]:
    """Start the source and the dump, and record that a run begins; the session is to run in the block."""
    request, stages = preparation.request, preparation.request.stages
    held = HeldBytes(preparation.destination.work_directory, memory_bytes=stages.pipeline.held_bytes)
    async with (
        aclosing(held),
        request.source or RingSource(stages.ring) as source,
        dumping(preparation.dump),
        _profiling(preparation),
        _begun_run(preparation) as (number, journal),
    ):
        pipeline = Pipeline(
            source=source,
            reassembler=Reassembler(stages.reassembly),
            outlets=preparation.outlets,
            journal=journal,
            held=held,
            options=stages.pipeline,
            notices=preparation.notices,
            feed=_make_feed(preparation),
            place=str(preparation.destination.path or "the capture"),
        )
        preparation.unused_sinks.pop_all()
        yield Session(preparation, pipeline=pipeline, journal=journal, number=number)


@asynccontextmanager
async def _profiling(preparation: Preparation) -> AsyncIterator[None]:
    profiler, settings = preparation.profiler, preparation.request.profile
    destination = preparation.destination
    if profiler is None or settings is None or not isinstance(destination, Destination):
        yield
        return
    path = await run_sync(destination.make_profile)
    async with profiling(profiler, path, settings):
        yield


@asynccontextmanager
async def _begun_run(preparation: Preparation) -> AsyncIterator[tuple[int, Lines]]:
    """Record that a run begins, and return its number and its journal."""
    request, destination = preparation.request, preparation.destination
    begin_run = partial(
        destination.begin_run,
        request.stages.given,
        codec=request.stages.sinks.codec,
        acl_library=preparation.library,
        config=None if preparation.asked is None else _as_kept(preparation.asked),
        profile=None if request.profile is None else request.profile.as_dict(),
    )
    async with AsyncExitStack() as stack:
        number = await run_sync(begin_run)
        with anyio.CancelScope(shield=True):  # the run has begun, so it must come to an end
            try:
                with explained(destination.path or "the capture"):
                    journal = await stack.enter_async_context(_open_journal(preparation))
            except BaseException:
                with suppress(DestinationError):  # the first error says more
                    await destination.finish_run(Outcome.FAILED)
                raise
        yield number, journal


def _open_journal(preparation: Preparation) -> AbstractAsyncContextManager[Lines]:
    destination, outbox = preparation.destination, preparation.resources.outbox
    if isinstance(destination, Nowhere):
        return nullcontext(destination)
    fsync = preparation.request.stages.sinks.fsync
    if isinstance(destination, RemoteDestination):
        return destination.open_journal(fsync)
    if outbox is not None:
        return open_local_journal(outbox, destination.journal_path, destination.manifest, fsync)
    return Journal.open(destination.journal_path, fsync=fsync)


def _make_feed(preparation: Preparation) -> Feed:
    if preparation.forwarder is not None:
        return preparation.forwarder
    location = preparation.destination.path
    if location is None:
        return FileFeed(preparation.notices, spool=preparation.spool)
    return reading_feed(preparation.notices, location)


def _as_kept(asked: AclConfig) -> dict[str, Any] | None:
    """Return *asked* for the manifest, unless it is so long that it would slow every reader down."""
    fields = asked.as_dict()
    return fields if len(json.dumps(fields)) <= LONGEST_CONFIG else None
