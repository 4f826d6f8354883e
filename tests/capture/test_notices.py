"""Subscriptions to the stream of a capture: bounds hold, and nothing is lost without being counted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import LIMIT_S

from dumpstream.stages.notices import Notice, Notices, OnSlow, Subscription


class Weighed(Notice):
    """A notice that tells whether it was released."""

    def __init__(self, number: int, weight: int) -> None:
        self.number, self.weight = number, weight
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Bounds(NamedTuple):
    most: int
    most_bytes: int


def check(subscription: Subscription[Weighed], bounds: Bounds) -> None:
    kept = [*subscription._queue, *subscription._in_hand.values()]
    weights = sorted(notice.weight for notice in kept)
    assert len(subscription._queue) + subscription._reserved <= bounds.most
    # One that is heavier than the bound may be kept, if nothing else that weighs is.
    assert sum(weights) <= bounds.most_bytes or sum(weights[:-1]) == 0
    assert not any(notice.released for notice in kept)


async def send(subscription: Subscription[Weighed], weights: list[int], bounds: Bounds) -> list[Weighed]:
    sent = []
    for number, weight in enumerate(weights):
        if await subscription.reserve(weight):
            check(subscription, bounds)
            sent.append(Weighed(number, weight))
            subscription.add(sent[-1])
            check(subscription, bounds)
    return sent


async def take(subscription: Subscription[Weighed], turns: list[int], bounds: Bounds) -> list[int]:
    """Take everything; each entry of *turns* cancels a receive after so many turns of the event loop."""
    taken = []
    for turn in turns:
        task = asyncio.create_task(subscription.receive())
        for _ in range(turn):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError, anyio.EndOfStream):
            taken.append((await task).number)
        check(subscription, bounds)
    with suppress(anyio.EndOfStream):
        while True:
            taken.append((await subscription.receive()).number)
            check(subscription, bounds)
    return taken


@given(
    weights=st.lists(st.integers(0, 30), max_size=40),
    bounds=st.builds(Bounds, st.integers(1, 4), st.integers(0, 40)),
    on_slow=st.sampled_from(OnSlow),
    turns=st.lists(st.integers(0, 4), max_size=20),
)
def test_bounds_hold_and_every_notice_is_taken_or_counted(
    weights: list[int], bounds: Bounds, on_slow: OnSlow, turns: list[int]
) -> None:
    async def run() -> None:
        notices = Notices()
        most, most_bytes = bounds
        subscription = notices.subscribe(Weighed, most=most, most_bytes=most_bytes, on_slow=on_slow)
        taking = asyncio.create_task(take(subscription, turns, bounds))
        sent = await send(subscription, weights, bounds)
        notices.end(None)
        taken = await taking

        assert taken == [notice.number for notice in sent]
        assert len(taken) + subscription.skipped == len(weights)
        assert notices.skipped[Weighed] == subscription.skipped
        assert on_slow is OnSlow.SKIP or subscription.skipped == 0
        subscription.close()
        assert [notice.released for notice in sent] == [1] * len(sent)
        assert (subscription._weight, subscription._reserved) == (0, 0)

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


@pytest.mark.anyio
async def test_closing_lets_go_of_a_sender_that_waits() -> None:
    notices = Notices()
    subscription = notices.subscribe(Weighed, most=1, on_slow=OnSlow.WAIT)
    assert await subscription.reserve(0)
    waiting = asyncio.create_task(subscription.reserve(0))
    await anyio.wait_all_tasks_blocked()
    subscription.close()

    assert not await waiting
    with pytest.raises(anyio.ClosedResourceError):
        await subscription.receive()
