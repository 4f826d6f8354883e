"""How long a store that does not answer is waited for."""

from __future__ import annotations

import threading

import anyio
import anyio.lowlevel
import pytest
from anyio.to_thread import run_sync
from tests.conftest import LIMIT_S

from dumpstream._errors import StoreError
from dumpstream.objectstore.patience import ABORT_S, Patience, ask

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

_LIMIT_S = 0.01


@pytest.mark.parametrize("first", ["limit", "part"])
async def test_limit_holds_for_the_parts_of_the_work_but_not_the_reverse(first: str) -> None:
    whole = Patience()
    if first == "limit":
        whole.limit(7.0)
    one, other = whole.part(), whole.part()
    if first == "part":
        whole.limit(7.0)
    one.limit(2.0)

    assert (one.seconds, other.seconds, whole.seconds) == (2.0, 7.0, 7.0)


@pytest.mark.parametrize(("spills", "seconds"), [(True, 15.0), (False, 30.0)])
async def test_usual_limit_is_shorter_if_what_is_missing_is_spilled(seconds: float, *, spills: bool) -> None:
    patience = Patience(spills=spills)

    patience.limit()
    patience.limit(100.0)

    assert patience.seconds == seconds


async def test_answer_of_a_thread_is_returned_or_raised() -> None:
    def fail() -> None:
        raise LookupError

    assert await ask(lambda: 7) == 7
    with pytest.raises(LookupError):
        await ask(fail)


async def test_thread_that_raises_stop_iteration_does_not_keep_its_caller_waiting() -> None:
    with anyio.fail_after(LIMIT_S), pytest.raises(RuntimeError, match="StopIteration"):
        await ask(lambda: next(iter(())))


async def test_cancelled_caller_waits_for_an_answer_that_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumpstream.objectstore.patience.GRACE_S", LIMIT_S)
    begun, going, answered = threading.Event(), threading.Event(), threading.Event()

    def answer() -> None:
        begun.set()
        going.wait(LIMIT_S)
        answered.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, answer)
        await run_sync(begun.wait)
        tasks.cancel_scope.cancel()
        going.set()

    assert answered.is_set()


async def test_cancelled_caller_leaves_a_thread_behind_that_gets_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dumpstream.objectstore.patience.GRACE_S", _LIMIT_S)
    begun, end = threading.Event(), threading.Event()
    before = threading.enumerate()

    def wait() -> None:
        begun.set()
        end.wait(LIMIT_S)

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, wait)
            await run_sync(begun.wait)
            tasks.cancel_scope.cancel()
    left = [thread for thread in threading.enumerate() if thread.name == "store" and thread not in before]
    end.set()
    for thread in left:
        await run_sync(thread.join)

    assert [thread.daemon for thread in left] == [True]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_blocking_call_is_given_up_when_the_patience_ends(when: str) -> None:
    patience, answering = Patience(), threading.Event()
    if when == "before":
        patience.limit(_LIMIT_S)

    try:
        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as tasks:
                if when == "meanwhile":
                    tasks.start_soon(_limit_when_watched, patience)
                with pytest.raises(StoreError, match="the store does not answer") as caught:
                    await ask(lambda: answering.wait(LIMIT_S), patience)
    finally:
        answering.set()

    assert caught.value.away
    assert not patience.watches
    assert patience.seconds <= ABORT_S  # what comes next waits hardly at all


async def _limit_when_watched(patience: Patience) -> None:
    while not patience.watches:
        await anyio.lowlevel.checkpoint()
    patience.limit(_LIMIT_S)


async def test_answer_that_comes_in_time_is_returned_with_patience_too() -> None:
    patience = Patience()
    patience.limit(LIMIT_S)

    assert await ask(lambda: 7, patience) == 7
