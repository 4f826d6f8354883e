"""Removal: single files of a capture that no process is writing are removed, in a directory or in a store."""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError, DestinationInUseError
from dumpstream.archive.destination import absolute, explained
from dumpstream.archive.place import Place, WritingProcess
from dumpstream.objectstore.patience import Patience, ask
from dumpstream.objectstore.store import Store
from dumpstream.remote.storelock import StoreLock
from dumpstream.system.cancellation import finish_in_thread
from dumpstream.system.location import Prefix
from dumpstream.system.lock import claim_directory, release_lock, take_lock, unclaim_directory
from dumpstream.system.nofollow import opened_directory


class Removal(Protocol):
    """A capture that is locked, so that its files can be removed. Every call blocks."""

    def remove(self, path: str) -> bool:
        """Remove the file at *path*, relative to the capture; return whether it was removed.

        Raises:
            DestinationError: it cannot be removed.
            StoreError: the store refuses, or does not answer.
        """


@asynccontextmanager
async def removing(place: Place) -> AsyncIterator[Removal]:
    """Hold the lock of the capture at *place*, which must be there, while the block removes files of it.

    Raises:
        DestinationError: a process is writing there, or the lock cannot be taken.
    """
    try:
        if isinstance(place.path, Prefix):
            async with _locked_prefix(place.path) as store:
                yield _Objects(store)
        else:
            directory = await run_sync(_Directory, place.path)
            try:
                yield directory
            finally:
                await finish_in_thread(directory.close)
    except DestinationInUseError as exc:
        wait = "" if exc.host is None else ", or in two minutes if it was killed"
        holder = WritingProcess(exc.pid, exc.host)
        problem = f"is being written by {holder}; repair it when that has ended{wait}"
        raise DestinationError(exc.path, problem) from None


class _Directory:
    """The directory *path*, locked, also for the sinks of other captures; links are left as they are."""

    def __init__(self, path: Path) -> None:
        self._path = absolute(path)
        with explained(self._path):
            self._dir_fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                claim_directory(self._path, self._dir_fd)
                self._lock_fd = take_lock(self._path, self._dir_fd)
            except BaseException:
                os.close(self._dir_fd)
                raise

    def remove(self, path: str) -> bool:
        *directory, name = path.split("/")
        try:
            with opened_directory(self._dir_fd, directory) as parent:
                if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    return False
                os.unlink(name, dir_fd=parent)
        except OSError as exc:
            problem = f"cannot be removed ({exc.strerror}); correct that, and repair again"
            raise DestinationError(self._path / path, problem) from exc
        return True

    def close(self) -> None:
        release_lock(self._lock_fd)
        unclaim_directory(self._dir_fd)
        os.close(self._dir_fd)


class _Objects:
    """The objects in *store*, whose lock is held."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def remove(self, path: str) -> bool:
        self._store.delete(path)
        return True


@asynccontextmanager
async def _locked_prefix(prefix: Prefix) -> AsyncIterator[Store]:
    patience = Patience()
    lock = await run_sync(lambda: StoreLock(prefix, patience=patience))
    async with lock.held():
        await ask(lock.take)
        yield await run_sync(lambda: Store(prefix, lock=lock, patience=patience))
