"""Silence: how long a store that does not answer is still waited for, once somebody is in a hurry."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_Result = TypeVar("_Result")

#: So long a store may be silent when a capture was asked to end, and what it has not got waits in a spill.
HURRY_S = 15.0
#: The same if that is lost: a part takes long on a slow line.
HURRY_WITHOUT_SPILL_S = 30.0
#: The same when it is aborted.
ABORT_S = 1.0
#: What a cancelled caller has asked for has so many seconds to come to an end.
GRACE_S = 4.0


class Silence:
    """Reached when a store that was asked has said nothing for as long as `limit` allows.

    For the event loop's thread.
    """

    def __init__(self) -> None:
        self._limit_s = inf
        self._limited_at = 0.0
        self._since: float | None = None  # since when it owes an answer
        self._timer: asyncio.TimerHandle | None = None
        self._end: asyncio.Future[None] | None = None
        self._calls: list[Callable[[], None]] = []
        self.reached = False  #: whether nobody is to wait any longer

    def limit(self, seconds: float) -> None:
        """Allow no more than *seconds*, from now on; what was allowed before stays if it is less."""
        self._limited_at = asyncio.get_running_loop().time()
        self._limit_s = min(seconds, self._limit_s)
        self._look()

    def begin(self) -> None:
        """Note that the store is asked."""
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
            self._look()

    def interrupt(self, *, pending: bool) -> None:
        """Note that the store has said something; *pending* if it still owes answers."""
        self._since = asyncio.get_running_loop().time() if pending else None

    def when_reached(self, call: Callable[[], None]) -> None:
        """Call *call* then, or now."""
        self._calls.append(call)
        if self.reached:
            call()

    async def wait_for(self, tasks: Iterable[asyncio.Future[Any]]) -> None:
        """Return when one of *tasks* is done, or when it is reached."""
        if self._end is None:
            self._end = asyncio.get_running_loop().create_future()
        await asyncio.wait([*tasks, self._end], return_when=asyncio.FIRST_COMPLETED)

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._since is None or self._limit_s == inf or self.reached:
            return  # the next question looks again
        loop = asyncio.get_running_loop()
        left = max(self._since, self._limited_at) + self._limit_s - loop.time()
        if left > 0:
            self._timer = loop.call_later(left, self._look)
            return
        self.reached = True
        if self._end is not None:
            self._end.set_result(None)
        for call in self._calls:
            call()


async def ask(function: Callable[[], _Result]) -> _Result:
    """Return what *function*, which blocks until a store answers, returns in a thread of its own.

    A cancelled caller waits for a few seconds more. Then the thread is left behind, and keeps nobody from
    exiting: *function* must take nothing that somebody else would have to give back.
    """
    loop = asyncio.get_running_loop()
    answer, answered = Future[_Result](), asyncio.Event()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as exc:  # noqa: BLE001 - it is the caller's
            answer.set_exception(exc)
        with suppress(RuntimeError):  # nobody waits, and the loop is closed
            loop.call_soon_threadsafe(answered.set)

    Thread(target=run, name="store", daemon=True).start()
    try:
        await answered.wait()
    except asyncio.CancelledError:
        with anyio.move_on_after(GRACE_S, shield=True):
            await answered.wait()
        raise
    return answer.result()
