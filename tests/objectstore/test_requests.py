"""When a store that does not answer is given up."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import ref

import anyio
import pytest
from anyio.lowlevel import checkpoint
from obstore.store import MemoryStore
from tests.conftest import LIMIT_S

from dumpstream import StoreError
from dumpstream.objectstore.patience import Patience
from dumpstream.objectstore.requests import Requests
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

_LIMIT_S = 0.01


def make_requests(patience: Patience) -> Requests:
    return Requests(Prefix.of(MemoryStore()), patience)


async def pass_time(seconds: float) -> None:
    """Let the loop run for so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await checkpoint()


async def until(condition: Callable[[], bool]) -> None:
    """Return when *condition* holds."""
    with anyio.fail_after(LIMIT_S):
        while not condition():
            await checkpoint()
            gc.collect()


async def ask_in_vain(requests: Requests) -> None:
    """Ask for something that never comes, until the store is given up."""
    with anyio.fail_after(LIMIT_S), pytest.raises(StoreError, match="the store does not answer"):
        await requests.run("read", "key", anyio.sleep_forever)


async def test_silence_is_logged_once_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dumpstream.objectstore.requests._SILENT_S", _LIMIT_S)
    requests, answered = make_requests(Patience()), asyncio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(requests.run, "read", "key", answered.wait)
        await until(lambda: bool(caplog.messages))
        await pass_time(3 * _LIMIT_S)
        answered.set()
    answers = list(caplog.messages)
    await requests.run("read", "key", checkpoint)
    await pass_time(3 * _LIMIT_S)

    silent, again = answers
    assert "does not answer; what is to be stored there waits; check the network" in silent
    assert again.endswith("answers again")
    assert caplog.messages == answers


async def test_store_that_owes_an_answer_is_given_up_when_patience_is_limited() -> None:
    patience, calls = Patience(), []
    requests = make_requests(patience)
    requests.when_given_up(lambda: calls.append("early"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask_in_vain, requests)
        await pass_time(2 * _LIMIT_S)
        waited = not requests.given_up

        patience.limit(_LIMIT_S)
    requests.when_given_up(lambda: calls.append("late"))

    assert waited
    assert requests.given_up
    assert calls == ["early", "late"]


@pytest.mark.parametrize("asked", [False, True])
async def test_store_that_owes_nothing_is_not_given_up(*, asked: bool) -> None:
    patience = Patience()
    requests = make_requests(patience)
    if asked:
        await requests.run("read", "key", checkpoint)

    patience.limit(_LIMIT_S)
    await pass_time(5 * _LIMIT_S)
    idle = requests.given_up
    await ask_in_vain(requests)

    assert not idle


async def test_store_is_not_asked_without_any_patience() -> None:
    patience, asked = Patience(), asyncio.Event()
    requests = make_requests(patience)

    async def ask() -> None:
        asked.set()

    patience.limit(0)
    with pytest.raises(StoreError, match="the store does not answer"):
        await requests.run("read", "key", ask)
    await pass_time(_LIMIT_S)

    assert not asked.is_set()


async def test_limit_that_was_not_reached_leaves_nothing_in_the_loop() -> None:
    patience, answer = Patience(), asyncio.Event()
    requests = make_requests(patience)
    request = asyncio.get_running_loop().create_task(requests.run("read", "key", answer.wait))
    await checkpoint()
    patience.limit(_LIMIT_S)
    answer.set()
    with suppress(StoreError):  # the machine may be slow
        await request
    reference = ref(requests)

    del requests, request

    await until(lambda: reference() is None)
