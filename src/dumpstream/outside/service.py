"""Service: what a collector does for each process, from its introduction to its end."""

import secrets
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import replace
from math import inf
from signal import SIGTERM
from time import monotonic

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync

from dumpstream._errors import CollectorError, DumpstreamError
from dumpstream.capture import Capture, open_request
from dumpstream.outside.collectorpreparation import CollectorPreparation
from dumpstream.outside.connection import Connection
from dumpstream.outside.process import CapturedProcess, Follower, introduced
from dumpstream.outside.roster import Roster
from dumpstream.outside.shares import EXPECTED, Shares
from dumpstream.outside.wire import VERSION, Hello, Message, encode, parse_hello
from dumpstream.processes.liveness import ProcessHandle, open_process
from dumpstream.stages.outlet import unwrapped

#: Captures that are begun at the same time; the others wait for their turn.
_BEGINNINGS = 8
#: A command that ends before this does not wait for what is loaded ahead.
_LOAD_AFTER_S = 0.1
#: How long the capture of a process that has got its ring may wait, while the process goes on with its start:
#: both may share a core.
_HEAD_START_S = 0.05
#: After an exec, a new child of the program before may have its copy of the connection for a moment.
_CLOSING_S = 2.0
#: Connections through which one process may ask at the same time; one that behaves has one.
_MOST_JOINING = 4
_TWICE = "it is being captured already; let every process join only once"


