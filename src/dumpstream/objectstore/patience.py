"""Patience: how long a store that does not answer is still waited for."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
    """

    def __init__(self, *, spills: bool = False) -> None:
        self._usual_s = HURRY_S if spills else HURRY_WITHOUT_SPILL_S
        self.seconds = inf
        self.since = 0.0
        self.deadline = inf
        self._parts = WeakSet[Patience]()
        self._unanswered: set[Silence] = set()

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
        for silence in [*self._unanswered]:
            silence.look()

    def watch(self, silence: Silence) -> None:
        """Let *silence*, whose store owes an answer, know of new limits."""
        self._unanswered.add(silence)

    def unwatch(self, silence: Silence) -> None:
        """Forget *silence*, whose store has answered."""
        self._unanswered.discard(silence)


class Silence:
    """Reached when a store that was asked has not answered for as long as *patience* allows.

    For the event loop's thread, except for making one.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since: float | None = None  # since when it owes an answer
        self._timer: asyncio.TimerHandle | None = None
        self._end: asyncio.Future[None] | None = None
        self._calls: list[Callable[[], None]] = []
        self.reached = False  #: whether the store is not waited for any longer

    def begin(self) -> None:
        """Note that the store is asked."""
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
            self._patience.watch(self)
            self.look()

    def interrupt(self, *, pending: bool) -> None:
        """Note that the store has answered; *pending* if it still owes other answers."""
        if pending:
            self._since = asyncio.get_running_loop().time()
        else:
            self._since = None
            self._patience.unwatch(self)

    def when_reached(self, call: Callable[[], None]) -> None:
        """Call *call* when the silence is reached, or at once if it has been."""
        self._calls.append(call)
        if self.reached:
            call()

    async def wait_for(self, tasks: Iterable[asyncio.Future[Any]]) -> None:
        """Return when one of *tasks* is done, or when the silence is reached."""
        if self._end is None:
            self._end = asyncio.get_running_loop().create_future()
        await asyncio.wait([*tasks, self._end], return_when=asyncio.FIRST_COMPLETED)

    def look(self) -> None:
        """Find out whether the silence is reached by now, and look again when it may be."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        patience = self._patience
        if self._since is None or patience.seconds == inf or self.reached:
            return  # the next request looks again
        loop = asyncio.get_running_loop()
        left = max(self._since, patience.since) + patience.seconds - loop.time()
        if left > 0:
            self._timer = loop.call_later(left, self.look)
            return
        self.reached = True
        patience.unwatch(self)
        if self._end is not None:
            self._end.set_result(None)
        for call in self._calls:
            call()


async def ask(function: Callable[[], _Result]) -> _Result:
    """Run *function*, which blocks until a store answers, in a thread of its own, and return its result.

    A cancelled caller waits for a few seconds more. Then the thread is left behind, and does not keep the
    process from exiting: *function* must not take anything that has to be given back.
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
        await answered.wait()
    except asyncio.CancelledError:
        with anyio.move_on_after(GRACE_S, shield=True):
            await answered.wait()
        raise
    return answer.result()
