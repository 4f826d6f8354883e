"""Profile: what CANN's profiler collects, into a directory, while a block of a program runs."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DumpstreamError
from dumpstream.acl.library import load_profiling
from dumpstream.archive.destination import absolute, explained
from dumpstream.profiling.profiler import Profiler
from dumpstream.profiling.settings import ProfileSettings
from dumpstream.system.cancellation import isolated

StrPath = str | os.PathLike[str]


class Profile:
    """A profile that is being collected, or has been."""

    def __init__(self, path: Path, settings: ProfileSettings) -> None:
        self.path = path  #: its directory
        self.settings = settings

    def directories(self) -> list[Path]:
        """Return CANN's directories, a ``PROF_...`` for each start, also of earlier profiles; blocks."""
        return sorted(self.path.glob("PROF_*/"))


@asynccontextmanager
async def open_profile(
    destination: StrPath,
    settings: ProfileSettings | None = None,
    *,
    acl_library: StrPath | None = None,
    profiler: Profiler | None = None,
) -> AsyncIterator[Profile]:
    """Profile while the block runs, into the directory *destination*.

    Entering calls ``aclprofInit``, ``aclprofSetConfig`` for everything in `ProfileSettings.extra`, and
    ``aclprofStart``; load your models inside the block. Leaving calls ``aclprofStop`` and
    ``aclprofFinalize``, after synchronising the device if the thread that leaves the block has a device
    context. ``aclInit`` is never called: call it before, and check that ``aclFinalize`` succeeds.

    If the block is cancelled, profiling ends in order, but without waiting for the device. If entering fails
    or is cancelled, what was begun is undone.

    Args:
        destination: a directory; made if missing.
        settings: what to collect; by default from device 0.
        acl_library: the library with the ACL functions; by default it is searched for.
        profiler: one that knows what the program did before; by default nothing that matters.

    Raises:
        DestinationError: *destination* cannot be made.
        LibraryNotFoundError: no ACL library was found.
        ProfilingError: no library can profile, or not with these settings.
        ProfilingInUseError: another process is profiling.
        OrderError: the *profiler* is in use, or knows that this is the wrong order.
        AclError: an ACL function refused; on leaving, the profile may be incomplete.
    """
    path = await run_sync(absolute, destination)
    if profiler is None:
        profiler = Profiler(await run_sync(load_profiling, acl_library))
    async with isolated(profiling(profiler, path, settings or ProfileSettings())) as profile:
        yield profile


@asynccontextmanager
async def profiling(profiler: Profiler, path: Path, settings: ProfileSettings) -> AsyncIterator[Profile]:
    """Profile while the block runs, in a task that only scopes cancel, as `isolated` has it."""
    with anyio.CancelScope(shield=True):
        await run_sync(_begin, profiler, path, settings)
    context: int | None = None
    try:
        yield Profile(path, settings)
        context = profiler.acl.current_context()
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(_end, profiler, context)


def _begin(profiler: Profiler, path: Path, settings: ProfileSettings) -> None:
    with explained(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    profiler.init(path)
    try:
        for name, value in settings.extra.items():
            profiler.set_config(name, value)
        profiler.start(settings)
    except BaseException:
        # The caller needs the first error.
        with suppress(DumpstreamError):
            profiler.close()
        raise


def _end(profiler: Profiler, context: int | None) -> None:
    try:
        if context is not None:
            profiler.acl.synchronize(context)
    finally:
        profiler.close()
