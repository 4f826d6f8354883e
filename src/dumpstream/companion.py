"""Companion: the process in which the files of a capture are stored, apart from the program it captures.

It is started by `open_capture`, and ends when the program leaves the capture, or is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import cast

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync

from dumpstream._errors import CutOffError, DumpstreamError
from dumpstream._native import SharedRing
from dumpstream.objectstore.patience import Patience
from dumpstream.processes.channel import Channel
from dumpstream.processes.liveness import ProcessHandle, ending_text
from dumpstream.run.apart import Order
from dumpstream.run.beginning import begun
from dumpstream.run.forwarding import Forwarder, ForwardingSource
from dumpstream.run.preparation import prepared
from dumpstream.run.session import Session
from dumpstream.sharedsource import SharedSource
from dumpstream.sinks.resources import Resources
from dumpstream.source import RingOptions, make_ring
from dumpstream.stages.report import Report

#: Seconds between two messages about how the capture goes.
_REPORT_S = 0.1
#: Seconds that a program which has hung up has for ending.
_ENDING_S = 1.0


def main() -> None:
    """Do what the program that started this process orders on standard input."""
    with suppress(EOFError):  # the program is gone, or has given up before anything began
        anyio.run(_serve)


async def _serve() -> None:
    channel = Channel(socket.socket(fileno=0))
    await channel.send("ready")
    order: Order = (await channel.receive()).value
    logger = logging.getLogger("dumpstream")
    logger.addHandler(_LogSender(channel))
    logger.propagate = False
    try:
        with ProcessHandle(order.program) as program:
            await _capture(channel, order, program)
    except ProcessLookupError:
        return
    except EOFError:
        raise
    except Exception as exc:  # noqa: BLE001 - whatever it is, it is raised where the capture was opened
        await channel.send("error", _portable(exc))
    finally:
        channel.close()


async def _capture(channel: Channel, order: Order, program: ProcessHandle) -> None:
    """Prepare a run, begin it when the program says so, and store until the program leaves or is gone."""
    request = order.request
    assert request.stages.ring is not None
    async with _open_ring(request.stages.ring) as (ring, wakeups, calls):
        forwarder = Forwarder(channel, calls)
        source = ForwardingSource(ring, forwarder)
        asyncio.get_running_loop().add_reader(wakeups, _wake, source, wakeups)
        resources = Resources(patience=Patience(spills=request.stages.sinks.spill is not None))
        async with prepared(replace(request, source=source), resources, forwarder) as preparation:
            await channel.send("prepared", ring.statistics()[0], [ring.fileno(), wakeups, calls])
            library = await _receive_library(channel, program, ring)
            with anyio.CancelScope() as scope:
                beginning = replace(preparation, library=library)
                async with begun(beginning) as session, anyio.create_task_group() as tasks:
                    alerts = _AlertSender(channel, session)
                    tasks.start_soon(alerts.run)
                    async with session.running():
                        with suppress(EOFError):  # the attendance hears that the program has gone
                            await channel.send("begun", session.destination.remains)
                        forwarder.begin(session.notices, tasks, partial(_own, session))
                        await _Attendance(channel, program, session, source, scope).attend(tasks)
                    await forwarder.end()
                    await alerts.ended.wait()
                    tasks.cancel_scope.cancel()
    error: DumpstreamError | None = None
    try:
        session.raise_error()
    except DumpstreamError as exc:
        error = exc
    with suppress(EOFError):
        await channel.send("done", (_own(session), _portable(error)))


async def _receive_library(channel: Channel, program: ProcessHandle, ring: SharedRing) -> str | None:
    """Return what the program says when the capture is to begin: the library that it has loaded.

    Raises:
        EOFError: the program has given up; or is gone, and its callback took nothing.
    """
    try:
        return cast("str | None", (await channel.receive()).value)
    except EOFError:
        if not ring.statistics()[2]:
            raise
    ended = anyio.Event()
    program.when_ended(ended.set)
    with anyio.move_on_after(_ENDING_S):
        await ended.wait()
    if program.alive:
        raise EOFError
    return None


@asynccontextmanager
async def _open_ring(options: RingOptions) -> AsyncIterator[tuple[SharedRing, int, int]]:
    """Make the ring, what its producer wakes this process by, and what counts consumers."""
    ring = await run_sync(make_ring, SharedRing, options)
    wakeups, calls = (os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2))
    try:
        yield ring, wakeups, calls
    finally:
        asyncio.get_running_loop().remove_reader(wakeups)
        os.close(wakeups)
        os.close(calls)
        ring.discard()  # a program that still runs must not wait for a reader
        ring.close()
        if options.buffer_file is not None:
            options.buffer_file.unlink(missing_ok=True)


def _wake(source: SharedSource, wakeups: int) -> None:
    with suppress(BlockingIOError):
        os.eventfd_read(wakeups)
    source.wake()


class _Attendance:
    """Hears the program and tells it how its capture goes, until the last file is stored."""

    def __init__(
        self,
        channel: Channel,
        program: ProcessHandle,
        session: Session,
        source: ForwardingSource,
        scope: anyio.CancelScope,
    ) -> None:
        self._channel, self._program, self._session, self._source = channel, program, session, source
        self._forwarder, self._scope = source.forwarder, scope
        self._ended, self._hung_up = anyio.Event(), anyio.Event()
        self._left = anyio.Event()

    async def attend(self, tasks: TaskGroup) -> None:
        """Return when the program leaves, or is gone; until *tasks* are cancelled, it may still hasten."""
        self._program.when_ended(self._end)
        for work in (self._tell, self._tell_of_failure, self._watch):
            tasks.start_soon(work)
        tasks.start_soon(self._hear, tasks)
        await self._left.wait()

    async def _tell(self) -> None:
        told: Report | None = None
        with suppress(EOFError):
            while True:
                await anyio.sleep(_REPORT_S)
                if (report := replace(self._session.report(), seconds=0.0)) != told:
                    told = report
                    await self._channel.send("report", (_own(self._session), None))

    async def _tell_of_failure(self) -> None:
        await self._session.pipeline.ended.wait()
        if self._session.pipeline.cause is not None:
            with suppress(EOFError):
                await self._tell_state("failed")

    async def _hear(self, tasks: TaskGroup) -> None:
        with suppress(EOFError):
            while True:
                message = await self._channel.receive()
                if message.kind == "hurry":
                    self._session.patience.limit(message.value)
                elif message.kind == "cancel":
                    self._scope.cancel()
                elif message.kind == "drain":
                    tasks.start_soon(self._drain)
                elif message.kind == "wants":
                    self._forwarder.want(message.value)
                elif message.kind == "taken":
                    self._forwarder.go_on(wanted=message.value)
                elif message.kind == "finish":
                    late, skipped, error = message.value
                    self._session.late_elsewhere, self._session.skipped_elsewhere = late, skipped
                    if error is not None:
                        self._session.pipeline.fail(error)
                    self._left.set()
        self._forwarder.close()
        self._hung_up.set()

    async def _drain(self) -> None:
        """Take what is in the ring, to which the program adds nothing more."""
        self._source.producer_ended(in_order=True)
        await self._source.stop()
        await self._session.pipeline.ended.wait()
        with suppress(EOFError):
            await self._tell_state("drained")

    async def _tell_state(self, kind: str) -> None:
        pipeline = self._session.pipeline
        await self._channel.send(kind, (pipeline.cause is not None, _portable(pipeline.error)))

    def _end(self) -> None:
        self._ended.set()
        self._forwarder.close()
        self._hung_up.set()

    async def _watch(self) -> None:
        await self._hung_up.wait()
        if self._left.is_set():
            return
        with anyio.move_on_after(_ENDING_S):
            await self._ended.wait()
        how = "it runs on" if self._program.alive else ending_text(await self._program.status())
        self._source.producer_ended(in_order=False)
        self._session.cut_off = CutOffError(how)
        self._left.set()


class _AlertSender:
    """Sends what is found to be bad to the program."""

    def __init__(self, channel: Channel, session: Session) -> None:
        self._channel, self._session = channel, session
        self.ended = anyio.Event()

    async def run(self) -> None:
        """Send until the capture has ended."""
        told, notices = self._session.alerts, self._session.notices
        if told is not None:
            from dumpstream.diagnosis.alerts import Alerts  # noqa: PLC0415 - numpy takes long to load

            with suppress(EOFError, DumpstreamError):  # the program is gone, or hears why the capture failed
                async for alert in Alerts(told, notices):
                    await self._channel.send("alert", alert)
        self.ended.set()


class _LogSender(logging.Handler):
    """Sends what is logged to the program, which knows what is to be done with it."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._sending: set[asyncio.Task[None]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Send *record*; may be called in any thread."""
        self._loop.call_soon_threadsafe(self._start, record.name, record.levelno, record.getMessage())

    def _start(self, *message: object) -> None:
        task = self._loop.create_task(self._send(message))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, message: object) -> None:
        with suppress(EOFError):
            await self._channel.send("log", message)


def _own(session: Session) -> Report:
    return replace(session.report(), own_process=True)


def _portable(error: Exception | None) -> Exception | None:
    """Return *error* as it is if it can be sent, and what it says otherwise."""
    try:
        pickle.dumps(error)
    except Exception:  # noqa: BLE001 - pickle raises anything
        return DumpstreamError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    main()