class Service:
    """Serves the processes that introduce themselves, each in a task of its own."""

    def __init__(
        self, preparation: CollectorPreparation, roster: Roster, shares: Shares, tasks: TaskGroup
    ) -> None:
        self._request, self._asked = preparation.request, preparation.asked
        self._resources = preparation.resources
        self._roster, self._shares, self._tasks = roster, shares, tasks
        self.served = 0  #: processes that are being served
        self.ended = -inf  #: when the last one ended
        self.heralds: list[Callable[[CapturedProcess, Capture], object]] = []  #: called as a capture begins
        self._joining: set[Connection] = set()
        self._followers: dict[Connection, Follower] = {}  # of processes that can still send messages
        self._following: set[Follower] = set()  # also of processes that have left and still run
        self._stopped = False
        self._change = anyio.Event()
        self._beginning = anyio.CapacityLimiter(_BEGINNINGS)
        self._ahead = anyio.CancelScope()
        tasks.start_soon(shares.make_spare)
        tasks.start_soon(self._load_ahead)

    @property
    def running(self) -> int:
        """How many processes have not been seen to end."""
        return sum(not follower.gone.is_set() for follower in self._following)

    async def changed(self) -> None:
        """Return when a process has come or gone, or `stop` was called."""
        await self._change.wait()

    def stop(self) -> None:
        """Take nothing more from any process; what has come is finished."""
        self._stopped = True
        self._ahead.cancel()
        for follower in self._following:
            follower.connection.send(encode("end"))
            follower.dismiss()
        self._note_change()

    def terminate(self, processes: Collection[CapturedProcess] | None = None) -> None:
        """Send SIGTERM to *processes* (all that are captured) if they still run."""
        for follower in self._following:
            if follower.handle is not None and (processes is None or follower.process in processes):
                follower.handle.send_signal(SIGTERM)

    def hear(self, connection: Connection, message: Message) -> None:
        """Take a message of a peer."""
        follower = self._followers.get(connection)
        if message.kind != "hello":
            if follower is not None:
                follower.hear(message)
        elif connection not in self._joining and (follower is None or follower.over.is_set()):
            self._joining.add(connection)
            self.served += 1
            self._tasks.start_soon(self._serve, connection, parse_hello(message))

    def hang_up(self, connection: Connection) -> None:
        """Expect no more messages on *connection*, which is closed."""
        follower = self._followers.pop(connection, None)
        if follower is not None:
            follower.source.hear_nothing()
        self._note_change()

    async def _load_ahead(self) -> None:
        """Load what reads the configuration of a process, before one shares its core with that."""
        with self._ahead:
            await anyio.sleep(_LOAD_AFTER_S)
            await run_sync(_load_modes)

    def _note_change(self) -> None:
        self._change.set()
        self._change = anyio.Event()

    async def _serve(self, connection: Connection, hello: Hello) -> None:
        try:
            with open_process(connection.pid) as process:
                await self._admit(connection, hello)
                await self._follow(await self._begin(connection, hello), hello, process)
        except ProcessLookupError:
            connection.close()  # the process has ended, and had no ring yet
        except DumpstreamError as exc:
            await self._refuse(connection, hello, str(exc))
        finally:
            self._joining.discard(connection)
            self.served -= 1
            self.ended = monotonic()
            self._note_change()

    async def _admit(self, connection: Connection, hello: Hello) -> None:
        """Return when an earlier capture of the same process, if there was one, is stored."""
        if hello.version != VERSION:
            raise CollectorError(
                f"its agent speaks version {hello.version} of the protocol, and the collector {VERSION}; "
                "use the agent of the same dumpstream"
            )
        if sum(other.pid == connection.pid for other in self._joining) > _MOST_JOINING:
            raise CollectorError(_TWICE)
        self._roster.refuse_if_full()  # before the process gets a ring
        for follower in [*self._following]:
            if follower.process.record.pid == connection.pid:
                follower.connection.read()  # it may hold the message that the process has left
                with anyio.move_on_after(_CLOSING_S):
                    while follower.connection.open and not follower.over.is_set():
                        await self.changed()
                if not follower.over.is_set():
                    if follower.connection.open:
                        raise CollectorError(_TWICE)
                    follower.replace()
                await follower.stored.wait()
                follower.rejoin()

    async def _begin(self, connection: Connection, hello: Hello) -> Follower:
        """Give the process the ring that it waits for, and its capture a directory."""
        share = await self._shares.take(hello.local_size, f"{connection.pid}-{secrets.token_hex(4)}.ring")
        process = CapturedProcess(introduced(connection.pid, hello))
        follower = Follower(process, connection, share, environment=hello.environment, asked=self._asked)
        try:
            if share.file is not None:  # `recover` must find it if this collector dies
                await self._roster.add(process, share.file)
            self._following.add(follower)
            self._followers[connection] = follower
            self._hand_over(follower)
            if share.file is None:
                await self._roster.add(process)
        except BaseException:
            self._following.discard(follower)
            await share.aclose()
            raise
        if self._stopped:
            follower.dismiss()
        return follower

    async def _follow(self, follower: Follower, hello: Hello, process: ProcessHandle) -> None:
        """Capture until the process leaves or ends; then record how it ended."""
        process.when_ended(follower.end)
        follower.handle = process
        try:
            await self._store(follower, hello)
            await follower.gone.wait()
        finally:
            follower.handle = None
            self._following.discard(follower)
            with anyio.CancelScope(shield=True):
                await self._roster.end(follower.process, await follower.ending(process))
            if self._followers.get(follower.connection) is follower:
                follower.connection.close()

    async def _store(self, follower: Follower, hello: Hello) -> None:
        process, connection = follower.process, follower.connection
        captures = hello.local_size or EXPECTED
        request = self._request.part(process.record.directory, follower.source, captures)
        resources = replace(self._resources, captures=captures, patience=self._resources.patience.part())
        told = False
        try:
            await follower.source.filling(_HEAD_START_S)
            async with AsyncExitStack() as stack:
                async with self._beginning:
                    process.capture = await stack.enter_async_context(open_request(request, resources))
                for herald in self.heralds:
                    herald(process, process.capture)
                await follower.attend(process.capture)
                told = process.capture.error is not None
        except Exception as exc:  # noqa: BLE001 - one process must not end the capture of the others
            process.fail(str(unwrapped(exc)), logged=not told)
            if process.capture is None:
                process.record.directory = ""
                connection.send(encode("end"))
                follower.dismiss()
        finally:
            with anyio.CancelScope(shield=True):
                await self._roster.drop_ring(process)
                await follower.share.aclose()
            self._roster.finish(process)
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
        await self._roster.refuse(CapturedProcess(introduced(connection.pid, hello)), reason)


def _load_modes() -> None:
    import dumpstream.analysis.modes  # noqa: F401, PLC0415 - pydantic takes long to load
