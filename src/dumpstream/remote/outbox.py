"""Outbox: a local directory for what an object store has still to get."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import gmtime, strftime
from typing import Any

import anyio
from anyio.to_thread import run_sync
from typing_extensions import Buffer

from dumpstream._errors import DestinationError, FileRefusedError
from dumpstream.archive.destination import explained, make_directory
from dumpstream.archive.manifest import MANIFEST, Manifest, manifest_text, read_manifest, write_manifest
from dumpstream.archive.rows import JOURNAL
from dumpstream.remote.quota import Quota
from dumpstream.remote.storelock import StoreLock
from dumpstream.source import OnFull
from dumpstream.system.durable import force_directory
from dumpstream.system.location import Prefix
from dumpstream.system.lock import release_lock, take_lock
from dumpstream.system.nofollow import open_regular
from dumpstream.system.publishing import replace_file, write_all

#: Why a file is lost for which there was no room while its store was away.
SPILL_FULL = "spill_full"

DESCRIPTION = "outbox.json"
OBJECTS = "objects"
_FORMAT = 1
_LARGEST_DESCRIPTION = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_MORE = os.O_WRONLY | os.O_APPEND


class Outbox:
    """The write-ahead journal of a capture, and objects that wait for their store.

    Held by one process. Methods that are not async block: call them from a worker thread.

    Args:
        path: the directory.
        description: what `describe` wrote.
        quota: for the objects; without it no object may wait here.
        on_full: whether a file for which there is no room waits or is refused.

    Attributes:
        needed: whether it has something that is not yet where it belongs.
    """

    def __init__(
        self,
        path: Path,
        description: dict[str, Any],
        *,
        quota: Quota | None = None,
        on_full: OnFull = OnFull.BLOCK,
    ) -> None:
        self.path = path
        self.description = description
        self.needed = False
        self.on_full = on_full
        self.quota = Quota(0) if quota is None else quota
        self._dir_fd = -1
        self._lock_fd = -1

    @classmethod
    def make(cls, root: Path, destination: str, *, quota: Quota | None, on_full: OnFull) -> Outbox:
        """Make an outbox below *root* for a capture to *destination*, and take it.

        Raises:
            DestinationError: it cannot be made.
        """
        name = f"{strftime('%Y%m%dT%H%M%S', gmtime())}-{secrets.token_hex(4)}"
        description = {"format": _FORMAT, "destination": destination}
        outbox = cls(root / name, description, quota=quota, on_full=on_full)
        try:
            outbox._take()
            (outbox.path / OBJECTS).mkdir(mode=0o700, exist_ok=True)
            outbox._write_description()
        except OSError as exc:
            outbox.close()
            raise DestinationError(
                root,
                f"cannot hold what waits for a store ({exc.strerror}); name another with --spill (spill=)",
            ) from exc
        return outbox

    @classmethod
    def open(cls, path: Path) -> Outbox:
        """Take the outbox that a capture left at *path*.

        Raises:
            DestinationInUseError: the capture is still running.
            DestinationError: there is no outbox.
        """
        outbox = cls(path, _read_description(path))
        outbox.needed = True
        with explained(path):
            outbox._take()
        return outbox

    @property
    def journal_path(self) -> Path:
        """Where the write-ahead journal is."""
        return self.path / JOURNAL

    def describe(self, **more: Any) -> None:
        """Record *more* of what `dumpstream upload` has to know."""
        self.description |= more
        with explained(self.path):
            self._write_description()

    def add_store(self, prefix: Prefix) -> None:
        """Record that objects for *prefix* may wait here."""
        self.describe(stores=sorted({*self.description.get("stores", ()), prefix.url}))

    def add_packs(self, url: str) -> None:
        """Record *url*, with which the URLs of all packs of a sink begin."""
        self.describe(packs=[*self.description.get("packs", ()), url])

    def add_lock(self, lock: StoreLock, *, shared: bool = False) -> None:
        """Record that *lock* must be held when something is uploaded from here.

        Unless other captures use it, too (*shared*), a later upload may take it from a capture that has died.
        """
        locks = self.description.get("locks", {})
        self.describe(locks={**locks, lock.prefix.url: None if shared else lock.text})

    def keep_manifest(self, manifest: Manifest) -> bytes:
        """Record the *manifest* that the destination is to have; return its text."""
        with explained(self.path):
            write_manifest(manifest, self._dir_fd)
        return manifest_text(manifest).encode()

    def manifest(self) -> Manifest | None:
        """Return the manifest that was kept; None if the capture had not begun."""
        return read_manifest(self.path) if (self.path / MANIFEST).exists() else None

    def take_room(self, size: int, name: str) -> bool:
        """Take room for *size* bytes of the object *name*; return whether there was enough.

        Raises:
            FileRefusedError: there was not enough, and files are to be refused then.
        """
        if size <= self.quota.free:
            self.quota.take(size)
            return True
        if self.on_full is OnFull.DROP:
            raise FileRefusedError(
                f"{name!r} does not fit into the spill of {self.quota.capacity} bytes; raise --spill-bytes",
                cause=SPILL_FULL,
            )
        return False

    def append(self, url: str, pieces: Iterable[Buffer], *, new: bool) -> None:
        """Add *pieces* to what there is of the object *url*, or begin it if it is *new*."""
        fd = open_regular(self._object_path(url, whole=False), _NEW if new else _MORE)
        try:
            for piece in pieces:
                write_all(fd, memoryview(piece))
        finally:
            os.close(fd)

    def complete(self, url: str, *, durable: bool = False) -> None:
        """Mark the object *url* as whole; with *durable* it is on the disk then."""
        path, whole = self._object_path(url, whole=False), self._object_path(url, whole=True)
        if durable:
            fd = open_regular(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        path.rename(whole)
        if durable:
            force_directory(whole.parent)

    def size(self, url: str) -> int | None:
        """Return the size of the object *url*, or None if it is not here as a whole."""
        try:
            return self._object_path(url, whole=True).stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            return None

    def open_object(self, url: str, *, whole: bool = True) -> int:
        """Return a descriptor of the object *url*, or of what there is of it, which the caller closes."""
        return open_regular(self._object_path(url, whole=whole), os.O_RDONLY)

    def read_object(self, url: str) -> bytes:
        """Return the whole object *url*."""
        with os.fdopen(self.open_object(url), "rb") as file:
            return file.read()

    def move(self, urls: Mapping[str, str], lines: Iterable[bytes]) -> None:
        """Give objects other URLs, and the journal the *lines* that name them, both or neither.

        Whatever lies under the new URLs is replaced.
        """
        for old, new in urls.items():
            self.discard(new)
            self._object_path(new, whole=True).hardlink_to(self._object_path(old, whole=True))
        replace_file(JOURNAL, (line + b"\n" for line in lines), self._dir_fd)
        for old in urls:
            self.discard(old)

    def discard(self, url: str) -> None:
        """Remove what there is of the object *url*."""
        for whole in (True, False):
            with suppress(FileNotFoundError):
                self._object_path(url, whole=whole).unlink()

    def close(self) -> None:
        """Release the directory, and delete it unless it is needed; a second call does nothing."""
        if self._dir_fd >= 0:
            if not self.needed:
                with suppress(OSError):
                    shutil.rmtree(self.path)
            release_lock(self._lock_fd)
            os.close(self._dir_fd)
            self._dir_fd = -1

    async def aclose(self) -> None:
        """Close it, and leave its room to the captures that share it."""
        with anyio.CancelScope(shield=True):
            await run_sync(self.close)
        self.quota.leave(cleared=not self.needed)

    def _write_description(self) -> None:
        replace_file(DESCRIPTION, [json.dumps(self.description).encode("ascii")], self._dir_fd)

    def _take(self) -> None:
        self._dir_fd = make_directory(self.path)
        try:
            self._lock_fd = take_lock(self.path, self._dir_fd)
        except BaseException:
            os.close(self._dir_fd)
            self._dir_fd = -1
            raise

    def _object_path(self, url: str, *, whole: bool) -> Path:
        # Hashed: keys may be longer than file names, and one key may be the directory of another.
        digest = blake2b(url.encode(), digest_size=16).hexdigest()
        return self.path / OBJECTS / (digest if whole else f"{digest}.part")


def _read_description(path: Path) -> dict[str, Any]:
    problem = f"is not an outbox: its {DESCRIPTION} cannot be read; name a --spill directory"
    try:
        with os.fdopen(open_regular(path / DESCRIPTION, os.O_RDONLY), "rb") as file:
            description = json.loads(file.read(_LARGEST_DESCRIPTION))
        readable = description["format"] == _FORMAT and isinstance(description["destination"], str)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise DestinationError(path, problem) from None
    if not readable:
        raise DestinationError(path, problem)
    return dict(description)
