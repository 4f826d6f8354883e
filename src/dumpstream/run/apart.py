"""Apart: a run whose files a companion stores, a process of its own; only the callback is in the program."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync

from dumpstream import _native
from dumpstream._errors import CompanionError, DumpstreamError, RingError
from dumpstream.acl.dump import Dump
from dumpstream.archive.remains import Remains
from dumpstream.chunk import checked_step
from dumpstream.processes.channel import Message
from dumpstream.processes.interpreter import Interpreter, started
from dumpstream.run.dumping import dumping, end_dump, load_dump
from dumpstream.run.request import Request
from dumpstream.source import DETACH_LIMIT_NS, RingOptions, attach
from dumpstream.stages.notices import Notices, Progress
from dumpstream.stages.report import LossCount, Report
from dumpstream.system.location import Prefix

#: Kinds of sinks that are made from their text alone and leave nothing in the process that has them.
_SERVED_SINKS = frozenset({"az", "gs", "null", "obs", "s3", "stats", "zstd"})
_COMPANION = "dumpstream.companion"


class Order(NamedTuple):
    """What a companion is to do."""

    request: Request
    program: int  #: the process with the callback


def obstacle(request: Request) -> str | None:
    """Return why no companion can store what *request* asks for, or None if one can."""
    if request.source is not None:
        return "source= is an object of this process"
    if request.profile is not None:
        return "profile= is made in this process"
    if not all(isinstance(sink, str) and sink.partition(":")[0] in _SERVED_SINKS for sink in request.sinks):
        return "sinks= has objects of this process, or sinks of other packages"
    if request.destination is None:
        return "without a destination, files are for the consumers in this process"
    if isinstance(request.destination, Prefix) and request.destination.store is not None:
        return "the store is an object of this process"
    # A program that embeds Python may not have one.
    return None if sys.executable else "sys.executable does not name a Python interpreter"


@asynccontextmanager
async def apart(request: Request) -> AsyncIterator[Apart]:
    """Let a companion prepare, begin and run what *request* asks for, while the block runs.

    Raises what a run in this process would raise, and `CompanionError` if the companion ends early.
    """
    assert request.destination is not None
    async with _companion() as interpreter:
        order = Order(replace(request, driver=None, acl_library=None), os.getpid())
        ready = await _ask(interpreter, "order", order)
        assert request.stages.ring is not None
        async with _attached(interpreter, request.stages.ring, ready) as ring:
            dump = await run_sync(load_dump, request)
            async with dumping(dump):
                paths = None if dump is None else ", ".join(dump.driver.paths)
                remains = (await _ask(interpreter, "begin", paths)).value
                run = Apart(request.destination, interpreter, ring, dump, remains)
                async with run.running():
                    yield run
    run.raise_error()


@asynccontextmanager
async def _companion() -> AsyncIterator[Interpreter]:
    async with AsyncExitStack() as stack:
        try:
            interpreter = await stack.enter_async_context(started(_COMPANION))
        except OSError as exc:
            raise CompanionError(exc.strerror or str(exc), started=False) from exc
        yield interpreter


async def _ask(interpreter: Interpreter, kind: str, value: object) -> Message:
    """Send a message and return the answer; raise the error if that is the answer."""
    try:
        await interpreter.channel.send(kind, value)
        answer = await interpreter.channel.receive()
    except EOFError:
        raise CompanionError(await interpreter.ending()) from None
    if answer.kind == "error":
        raise answer.value
    return answer


@asynccontextmanager
async def _attached(
    interpreter: Interpreter, options: RingOptions, ready: Message
) -> AsyncIterator[_native.Ring]:
    """Let the callback fill the ring that the companion has made *ready*, while the block runs."""
    with anyio.CancelScope(shield=True):
        ring = await run_sync(_borrow, ready, interpreter.pid)
    try:
        attach(ring, options)
        with _detached_at_exit(ring):
            yield ring
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(ring.close)


@contextmanager
def _detached_at_exit(ring: _native.Ring) -> Iterator[None]:
    """Detach *ring* if the process exits in the block: the runtime still delivers what it has queued."""
    program = os.getpid()

    def detach() -> None:
        if os.getpid() == program:
            ring.detach(DETACH_LIMIT_NS)

    atexit.register(detach)
    try:
        yield
    finally:
        atexit.unregister(detach)


def _borrow(ready: Message, companion: int) -> _native.Ring:
    """Map the ring that the *companion* has made; its pages are touched, which takes a while."""
    lent, event_fd = ready.descriptors
    owned = [event_fd]
    try:
        owned.append(os.pidfd_open(companion))
        return _native.Ring.borrow(lent, ready.value, *owned)
    except OSError as exc:
        for descriptor in owned:
            os.close(descriptor)
        raise RingError(f"the ring of the capture cannot be mapped: {exc.strerror}") from exc
    finally:
        os.close(lent)


class Apart:
    """A run that a companion has begun, as the program sees it: figures come from there, a little late."""

    def __init__(
        self,
        path: Path | Prefix,
        interpreter: Interpreter,
        ring: _native.Ring,
        dump: Dump | None,
        remains: Remains,
    ) -> None:
        self.path, self.remains = path, remains
        self.error: DumpstreamError | None = None
        self.ended = anyio.Event()  #: the capture is over, or discards the rest
        self.notices = Notices()
        self._interpreter, self._channel = interpreter, interpreter.channel
        self._ring, self._dump = ring, dump
        self._given_up = False  # the rest is discarded
        self._alone = False  # the companion has gone, and only the ring still counts
        self._report = Report(seconds=0, own_process=True, ring_bytes=ring.statistics()[0])
        self._started = monotonic()
        self._drained, self._done = anyio.Event(), anyio.Event()
        self._tasks: TaskGroup | None = None
        self._late_before = _native.late_calls()

    def report(self) -> Report:
        """Return the latest figures."""
        if self._alone:
            return self._counted()
        if self._done.is_set():
            return self._report
        return replace(self._report, seconds=monotonic() - self._started)

    def mark(self, step: int) -> None:
        """Let chunks that come from now on have *step*; has no effect once the callback is detached."""
        _native.mark_step(checked_step(step))

    def hurry(self, seconds: float | None = None) -> None:
        """Let the companion wait less for stores that do not answer."""
        if self._tasks is not None:
            self._tasks.start_soon(self._send, "hurry", seconds)

    def raise_error(self) -> None:
        """Raise the error that ended the run early, if there is one."""
        if self.error is not None:
            raise self.error

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hear the companion while the block runs; after it, end the dump, and wait for the last file."""
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._listen)
            tasks.start_soon(self._heed_cancellation)
            try:
                yield
            except BaseException as exc:  # noqa: BLE001 - raised outside the group, which would wrap it
                failure = exc
                if isinstance(exc, anyio.get_cancelled_exc_class()):
                    self._given_up = True
            tasks.start_soon(self._end)
        self._tasks = None
        if failure is not None:
            raise failure

    async def _heed_cancellation(self) -> None:
        try:
            await self._done.wait()
        except anyio.get_cancelled_exc_class():
            self._given_up = True
            with anyio.CancelScope(shield=True):
                await self._send("cancel")
            raise

    async def _end(self) -> None:
        with anyio.CancelScope(shield=True):
            await end_dump(self._dump, self._drain, given_up=lambda: self._given_up, fail=self._fail)
            await self._send("finish", (_native.late_calls() - self._late_before, self.error))
            await self._done.wait()
            self._report, self._alone = self.report(), False  # the ring is closed next

    async def _drain(self) -> None:
        """Refuse further chunks, and let the companion take what is in the ring."""
        await run_sync(self._ring.detach, DETACH_LIMIT_NS)
        self._ring.note_refused()
        await self._send("drain")
        await self._drained.wait()

    def _fail(self, error: DumpstreamError) -> None:
        self.error = self.error or error

    async def _send(self, kind: str, value: object = None) -> None:
        with suppress(EOFError):  # `_listen` sees that the companion has gone
            await self._channel.send(kind, value)

    async def _listen(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                while not self._done.is_set():
                    self._hear(await self._channel.receive())
            except EOFError:
                self._lose_companion(await self._interpreter.ending())
            except Exception as exc:  # noqa: BLE001 - the end of the capture waits for this task
                self._lose_companion(repr(exc))

    def _hear(self, message: Message) -> None:
        if message.kind == "error":
            self._lose_companion(repr(message.value))
        elif message.kind in {"drained", "failed"}:
            given_up, error = message.value
            self._given_up = self._given_up or given_up
            if error is not None:
                self._fail(error)
            (self._drained if message.kind == "drained" else self.ended).set()
        else:
            self._report, error = message.value
            self.notices.offer(Progress())
            if error is not None:
                self._fail(error)
            if message.kind == "done":
                self._finish()

    def _lose_companion(self, ending: str) -> None:
        self._ring.discard()
        self._given_up = self._alone = True
        self._fail(CompanionError(ending))
        self._finish()

    def _counted(self) -> Report:
        """Return what was known last, and what the ring has refused since then."""
        _, fill, _, _, unnamed, losses = self._ring.statistics()
        return replace(
            self._report,
            seconds=monotonic() - self._started,
            losses=self._report.losses | {cause: LossCount(*lost) for cause, lost in losses.items()},
            unnamed_losses=unnamed,
            ring_fill=fill,
            failure=str(self.error),
        )

    def _finish(self) -> None:
        self.notices.end(self.error)
        self.ended.set()
        self._drained.set()
        self._done.set()
