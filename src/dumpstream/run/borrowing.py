"""Borrowing: the ring that a companion has made, filled by the callback of the program."""

import atexit
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

import anyio
from anyio.to_thread import run_sync

from dumpstream import _native
from dumpstream._errors import RingError
from dumpstream.processes.channel import Message
from dumpstream.source import DETACH_LIMIT_NS, RingOptions, attach


class Borrowed(NamedTuple):
    """What a program has of its companion."""

    ring: _native.Ring
    calls: int  #: an eventfd in which the program counts its consumers


@asynccontextmanager
async def borrow(ready: Message, companion: int, options: RingOptions) -> AsyncIterator[Borrowed]:
    """Let the callback fill the ring that the *companion* has made *ready*, while the block runs."""
    lent, event_fd, calls = ready.descriptors
    try:
        with anyio.CancelScope(shield=True):
            ring = await run_sync(_map, lent, event_fd, ready.value, companion)
        try:
            attach(ring, options)
            with _detached_at_exit(ring):
                yield Borrowed(ring, calls)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(ring.close)
    finally:
        os.close(calls)


@contextmanager
def _detached_at_exit(ring: _native.Ring) -> Iterator[None]:
    """Detach *ring* if the process exits in the block: the runtime still delivers what it has queued."""
    program = os.getpid()

    def detach() -> None:
        if os.getpid() == program:
            ring.detach(DETACH_LIMIT_NS)

    atexit.register(detach)
    try:
        yield
    finally:
        atexit.unregister(detach)


def _map(lent: int, event_fd: int, size: int, companion: int) -> _native.Ring:
    """Map the ring that the *companion* has made; its pages are touched, which takes a while."""
    owned = [event_fd]
    try:
        owned.append(os.pidfd_open(companion))
        return _native.Ring.borrow(lent, size, *owned)
    except OSError as exc:
        for descriptor in owned:
            os.close(descriptor)
        raise RingError(f"the ring of the capture cannot be mapped: {exc.strerror}") from exc
    finally:
        os.close(lent)
