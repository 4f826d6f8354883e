"""Patience: how long a store that does not answer is still waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from threading import Thread
from time import monotonic
from typing import TypeVar
from weakref import WeakSet

import anyio

from dumpstream._errors import StoreError
from dumpstream.objectstore.failure import CHECK_NETWORK

_Result = TypeVar("_Result")

#: Seconds for which a store may be silent when a capture is to end soon, and what is missing is spilled.
HURRY_S = 15.0
#: The same without a spill: what is missing is lost, and a part takes long on a slow line.
HURRY_WITHOUT_SPILL_S = 30.0
#: The same when the capture is aborted.
ABORT_S = 1.0
#: Seconds in which the requests of a cancelled caller may still finish.
GRACE_S = 4.0


class Patience:
    """How long stores that do not answer are waited for: without end, until `limit` is called.

    For the event loop's thread, except for `deadline`.

    Args:
        spills: whether what the stores do not get waits in a spill, which shortens the usual limit.

    Attributes:
        seconds: the limit.
        since: when it was set, by the loop's clock.
        deadline: when the first limit ends, by the monotonic clock, for a thread that cannot tell silence.
        watches: called at every new limit, because a store owes an answer.
    """

    def __init__(self, *, spills: bool = False) -> None:
        self._usual_s = HURRY_S if spills else HURRY_WITHOUT_SPILL_S
        self.seconds = inf
        self.since = 0.0
        self.deadline = inf
        self._parts = WeakSet[Patience]()
        self.watches: set[Callable[[], None]] = set()

    def part(self) -> Patience:
        """Return the patience of a part of the work: limits set here hold for it, but not the reverse."""
        part = Patience()
        part._usual_s, part.seconds, part.since = self._usual_s, self.seconds, self.since
        part.deadline = self.deadline
        self._parts.add(part)
        return part

    def limit(self, seconds: float | None = None) -> None:
        """Wait no longer than *seconds* (by default the usual limit) from now on; a shorter limit stays."""
        seconds = self._usual_s if seconds is None else seconds
        self.seconds = min(seconds, self.seconds)
        self.since = asyncio.get_running_loop().time()
        self.deadline = min(self.deadline, monotonic() + seconds)
        for part in self._parts:
            part.limit(seconds)
        for look in [*self.watches]:
            look()


async def ask(function: Callable[[], _Result], patience: Patience | None = None) -> _Result:
    """Run *function*, which blocks until a store answers, in a thread of its own, and return its result.

    A cancelled caller waits for a few seconds more, and any caller only as long as *patience* allows. Then
    the thread is left behind, and does not keep the process from exiting: *function* must not take anything
    that has to be given back.

    Raises:
        StoreError: *patience* has ended; what comes after that has hardly any.
    """
    loop = asyncio.get_running_loop()
    answer, answered = Future[_Result](), asyncio.Event()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as exc:  # noqa: BLE001 - it is the caller's
            answer.set_exception(exc)
        with suppress(RuntimeError):  # the loop is closed, and the caller gone
            loop.call_soon_threadsafe(answered.set)

    Thread(target=run, name="store", daemon=True).start()
    try:
        if patience is None:
            await answered.wait()
        else:
            await _wait_patiently(answered, patience)
    except asyncio.CancelledError:
        with anyio.move_on_after(GRACE_S, shield=True):
            await answered.wait()
        raise
    return answer.result()


async def _wait_patiently(answered: asyncio.Event, patience: Patience) -> None:
    """Return when *answered* is set; raises `StoreError` if *patience* ends before."""
    loop = asyncio.get_running_loop()
    began, limited = loop.time(), asyncio.Event()
    patience.watches.add(limited.set)
    try:
        while not answered.is_set():
            left = max(began, patience.since) + patience.seconds - loop.time()
            if left <= 0:
                patience.limit(ABORT_S)
                raise StoreError(f"the store does not answer; {CHECK_NETWORK}", away=True)
            limited.clear()
            with anyio.move_on_after(left):
                await _first_of(answered, limited)
    finally:
        patience.watches.discard(limited.set)


async def _first_of(*events: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
