"""Dumping: the part of a run that happens in the program itself, by calls of the runtime's functions."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.acl.dump import Dump
from dumpstream.acl.library import load_acl
from dumpstream.acl.lifecycle import Lifecycle
from dumpstream.run.request import Request
from dumpstream.system.cancellation import finish_in_thread

#: CANN before 9.1 may still be inside the last callback when it says that dumping has ended.
_LAST_CALLBACK_S = 0.02


def load_dump(request: Request) -> Dump | None:
    """Return the dump that *request* is to drive, with its library loaded; blocks. None if it has a source.

    Raises:
        LibraryNotFoundError: no library has the functions.
    """
    if request.source is not None:
        return None
    driver = request.driver or load_acl(request.acl_library)
    return Dump(Lifecycle(driver, initialized=True), request.config)


@asynccontextmanager
async def dumping(dump: Dump | None) -> AsyncIterator[None]:
    """Let *dump* begin, and undo what is left of it after the block."""
    if dump is None:
        yield
        return
    await run_sync(dump.begin)
    try:
        yield
    finally:
        with suppress(DumpstreamError):  # the error that ended the block is raised instead
            await finish_in_thread(dump.undo)


async def end_dump(
    dump: Dump | None,
    drain: Callable[[], Awaitable[None]],
    *,
    given_up: Callable[[], bool],
    fail: Callable[[DumpstreamError], None],
) -> None:
    """Finalise, *drain* and unregister, in the order in which the runtime loses nothing.

    A run that was *given_up* discards what the device has not sent yet, so it does not wait for the device.
    What the runtime refuses is told to *fail*, and everything else is done all the same.
    """
    finalized = None
    if dump is not None and dump.started:
        with _told(fail):
            await run_sync(dump.finalize, None if given_up() else dump.driver.current_context())
        finalized = not dump.started
        if finalized:
            await anyio.sleep(_LAST_CALLBACK_S)
    await drain()
    if dump is not None:
        # Queued chunks would go to the disk of the runtime: the callback stays, to refuse them.
        settled = not given_up() if finalized is None else finalized
        with _told(fail):
            await run_sync(dump.unregister if settled else dump.leave)


@contextmanager
def _told(fail: Callable[[DumpstreamError], None]) -> Iterator[None]:
    try:
        yield
    except DumpstreamError as exc:
        fail(exc)
