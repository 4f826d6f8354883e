from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from dumpstream.system.cancellation import isolated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class Recorded:
    """A context that takes its time at both ends, and writes down what happens."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.entering = anyio.Event()
        self.leaving = anyio.Event()
        self.go_on = anyio.Event()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[str]:
        with anyio.CancelScope(shield=True):
            self.entering.set()
            await self.go_on.wait()
        self.events.append("entered")
        try:
            yield "value"
        except anyio.get_cancelled_exc_class():
            self.events.append("cancelled")
            raise
        finally:
            with anyio.CancelScope(shield=True):
                self.leaving.set()
                await anyio.sleep(0.01)
                self.events.append("left")


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


async def test_the_block_has_the_value_of_the_context(recorded: Recorded) -> None:
    recorded.go_on.set()

    async with isolated(recorded.opened()) as value:
        recorded.events.append(value)

    assert recorded.events == ["entered", "value", "left"]


async def test_a_cancelled_beginning_is_finished_and_undone(recorded: Recorded) -> None:
    async def work() -> None:
        async with isolated(recorded.opened()):
            pytest.fail("entered")

    task = asyncio.ensure_future(work())
    await recorded.entering.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    still_waiting = not task.done()
    recorded.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert still_waiting
    assert recorded.events == ["entered", "cancelled", "left"]


async def test_a_cancelled_end_is_waited_for(recorded: Recorded) -> None:
    async def work() -> None:
        async with isolated(recorded.opened()):
            pass

    recorded.go_on.set()
    task = asyncio.ensure_future(work())
    await recorded.leaving.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0.001)
    with pytest.raises(asyncio.CancelledError):
        await task

    assert recorded.events == ["entered", "left"]


async def test_a_timeout_stays_a_timeout(recorded: Recorded) -> None:
    recorded.go_on.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), isolated(recorded.opened()):
            await asyncio.sleep(60)

    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0
    assert recorded.events == ["entered", "cancelled", "left"]


async def test_a_cancelled_scope_reaches_the_context_while_the_block_is_shielded(recorded: Recorded) -> None:
    recorded.go_on.set()

    with anyio.CancelScope() as scope:
        async with isolated(recorded.opened()):
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await recorded.leaving.wait()
                recorded.events.append("block")

    assert recorded.events[:3] == ["entered", "cancelled", "block"]


async def test_an_exception_of_the_block_is_raised_as_it_is(recorded: Recorded) -> None:
    recorded.go_on.set()

    with pytest.raises(ValueError, match="mine"):
        async with isolated(recorded.opened()):
            raise ValueError("mine")

    assert recorded.events == ["entered", "left"]


@pytest.mark.parametrize("where", ["entering", "leaving"])
async def test_an_exception_of_the_context_is_raised_as_it_is(where: str) -> None:
    @asynccontextmanager
    async def failing() -> AsyncIterator[None]:
        if where == "entering":
            raise KeyError(where)
        yield
        raise KeyError(where)

    with pytest.raises(KeyError, match=where):
        async with isolated(failing()):
            assert where == "leaving"
