"""Requests: what the event loop has asked a store for; each request runs to its end."""

from __future__ import annotations

import asyncio
import atexit
import time
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from dumpstream._errors import StoreError
from dumpstream.objectstore.failure import CHECK_NETWORK, explained
from dumpstream.objectstore.patience import Silence

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dumpstream.objectstore.patience import Patience
    from dumpstream.system.location import Prefix

_Result = TypeVar("_Result")

# obstore's threads may still hold a result when the last await returns, and abort the process if the
# interpreter has gone by the time they let go of it.
_EXIT_S = 0.1


class Requests:
    """The requests to the store of *prefix*, which is waited for as long as *patience* allows.

    A request runs to its end even if its caller is cancelled: one that is cut off may leave an upload behind.
    """

    def __init__(self, prefix: Prefix, patience: Patience) -> None:
        self._prefix = prefix
        self._tasks: set[asyncio.Task[Any]] = set()
        self.silence = Silence(patience)

    async def run(self, what: str, key: str, ask: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return what *ask* returns, which is to do *what* with the object *key*.

        Raises:
            StoreError: it failed, or the store has been silent for too long.
        """

        async def run() -> _Result:
            with explained(what, self._prefix / key):
                return await ask()

        _linger_at_exit()
        if not self.silence.reached:
            self.silence.begin()
            task = asyncio.get_running_loop().create_task(run())
            self._tasks.add(task)
            task.add_done_callback(self._forget)
            await self.silence.wait_for([task])
            if task.done():
                return task.result()
        raise StoreError(
            f"cannot {what} {self._prefix / key}: the store does not answer; {CHECK_NETWORK}", away=True
        )

    async def aclose(self) -> None:
        """Wait for all requests."""
        while self._tasks and not self.silence.reached:
            await self.silence.wait_for(self._tasks)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()  # the caller may be gone, and asyncio would complain
            if error is None or not getattr(error, "away", False):
                self.silence.interrupt(pending=bool(self._tasks))


@cache
def _linger_at_exit() -> None:
    atexit.register(time.sleep, _EXIT_S)
