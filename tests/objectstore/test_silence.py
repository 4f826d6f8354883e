"""How long a store that says nothing is waited for."""

from __future__ import annotations

import asyncio
import gc
from weakref import ref

import anyio
import pytest
from anyio.lowlevel import checkpoint

from dumpstream.objectstore.silence import Silence

pytestmark = pytest.mark.anyio

_LIMIT_S = 0.01


async def pass_time(seconds: float) -> None:
    """Let the loop run for so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await checkpoint()


async def until_gone(reference: ref[Silence]) -> None:
    """Return when nothing refers to what *reference* does."""
    with anyio.fail_after(20):
        while reference() is not None:
            await checkpoint()
            gc.collect()


async def reaching(silence: Silence) -> None:
    """Return when *silence* is reached."""
    with anyio.fail_after(20):
        await silence.wait_for([asyncio.get_running_loop().create_future()])


async def test_store_that_owes_an_answer_is_given_up_when_somebody_is_in_a_hurry() -> None:
    silence, calls = Silence(), []
    silence.when_reached(lambda: calls.append("early"))
    silence.begin()
    await pass_time(2 * _LIMIT_S)
    patient = not silence.reached

    silence.limit(_LIMIT_S)
    await reaching(silence)
    silence.when_reached(lambda: calls.append("late"))

    assert patient
    assert silence.reached
    assert calls == ["early", "late"]


@pytest.mark.parametrize("asked", [False, True])
async def test_store_that_owes_nothing_is_not_given_up(*, asked: bool) -> None:
    silence = Silence()
    if asked:
        silence.begin()
        silence.interrupt(pending=False)

    silence.limit(_LIMIT_S)
    await pass_time(5 * _LIMIT_S)
    idle = silence.reached
    silence.begin()
    await reaching(silence)

    assert not idle


async def test_hurry_that_is_over_leaves_nothing_in_the_loop() -> None:
    silence = Silence()
    silence.begin()
    silence.limit(_LIMIT_S)
    silence.interrupt(pending=False)
    reference = ref(silence)

    del silence

    await until_gone(reference)
