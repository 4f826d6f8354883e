"""Apart: a run whose files a companion stores, a process of its own; only the callback is in the program."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync

from dumpstream import _native
from dumpstream._errors import CaptureCancelledError, CompanionError, DumpstreamError
from dumpstream.acl.dump import Dump
from dumpstream.archive.remains import Remains
from dumpstream.chunk import checked_step
from dumpstream.processes.channel import Message
from dumpstream.processes.interpreter import Interpreter, started
from dumpstream.run.borrowing import Borrowed, borrow
from dumpstream.run.dumping import dumping, end_dump, load_dump
from dumpstream.run.forwarding import Receiver
from dumpstream.run.readback import reading_feed
from dumpstream.run.request import Request
from dumpstream.source import DETACH_LIMIT_NS
from dumpstream.stages.finished import FinishedFile
from dumpstream.stages.notices import Notices, Progress
from dumpstream.stages.report import LossCount, Report
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from dumpstream.diagnosis.alerts import Alert

_COMPANION = "dumpstream.companion"
#: Messages after which the companion sends nothing.
_LAST = frozenset({"done", "error"})


class Order(NamedTuple):
    """What a companion is to do."""

    request: Request
    program: int  #: the process with the callback


@asynccontextmanager
async def companion() -> AsyncIterator[Interpreter]:
    """Start a companion, which waits for its order and has done nothing yet.

    Raises:
        CompanionError: it cannot be started.
    """
    async with AsyncExitStack() as stack:
        try:
            interpreter = await stack.enter_async_context(started(_COMPANION))
        except OSError as exc:
            raise CompanionError(exc.strerror or str(exc), started=False) from exc
        try:
            await interpreter.channel.receive()
        except EOFError:
            raise CompanionError(await interpreter.ending(), started=False) from None
        yield interpreter


@asynccontextmanager
async def apart(request: Request, interpreter: Interpreter) -> AsyncIterator[Apart]:
    """Let a companion prepare, begin and run what *request* asks for, while the block runs.

    Raises what a run in this process would raise, and `CompanionError` if the companion ends early.
    """
    assert request.destination is not None
    assert request.stages.ring is not None
    order = Order(replace(request, driver=None, acl_library=None), os.getpid())
    ready = await _ask(interpreter, "order", order)
    async with borrow(ready, interpreter.pid, request.stages.ring) as borrowed:
        dump = await run_sync(load_dump, request)
        async with dumping(dump):
            paths = None if dump is None else ", ".join(dump.driver.paths)
            remains = (await _ask(interpreter, "begin", paths)).value
            run = Apart(request.destination, interpreter, borrowed, dump, remains)
            run.alerts = None if request.alert is None else []
            async with run.running():
                yield run
    run.raise_error()


async def _ask(interpreter: Interpreter, kind: str, value: object) -> Message:
    """Send a message and return the answer; raise the error if that is the answer."""
    try:
        await interpreter.channel.send(kind, value)
        while (answer := await interpreter.channel.receive()).kind == "log":
            _log_there(*answer.value)
    except EOFError:
        raise CompanionError(await interpreter.ending()) from None
    if answer.kind == "error":
        raise answer.value
    return answer


def _log_there(name: str, level: int, text: str) -> None:
    """Log what the companion has logged, as if it had happened here."""
    logging.getLogger(name).log(level, "%s", text)


class Apart:
    """A run that a companion has begun, as the program sees it: figures come from there, a little late."""

    def __init__(
        self,
        path: Path | Prefix,
        interpreter: Interpreter,
        borrowed: Borrowed,
        dump: Dump | None,
        remains: Remains,
    ) -> None:
        self.path, self.remains = path, remains
        self.error: DumpstreamError | None = None
        self.ended = anyio.Event()  #: the capture is over, or discards the rest
        self.notices = Notices()
        self.alerts: list[Alert] | None = None  #: what was found to be bad so far, if it is looked for
        self._interpreter, self._channel = interpreter, interpreter.channel
        (self._ring, self._calls), self._dump = borrowed, dump
        feed = reading_feed(self.notices, path)
        self._receiver = Receiver(feed, self.notices, interpreter.channel)
        self._given_up = False  # the rest is discarded
        self._alone = False  # the companion has gone, and only the ring still counts
        self._report = Report(seconds=0, own_process=True, ring_bytes=borrowed.ring.statistics()[0])
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
        return replace(
            self._report,
            seconds=monotonic() - self._started,
            skipped_files=self._report.skipped_files + self.notices.skipped[FinishedFile],
        )

    def forward(self, most_bytes: int) -> None:
        """Let the companion send every file that finishes from now on, for a consumer that was added."""
        if self._tasks is not None:
            os.eventfd_write(self._calls, 1)  # at once: the message is on its way for a while
            self._tasks.start_soon(self._send, "wants", most_bytes)

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
            self.notices.abandon()
            with anyio.CancelScope(shield=True):
                await self._send("cancel")
            raise

    async def _end(self) -> None:
        with anyio.CancelScope(shield=True):
            await end_dump(self._dump, self._drain, given_up=lambda: self._given_up, fail=self._fail)
            await self._receiver.finish()
            late = _native.late_calls() - self._late_before
            await self._send("finish", (late, self.notices.skipped[FinishedFile], self.error))
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
                while (message := await self._receive()).kind not in _LAST:
                    self._hear(message)
                if message.kind == "error":
                    self._lose_companion(repr(message.value))
                else:
                    self._update(message)
            except EOFError:
                self._lose_companion(await self._interpreter.ending())
            except Exception as exc:  # noqa: BLE001 - the end of the capture waits for this task
                self._lose_companion(repr(exc))
            await self._end_notices()
            self.ended.set()
            self._drained.set()
            self._done.set()

    async def _receive(self) -> Message:
        while True:
            try:
                return await self._channel.receive()
            except (
                asyncio.CancelledError
            ):  # by `asyncio.run`, which ends every task: the capture must end first
                self._given_up = True

    def _hear(self, message: Message) -> None:
        assert self._tasks is not None
        if message.kind in {"drained", "failed"}:
            given_up, error = message.value
            self._given_up = self._given_up or given_up
            if error is not None:
                self._fail(error)
            if message.kind == "drained":
                self._drained.set()
            else:
                self.notices.abandon()
                self._tasks.start_soon(self._end_notices)
                self.ended.set()
        elif message.kind == "files":
            self._report, files = message.value
            self._tasks.start_soon(self._receiver.take, files)
        elif message.kind == "settled":
            self._receiver.settle(*message.value)
        elif message.kind == "alert":
            if self.alerts is not None:
                self.alerts.append(message.value)
            self.notices.offer(message.value)
        elif message.kind == "log":
            _log_there(*message.value)
        else:
            self._update(message)

    def _update(self, message: Message) -> None:
        self._report, error = message.value
        if error is not None:
            self._fail(error)
        self.notices.offer(Progress())

    def _lose_companion(self, ending: str) -> None:
        self._ring.discard()
        self._given_up = self._alone = True
        self.notices.abandon()
        self._fail(CompanionError(ending))

    async def _end_notices(self) -> None:
        cancelled = CaptureCancelledError() if self._given_up else None
        with anyio.CancelScope(shield=True):
            await self._receiver.end(self.error or cancelled)

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
            skipped_files=self._report.skipped_files + self.notices.skipped[FinishedFile],
        )
