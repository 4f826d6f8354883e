"""Notices: the one stream of what happens in a capture, and the subscriptions to it."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from time import monotonic
from typing import Any, Generic, TypeVar

import anyio

from dumpstream.system.timeslice import TimeSlice

#: How often a capture that waits for a subscriber looks whether the subscriber's tasks are still there.
_LOOK_S = 0.5


class OnSlow(StrEnum):
    """What a capture does when a subscriber is too slow to take everything."""

    WAIT = "wait"  #: waits for it, up to a time limit: the subscriber misses nothing, the job may be held up
    SKIP = "skip"  #: lets the subscriber miss what does not fit in its queue, and counts it


class Notice:
    """Something that has happened in a capture."""

    __slots__ = ()

    #: Bytes that are kept for it, in memory or in a temporary file, until `release`.
    weight = 0

    def release(self) -> None:
        """Give up what is kept for it; called when its subscriber is done with it."""


class Progress(Notice):
    """The figures of the report have changed."""

    __slots__ = ()


_Notice = TypeVar("_Notice", bound=Notice)


class Subscription(Generic[_Notice]):
    """A bounded queue of the notices of one kind. For the event loop's thread alone.

    A notice that was received counts against *most_bytes*, and is released, when the same task asks for the
    next one.
    """

    def __init__(
        self,
        notices: Notices,
        kind: type[_Notice],
        *,
        most: int,
        most_bytes: int,
        on_slow: OnSlow,
        timeout: float | None,
    ) -> None:
        self.kind = kind
        self.most_bytes = most_bytes
        self.skipped = 0  #: notices that it missed
        self._notices = notices
        self._most = most
        self._waits = on_slow is OnSlow.WAIT
        self._timeout = timeout
        self._queue: deque[_Notice] = deque()
        self._reserved = 0  # places in the queue
        self._weight = 0  # of what is queued, in hand or reserved
        self._maker = asyncio.current_task()
        self._asked = False
        self._shared = False  # whether a task that has not made it has asked
        self._in_hand: dict[asyncio.Task[Any] | None, _Notice] = {}
        self._late = False  # it has let the time limit pass, and has not asked since
        self._closed = False
        self._changed = anyio.Event()  # something came or ended, or something was taken
        self._slice = TimeSlice()

    # The side of the subscriber

    async def receive(self) -> _Notice:
        """Return the next notice; release the one that this task has received before.

        Raises:
            anyio.EndOfStream: the capture has ended and nothing is left.
            anyio.ClosedResourceError: the subscription was closed.
            DumpstreamError: the capture has ended with this error, and nothing is left.
        """
        task = asyncio.current_task()
        self._asked, self._late = True, False
        self._shared = self._shared or task is not self._maker
        self._let_go(task)
        await self._slice.pause()
        while not self._queue:
            if self._closed:
                raise anyio.ClosedResourceError
            self._notices.raise_end()
            await self._changed.wait()
        notice = self._in_hand[task] = self._queue.popleft()
        self._wake()
        return notice

    def close(self) -> None:
        """Take nothing more, and release everything."""
        self._closed = True
        self._notices.forget(self)
        for notice in (*self._in_hand.values(), *self._queue):
            self._drop(notice)
        self._in_hand.clear()
        self._queue.clear()
        self._wake()

    # The side of the capture

    def fits(self, weight: int) -> bool:
        """Whether a notice of this *weight* has room; a heavy one has it when nothing else is kept."""
        count = len(self._queue) + self._reserved
        return count < self._most and (not self._weight or self._weight + weight <= self.most_bytes)

    async def reserve(self, weight: int) -> bool:
        """Take room for one notice, and wait for it if the subscriber wants that; False if it is to miss it.

        A True must be followed by `add` or `give_back`.
        """
        deadline = None
        while not self._closed and not self.fits(weight):
            now = monotonic()
            if deadline is None and self._timeout is not None:
                deadline = now + self._timeout
            if not self._is_patient() or (deadline is not None and now >= deadline):
                self._late = True
                break
            with anyio.move_on_after(_LOOK_S if deadline is None else min(_LOOK_S, deadline - now)):
                await self._changed.wait()
        if self._closed:
            return False
        if not self.fits(weight):
            self._skip()
            return False
        self._reserved += 1
        self._weight += weight
        return True

    def grow(self, weight: int) -> bool:
        """Let the notice that has room be heavier by *weight*, if that much is free."""
        if self._weight + weight > self.most_bytes:
            return False
        self._weight += weight
        return True

    def add(self, notice: _Notice) -> None:
        """Put *notice* in the room that was reserved for it."""
        self._reserved -= 1
        if self._closed:
            self._drop(notice)
            return
        self._queue.append(notice)
        self._wake()

    def give_back(self, weight: int) -> None:
        """Give up the room that was reserved."""
        self._reserved -= 1
        self._weight -= weight
        self._wake()

    def offer(self, notice: _Notice) -> None:
        """Add *notice*, which has no weight, if there is room; never waits."""
        if self.fits(0):
            self._queue.append(notice)
            self._wake()
        else:
            self._skip()

    def wake(self) -> None:
        """Let both sides look again."""
        self._wake()

    def _is_patient(self) -> bool:
        """Whether the capture is to wait: a task may still ask for the next notice."""
        if not self._waits or self._late or self._notices.abandoned:
            return False
        maker = self._maker
        if self._shared or maker is None:
            return True
        return maker is not self._notices.leaver and not (self._asked and maker.done())

    def _skip(self) -> None:
        self.skipped += 1
        self._notices.skipped[self.kind] += 1

    def _let_go(self, asking: asyncio.Task[Any] | None) -> None:
        """Release what *asking* has in hand, and tasks that have ended, as those of `asyncio.wait_for`."""
        for task in [task for task in self._in_hand if task is asking or task is None or task.done()]:
            self._drop(self._in_hand.pop(task))
        self._wake()

    def _drop(self, notice: _Notice) -> None:
        self._weight -= notice.weight
        notice.release()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Notices:
    """The stream of one capture: its subscriptions, and how it ended. For the event loop's thread alone."""

    def __init__(self) -> None:
        self.abandoned = False  #: whether the capture waits for no subscriber any more
        self.ended = False
        self.skipped: Counter[type[Notice]] = Counter()  #: what all subscribers together have missed, by kind
        self.leaver: asyncio.Task[Any] | None = None  #: the task that has left the block of the capture
        self._error: Exception | None = None
        self._subscriptions: list[Subscription[Any]] = []

    def subscribe(
        self,
        kind: type[_Notice],
        *,
        most: int,
        most_bytes: int = 0,
        on_slow: OnSlow,
        timeout: float | None = None,
    ) -> Subscription[_Notice]:
        """Return a subscription to what happens from now on; the caller closes it."""
        subscription = Subscription(
            self, kind, most=most, most_bytes=most_bytes, on_slow=on_slow, timeout=timeout
        )
        if not self.ended:
            self._subscriptions.append(subscription)
        return subscription

    @contextmanager
    def subscribed(self, kind: type[_Notice], *, most: int) -> Iterator[Subscription[_Notice]]:
        """Subscribe for the block, and skip what does not fit."""
        subscription = self.subscribe(kind, most=most, on_slow=OnSlow.SKIP)
        try:
            yield subscription
        finally:
            subscription.close()

    def wants(self, kind: type[Notice]) -> bool:
        """Whether notices of this *kind* have a subscriber."""
        return any(subscription.kind is kind for subscription in self._subscriptions)

    def to(self, kind: type[_Notice]) -> list[Subscription[_Notice]]:
        """Return the subscriptions to notices of this *kind*."""
        return [subscription for subscription in self._subscriptions if subscription.kind is kind]

    def offer(self, notice: Notice) -> None:
        """Tell those who want it, and who have room, of *notice*, which has no weight; never waits."""
        for subscription in self.to(type(notice)):
            subscription.offer(notice)

    def leave(self, task: asyncio.Task[Any] | None) -> None:
        """Expect that *task*, which leaves the block of the capture, takes nothing until the capture ends."""
        self.leaver = task
        self._wake_all()

    def abandon(self) -> None:
        """Wait for no subscriber any more: what has no room is skipped."""
        self.abandoned = True
        self._wake_all()

    def end(self, error: Exception | None) -> None:
        """End the stream with *error*, if there is one; only the first call counts."""
        if not self.ended:
            self.ended, self._error = True, error
            self._wake_all()
            self._subscriptions.clear()

    def raise_end(self) -> None:
        """Raise what ended the stream, if it has ended.

        Raises:
            anyio.EndOfStream: it ended in order.
            DumpstreamError: it ended with this error.
        """
        if self.ended:
            raise anyio.EndOfStream if self._error is None else self._error

    def forget(self, subscription: Subscription[Any]) -> None:
        """Tell *subscription* nothing more."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def _wake_all(self) -> None:
        for subscription in self._subscriptions:
            subscription.wake()
