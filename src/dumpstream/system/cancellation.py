"""Cancellation: work, and contexts, that it must not cut in two."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

import anyio
from anyio.to_thread import run_sync

_Value = TypeVar("_Value")


async def finish_in_thread(function: Callable[[], object]) -> None:
    """Run *function* in a worker thread to its end, even if the caller is cancelled."""
    with anyio.CancelScope(shield=True):
        await run_sync(function)


@asynccontextmanager
async def isolated(context: AbstractAsyncContextManager[_Value]) -> AsyncIterator[_Value]:
    """Enter *context* in a task of its own, keep it open while the block runs, and leave it there.

    A cancellation by asyncio itself (`asyncio.timeout`, `Task.cancel`) breaks through every shield of anyio,
    and the result of a worker thread that it interrupts is never closed. Here it reaches only the task of the
    block; *context* sees a cancelled scope instead, which shields hold off.

    *context* does not see an exception of the block, which is raised after *context* was left.
    """
    keeper = _Keeper(context)
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        try:
            await keeper.begun.wait()
            if keeper.error is None:
                yield keeper.value
        except BaseException as exc:  # noqa: BLE001 - raised outside the group, which would wrap it
            failure = exc
            if isinstance(exc, anyio.get_cancelled_exc_class()):
                keeper.scope.cancel()
        keeper.left.set()
    if failure is not None:
        raise failure
    if keeper.error is not None:
        raise keeper.error


class _Keeper(Generic[_Value]):
    """Holds a context open in the task that runs it."""

    value: _Value

    def __init__(self, context: AbstractAsyncContextManager[_Value]) -> None:
        self._context = context
        self.scope = anyio.CancelScope()
        self.begun = anyio.Event()  #: entered, or failed to
        self.left = anyio.Event()  #: set by the block
        self.error: BaseException | None = None

    async def run(self) -> None:
        try:
            with self.scope:
                async with self._context as self.value:
                    self.begun.set()
                    await self.left.wait()
        except BaseException as exc:
            self.error = exc
            if not isinstance(exc, Exception):
                raise
        finally:
            self.begun.set()
