"""The bytes that may wait on the disk."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from dumpstream.remote.quota import Quota

pytestmark = pytest.mark.anyio


def test_what_several_use_together_never_exceeds_the_whole() -> None:
    whole = Quota(100)
    quotas = [Quota(60, whole) for _ in range(2)]

    quotas[0].take(60)

    assert (quotas[0].free, quotas[1].free, whole.free) == (0, 40, 40)


async def test_waiting_capture_wakes_when_another_gives_back() -> None:
    whole = Quota(100)
    one, other = Quota(100, whole), Quota(100, whole)
    one.take(100)

    waiting = asyncio.ensure_future(other.freed())
    await anyio.lowlevel.checkpoint()
    one.give_back(30)

    with anyio.fail_after(20):
        await waiting
    assert other.free == 30


async def test_bytes_that_are_left_on_the_disk_are_never_free_again() -> None:
    whole = Quota(100)
    one, other = Quota(100, whole), Quota(100, whole)
    one.take(70)
    waiting = asyncio.ensure_future(other.freed())
    await anyio.lowlevel.checkpoint()

    one.leave(cleared=False)

    with anyio.fail_after(20):
        await waiting
    assert (other.capacity, other.free) == (30, 30)


def test_a_cleared_disk_is_free_for_the_others() -> None:
    whole = Quota(100)
    one, other = Quota(100, whole), Quota(100, whole)
    one.take(70)

    one.leave(cleared=True)

    assert (other.capacity, other.free) == (100, 100)
