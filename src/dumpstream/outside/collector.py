"""Collector: captures processes from outside, each into a capture of its own below one place."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Unpack

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import CollectorError, DumpstreamError
from dumpstream.archive.destination import absolute
from dumpstream.capture import open_request
from dumpstream.objectstore.patience import Patience, ask
from dumpstream.outside.connection import listen, make_private_directory
from dumpstream.outside.liveness import watch_process
from dumpstream.outside.process import CapturedProcess, Follower, introduced
from dumpstream.outside.reception import Reception
from dumpstream.outside.request import CollectorRequest
from dumpstream.outside.roster import ProcessList
from dumpstream.outside.shares import LEAST_SHARE, Shares
from dumpstream.outside.wire import VERSION, encode, parse_hello
from dumpstream.remote.destination import held_lock
from dumpstream.remote.outbox import waiting_text
from dumpstream.remote.room import Room
from dumpstream.request import DEFAULT_SINKS, as_json, load_asked
from dumpstream.stages.options import CaptureOptions, StageOptions
from dumpstream.stages.report import Report, total_report
from dumpstream.system.cancellation import finish_in_thread, isolated
from dumpstream.system.location import Prefix, as_location

if TYPE_CHECKING:
    import os
    import socket
    from collections.abc import AsyncIterator, Sequence

    from anyio.abc import TaskGroup
    from obstore.store import ObjectStore

    from dumpstream.archive.history import History
    from dumpstream.config import AclConfig
    from dumpstream.outside.connection import Connection
    from dumpstream.outside.liveness import WatchedProcess
    from dumpstream.outside.wire import Hello, Message

    StrPath = str | os.PathLike[str]

#: Captures that are begun at the same time; the others wait for their turn.
_BEGINNINGS = 8


@asynccontextmanager
async def open_collector(
    destination: StrPath | Prefix | ObjectStore,
    *,
    socket_path: StrPath | None = None,
    config: StrPath | None = None,
    sinks: Sequence[str] | None = None,
    append: bool = False,
    force: bool = False,
    **options: Unpack[CaptureOptions],
) -> AsyncIterator[Collector]:
    """Capture every process that joins while the block runs, each into a capture of its own.

    A process joins by the environment that `target_environment` makes, or by `attach`. Leaving the block
    takes nothing more from those that still run, and finishes what has come. One process never hurts another:
    what fails in the capture of one is in its report, and is not raised.

    Args:
        destination: a directory for these captures alone, or a place in an object store: a URL such as
            ``s3://bucket/run``, or a store of obstore.
        socket_path: where to listen; by default in a new private directory.
        config: the dump configuration (``acl.json``) that every process applies.
        sinks: ``kind:location`` strings; a process's directory is added to a location. By default ``zstd:``.
        append: add processes to those that are in *destination*.
        force: delete what is captured in *destination*.
        **options: see `CaptureOptions`. `buffer_bytes`, `held_bytes`, `gathered_bytes`, `workers`,
            `max_descriptors` and `spill_bytes` are for all processes together; `buffer_file` is a directory,
            with a file each, and only for captures in directories.

    Raises:
        CollectorError: the socket cannot be made.
        ConfigError: CANN would refuse *config*.
        DestinationError: *destination* cannot take captures.
        SinkError: there is no such sink, or its store does not answer.
        DestinationInUseError: another capture is writing to the place of such a sink, or to *destination*.
        StoreError: *destination* is a URL that names no place.
        TypeError: there is no such option.
        ValueError: an option is out of range.
    """
    place = as_location(destination)
    path = place if isinstance(place, Prefix) else await run_sync(absolute, place)
    stages = StageOptions.divide(options, directory=path if isinstance(path, Path) else Path())
    assert stages.ring is not None
    if stages.ring.buffer_bytes < LEAST_SHARE:
        raise ValueError(
            f"buffer_bytes must be at least {LEAST_SHARE} (4 MiB) for a capture from outside, "
            f"not {stages.ring.buffer_bytes}"
        )
    if isinstance(path, Prefix) and stages.ring.buffer_file is not None:
        raise ValueError(
            "buffer_file is for captures in directories: `dumpstream recover` writes to no object store"
        )
    request = CollectorRequest(
        path,
        None if config is None else await run_sync(absolute, config),
        tuple(sinks or DEFAULT_SINKS),
        append,
        force,
        stages.ring,
        stages,
        as_json(options),
        anyio.CapacityLimiter(stages.sinks.workers),
        Room(stages.sinks.spill_bytes),
    )
    where = None if socket_path is None else await run_sync(absolute, socket_path)
    async with isolated(_open(request, where)) as collector:
        yield collector


@asynccontextmanager
async def _open(request: CollectorRequest, socket_path: Path | None) -> AsyncIterator[Collector]:
    async with AsyncExitStack() as stack:
        if socket_path is None:
            directory = await run_sync(make_private_directory)
            stack.push_async_callback(finish_in_thread, directory.cleanup)
            socket_path = Path(directory.name, "socket")
        listener = await run_sync(listen, socket_path)
        stack.callback(listener.close)
        stack.push_async_callback(finish_in_thread, partial(socket_path.unlink, missing_ok=True))
        patience = Patience(spills=request.stages.sinks.spill is not None)
        locks = await ask(partial(request.check_sinks, patience))
        for lock in locks:
            await stack.enter_async_context(lock.held())
            await ask(lock.take)
        request = request.with_locks(locks)
        outbox = await run_sync(request.make_outbox)
        lock_of_place = None
        if outbox is not None and isinstance(request.path, Prefix):
            stack.push_async_callback(outbox.aclose)
            lock_of_place = await stack.enter_async_context(
                held_lock(request.path, outbox, patience, fresh=False)
            )
        asked = await run_sync(load_asked, request.config)
        place = await request.open_destination(asked, outbox, lock_of_place, patience)
        stack.push_async_callback(finish_in_thread, place.close)
        await run_sync(place.begin_processes)
        stack.push_async_callback(finish_in_thread, place.end_processes)
        shares = Shares(request.ring.buffer_bytes, request.ring.buffer_file)
        stack.push_async_callback(shares.aclose)
        async with anyio.create_task_group() as tasks:
            collector = Collector(
                request,
                asked=asked,
                place=place,
                shares=shares,
                socket_path=socket_path,
                listener=listener,
                tasks=tasks,
                patience=patience,
            )
            try:
                yield collector
            finally:
                collector.stop()
    if collector.error is not None:
        if (report := collector.report).waiting:
            collector.error.add_note(waiting_text(report.waiting_files, request.stages.sinks.spill))
        raise collector.error


class Collector:
    """A collector that is running, or has run."""

    def __init__(
        self,
        request: CollectorRequest,
        *,
        asked: AclConfig | None,
        place: History,
        shares: Shares,
        socket_path: Path,
        listener: socket.socket,
        tasks: TaskGroup,
        patience: Patience,
    ) -> None:
        self.path = place.path  #: where the captures are
        self.socket_path = socket_path  #: where it listens
        self._request, self._shares, self._tasks = request, shares, tasks
        self._asked, self._patience = asked, patience
        self._place = place
        self._list = ProcessList(place)
        self._reception: Reception | None = Reception(listener, self._hear, self._hang_up)
        self._joining: set[Connection] = set()
        self._followers: dict[Connection, Follower] = {}  #: who is heard now
        self._following: set[Follower] = set()  #: also those whose process has left, and still runs
        self._served = 0
        self._change = anyio.Event()
        self._beginning = anyio.CapacityLimiter(_BEGINNINGS)
        self._started = self._ended = monotonic()
        tasks.start_soon(shares.make_spare)

    @property
    def processes(self) -> Sequence[CapturedProcess]:
        """Those that have joined, or tried to, in the order in which they came."""
        return tuple(self._list.processes)

    @property
    def error(self) -> DumpstreamError | None:
        """Why the list of processes could not be written; it is raised when the block is left."""
        return self._list.error

    @property
    def running(self) -> int:
        """How many of them have not been seen to end."""
        return sum(not follower.gone.is_set() for follower in self._following)

    @property
    def report(self) -> Report:
        """What has been seen and done so far, over all processes; may be read at any time."""
        running = self._served or self._reception is not None
        seconds = (monotonic() if running else self._ended) - self._started
        report = total_report([process.report for process in self.processes], seconds)
        return replace(report, waiting=report.waiting + self._place.waiting)

    @property
    def whole(self) -> bool:
        """Whether every process was captured as it should have been, and everything is whole."""
        return self._list.whole

    async def idle(self) -> None:
        """Return when no process is captured, or about to join; others may still come later."""
        while self._reception is not None:
            self._reception.let_in()
            if not self._served and self._reception.empty:
                return
            await self._change.wait()

    async def stopped(self) -> None:
        """Return when `stop` was called."""
        while self._reception is not None:
            await self._change.wait()

    def stop(self) -> None:
        """Take nothing more from any process, and let no other join; what has come is finished."""
        if self._reception is not None:
            self._reception.close()
            self._reception = None
        for follower in self._following:
            follower.connection.send(encode("end"))
            follower.dismiss()
        self._note_change()

    def hurry(self, seconds: float | None = None) -> None:
        """End soon once the block is left, also if an object store is away; see `Capture.hurry`."""
        self._patience.limit(seconds)

    # What peers say

    def _hear(self, connection: Connection, message: Message) -> None:
        follower = self._followers.get(connection)
        if message.kind != "hello":
            if follower is not None:
                follower.hear(message)
        elif connection not in self._joining and (follower is None or follower.over.is_set()):
            self._joining.add(connection)
            self._served += 1
            self._tasks.start_soon(self._serve, connection, parse_hello(message))

    def _hang_up(self, connection: Connection) -> None:
        follower = self._followers.pop(connection, None)
        if follower is not None:
            follower.hang_up()
        self._note_change()

    def _note_change(self) -> None:
        self._change.set()
        self._change = anyio.Event()

    # A process from its introduction to its end

    async def _serve(self, connection: Connection, hello: Hello) -> None:
        try:
            with watch_process(connection.pid) as process:
                await self._admit(connection, hello)
                await self._follow(await self._begin(connection, hello), hello, process)
        except ProcessLookupError:
            connection.close()  # it has ended, and had no ring yet
        except DumpstreamError as exc:
            await self._refuse(connection, hello, str(exc))
        finally:
            self._joining.discard(connection)
            self._served -= 1
            self._ended = monotonic()
            self._note_change()

    async def _admit(self, connection: Connection, hello: Hello) -> None:
        """Return when nothing is left to do of an earlier capture of the same process."""
        if hello.version != VERSION:
            raise CollectorError(
                f"its agent speaks version {hello.version} of the protocol, and the collector {VERSION}; "
                "use the agent of the same dumpstream"
            )
        for follower in [*self._following]:
            if follower.process.record.pid == connection.pid:
                follower.connection.read()  # a farewell may be waiting there
                if not follower.over.is_set():
                    if follower.connection.open:
                        raise CollectorError("it is being captured already; let a process join once")
                    follower.replace()
                await follower.stored.wait()

    async def _begin(self, connection: Connection, hello: Hello) -> Follower:
        """Give the process a ring, which it waits for, and then its capture a directory."""
        share = await self._shares.take(hello.local_size, f"{connection.pid}-{secrets.token_hex(4)}.ring")
        process = CapturedProcess(introduced(connection.pid, hello))
        follower = Follower(process, connection, share, environment=hello.environment, asked=self._asked)
        try:
            if share.file is not None:  # what is in it must be found if this collector dies
                await self._list.add(process, share.file)
            self._following.add(follower)
            self._followers[connection] = follower
            self._hand_over(follower)
            if share.file is None:
                await self._list.add(process)
        except BaseException:
            self._following.discard(follower)
            await share.aclose()
            raise
        if self._reception is None:
            follower.dismiss()
        return follower

    async def _follow(self, follower: Follower, hello: Hello, process: WatchedProcess) -> None:
        """Capture until the process leaves or ends; then write down how it ended."""
        process.watch(follower.end)
        try:
            await self._store(follower, hello)
            await follower.gone.wait()
        finally:
            self._following.discard(follower)
            with anyio.CancelScope(shield=True):
                await self._list.end(follower.process, await follower.ending(process))
            if self._followers.get(follower.connection) is follower:
                follower.connection.close()

    async def _store(self, follower: Follower, hello: Hello) -> None:
        process, connection = follower.process, follower.connection
        request = self._request.part(process.record.directory, follower.source, hello.local_size)
        try:
            async with AsyncExitStack() as stack:
                async with self._beginning:
                    process.capture = await stack.enter_async_context(
                        open_request(request, self._request.options, self._patience.part())
                    )
                await follower.attend(process.capture)
        except Exception as exc:  # noqa: BLE001 - what fails for one process must not end the others
            process.fail(str(exc))
            if process.capture is None:
                process.record.directory = ""
                connection.send(encode("end"))
                follower.dismiss()
        finally:
            with anyio.CancelScope(shield=True):
                await self._list.drop_ring(process)
                await follower.share.aclose()
            process.finish()
            follower.stored.set()

    def _hand_over(self, follower: Follower) -> None:
        share, connection = follower.share, follower.connection
        self._joining.discard(connection)
        self._tasks.start_soon(self._shares.make_spare)
        if not connection.send(self._request.answer(share.size), share.ring.fileno()):
            follower.process.fail("it did not wait for its ring, and ran uncaptured")
            follower.leave()

    async def _refuse(self, connection: Connection, hello: Hello, reason: str) -> None:
        connection.send(encode("refused", [("reason", reason)]))
        connection.close()
        await self._list.refuse(CapturedProcess(introduced(connection.pid, hello)), reason)
