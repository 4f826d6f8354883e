"""Requests: what the event loop has asked a store for, and how long it waits for the answers."""

import asyncio
import atexit
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from math import inf
from typing import Any, TypeVar

from dumpstream._errors import StoreError
from dumpstream.objectstore.failure import CHECK_NETWORK, explained
from dumpstream.objectstore.patience import Patience
from dumpstream.system.location import Prefix

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)

#: A store that has been silent for so many seconds is logged.
_SILENT_S = 10.0

# obstore's threads may still hold a result when the last await returns, and abort the process if the
# interpreter has gone by the time they let go of it.
_EXIT_S = 0.1


class Requests:
    """The requests to the store of *prefix*, which is given up when it is silent for too long.

    A request runs to its end even if its caller is cancelled: one that is cut off may leave an upload behind.
    For the event loop's thread, except for making one.

    Attributes:
        given_up: whether the store, asked for something, has not answered for as long as *patience* allows.
    """

    def __init__(self, prefix: Prefix, patience: Patience) -> None:
        self._prefix, self._patience = prefix, patience
        self._tasks: set[asyncio.Task[Any]] = set()
        self._silent_since: float | None = None  # None if it owes no answer
        self._timer: asyncio.TimerHandle | None = None
        self._log_timer: asyncio.TimerHandle | None = None
        self._logged = False  # that the store is silent
        self._end: asyncio.Future[None] | None = None
        self._calls: list[Callable[[], None]] = []
        self.given_up = False

    async def run(self, what: str, key: str, ask: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return what *ask* returns, which is to do *what* with the object *key*.

        Raises:
            StoreError: it failed, or the store has been given up.
        """

        async def run() -> _Result:
            with explained(what, self._prefix, key):
                return await ask()

        _linger_at_exit()
        if self._silent_since is None and not self.given_up:
            self._silent_since = asyncio.get_running_loop().time()
            self._patience.watches.add(self._look)
            self._look()
            if self._log_timer is None:
                self._log_silence()
        if not self.given_up:
            task = asyncio.get_running_loop().create_task(run())
            self._tasks.add(task)
            task.add_done_callback(self._forget)
            await self._wait_for([task])
            if task.done():
                return task.result()
        raise StoreError(
            f"cannot {what} {self._prefix / key}: the store does not answer; {CHECK_NETWORK}", away=True
        )

    def note_answer(self) -> None:
        """Note that the store has answered a request, or has taken a part of an upload."""
        if self._logged:
            self._logged = False
            _log.warning("%s://%s answers again", self._prefix.scheme, self._prefix.bucket)
        if self._tasks:
            self._silent_since = asyncio.get_running_loop().time()
        else:
            self._silent_since = None
            self._patience.watches.discard(self._look)

    def when_given_up(self, call: Callable[[], None]) -> None:
        """Call *call* when the store is given up, or at once if it has been."""
        self._calls.append(call)
        if self.given_up:
            call()

    async def aclose(self) -> None:
        """Wait for all requests, unless the store is given up."""
        while self._tasks and not self.given_up:
            await self._wait_for(self._tasks)

    async def _wait_for(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Return when one of *tasks* is done, or the store is given up."""
        if self._end is None:
            self._end = asyncio.get_running_loop().create_future()
        await asyncio.wait([*tasks, self._end], return_when=asyncio.FIRST_COMPLETED)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()  # the caller may be gone, and asyncio would complain
            if error is None or not getattr(error, "away", False):
                self.note_answer()

    def _log_silence(self) -> None:
        """Log that the store does not answer, if it has been silent for long, or look again later."""
        self._log_timer = None
        if self._silent_since is None or self._logged or self.given_up:
            return  # the next request looks again
        loop = asyncio.get_running_loop()
        left = self._silent_since + _SILENT_S - loop.time()
        if left > 0:
            self._log_timer = loop.call_later(left, self._log_silence)
            return
        self._logged = True
        store = f"{self._prefix.scheme}://{self._prefix.bucket}"
        _log.warning("%s does not answer; what is to be stored there waits; %s", store, CHECK_NETWORK)

    def _look(self) -> None:
        """Give the store up if it has been silent for too long, or look again when it may have been."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        patience = self._patience
        if self._silent_since is None or patience.seconds == inf or self.given_up:
            return  # the next request looks again
        loop = asyncio.get_running_loop()
        left = max(self._silent_since, patience.since) + patience.seconds - loop.time()
        if left > 0:
            self._timer = loop.call_later(left, self._look)
            return
        self.given_up = True
        patience.watches.discard(self._look)
        if self._end is not None:
            self._end.set_result(None)
        for call in self._calls:
            call()


@cache
def _linger_at_exit() -> None:
    atexit.register(time.sleep, _EXIT_S)
