"""Outbox: a local directory for what an object store has still to get."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import anyio
from anyio.to_thread import run_sync
from typing_extensions import Buffer

from dumpstream._errors import DestinationError
from dumpstream.archive.destination import absolute, explained, make_directory
from dumpstream.archive.manifest import (
    LARGEST_BYTES,
    MANIFEST,
    Manifest,
    manifest_text,
    parse_manifest,
    write_manifest,
)
from dumpstream.archive.rows import JOURNAL
from dumpstream.remote.description import Description
from dumpstream.remote.outboxes import (
    DESCRIPTION,
    LARGEST_DESCRIPTION,
    OBJECTS,
    clear_outbox,
    new_name,
    not_an_outbox,
    open_outbox,
    outer_outbox,
    refuse_foreign,
    undone,
)
from dumpstream.remote.quota import Quota
from dumpstream.remote.storelock import StoreLock
from dumpstream.source import OnFull
from dumpstream.system.durable import force_names
from dumpstream.system.location import Prefix
from dumpstream.system.lock import release_lock, take_lock
from dumpstream.system.nofollow import open_directory, open_regular, opened_directory
from dumpstream.system.publishing import replace_file, write_all

#: Why a file is lost for which there was no room while its store was away.
SPILL_FULL = "spill_full"

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_MORE = os.O_WRONLY | os.O_APPEND


class Outbox:
    """The write-ahead journal of a capture, and objects that wait for their store.

    Held by one process. Methods that are not async block: call them from a worker thread.

    Args:
        path: the directory.
        description: where the objects belong.
        quota: for the objects; without it no object may wait here.
        on_full: whether a file for which there is no room waits or is refused.

    Attributes:
        needed: whether it has something that is not yet where it belongs.
        left: after `close`, what it had that dumpstream did not make, and that is still there.
    """

    def __init__(
        self,
        path: Path,
        description: Description,
        *,
        quota: Quota | None = None,
        on_full: OnFull = OnFull.BLOCK,
    ) -> None:
        self.path = path
        self.description = description
        self.needed = False
        self.left: Sequence[str] = ()
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
        if (outer := outer_outbox(root)) is not None:
            raise _not_here(root, f"is inside the outbox {outer} of another capture")
        outbox = cls(root / new_name(), Description(destination), quota=quota, on_full=on_full)
        try:
            with undone(outbox.close):
                outbox._take(make_directory(outbox.path))
                os.close(open_directory(outbox._dir_fd, [OBJECTS], create=True))
                outbox._write_description()
                refuse_foreign(outbox.path, outbox._dir_fd)  # some file systems give it to another user
        except OSError as exc:
            raise _not_here(root, f"cannot hold what waits for a store ({exc.strerror})") from exc
        return outbox

    @classmethod
    def open(cls, path: Path) -> Outbox:
        """Take the outbox that a capture of this user left at *path*.

        Raises:
            DestinationInUseError: the capture is still running.
            DestinationError: there is no outbox, or another user may have written it.
        """
        path = absolute(path)
        if (outer := outer_outbox(path.parent)) is not None:
            raise DestinationError(path, f"is inside the outbox {outer}, which has no others; name that one")
        outbox = cls(path, Description(""))
        outbox.needed = True
        with explained(path):
            outbox._take(open_outbox(path))
        with undone(outbox.close):
            outbox.description = outbox._read_description()
        return outbox

    @property
    def journal_path(self) -> Path:
        """Where the write-ahead journal is."""
        return self.path / JOURNAL

    def read_journal(self) -> Iterator[bytes]:
        """Yield the lines of the write-ahead journal, each with its newline; the last may lack it.

        Raises:
            OSError: it cannot be read, or is not a regular file.
            DestinationError: another user may have written it.
        """
        with suppress(FileNotFoundError), self._open(JOURNAL) as file:
            yield from file

    def add_store(self, prefix: Prefix) -> None:
        """Record that objects for *prefix* may wait here."""
        self._describe(stores=sorted({*self.description.stores, prefix.url}))

    def add_packs(self, url: str) -> None:
        """Record *url*, with which the URLs of all packs of a sink begin."""
        self._describe(packs=[*self.description.packs, url])

    def add_lock(self, lock: StoreLock, *, shared: bool = False) -> None:
        """Record that *lock* must be held when something is uploaded from here.

        Unless other captures use it, too (*shared*), a later upload may take it from a capture that has died.
        """
        self._describe(locks={**self.description.locks, lock.prefix.url: None if shared else lock.text})

    def keep_manifest(self, manifest: Manifest) -> bytes:
        """Record the *manifest* that the destination is to have; return its text."""
        with explained(self.path):
            write_manifest(manifest, self._dir_fd)
        return manifest_text(manifest).encode()

    def manifest(self) -> Manifest | None:
        """Return the manifest that was kept; None if the capture had not begun."""
        try:
            with self._open(MANIFEST) as file:
                return parse_manifest(self.path, file.read(LARGEST_BYTES))
        except FileNotFoundError:
            return None

    def append(self, url: str, pieces: Iterable[Buffer], *, new: bool) -> None:
        """Add *pieces* to what there is of the object *url*, or begin it if it is *new*."""
        fd = open_regular(_object_name(url, whole=False), _NEW if new else _MORE, dir_fd=self._dir_fd)
        try:
            for piece in pieces:
                write_all(fd, memoryview(piece))
        finally:
            os.close(fd)

    def complete(self, url: str, *, durable: bool = False) -> None:
        """Mark the object *url* as whole; with *durable* it is on the disk then."""
        part, whole = _object_name(url, whole=False), _object_name(url, whole=True)
        if durable:
            with os.fdopen(open_regular(part, os.O_RDONLY, dir_fd=self._dir_fd), "rb") as file:
                os.fsync(file.fileno())
        os.rename(part, whole, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd)
        if durable:
            with opened_directory(self._dir_fd, [OBJECTS]) as objects_fd:
                force_names(objects_fd)

    def size(self, url: str) -> int | None:
        """Return the size of the object *url*, or None if it is not here as a whole."""
        try:
            found = os.stat(_object_name(url, whole=True), dir_fd=self._dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_size

    def open_object(self, url: str, *, whole: bool = True) -> IO[bytes]:
        """Open the object *url*, or what there is of it, for reading."""
        return self._open(_object_name(url, whole=whole))

    def read_object(self, url: str, size: int) -> bytes:
        """Return the first *size* bytes of the whole object *url*."""
        with self.open_object(url) as file:
            return file.read(size)

    def move(self, urls: Mapping[str, str], lines: Iterable[bytes]) -> None:
        """Give objects other URLs, and the journal the *lines* that name them, both or neither.

        Whatever lies under the new URLs is replaced.
        """
        for old, new in urls.items():
            self.discard(new)
            names = _object_name(old, whole=True), _object_name(new, whole=True)
            os.link(*names, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd, follow_symlinks=False)
        replace_file(JOURNAL, (line + b"\n" for line in lines), self._dir_fd)
        for old in urls:
            self.discard(old)

    def discard(self, url: str) -> None:
        """Remove what there is of the object *url*."""
        for whole in (True, False):
            with suppress(FileNotFoundError):
                os.unlink(_object_name(url, whole=whole), dir_fd=self._dir_fd)

    def close(self) -> None:
        """Release the directory, and remove it unless it is needed; a second call does nothing.

        Only files that dumpstream makes are removed, and the directory only if it is empty then.
        """
        if self._dir_fd >= 0:
            if not self.needed:
                with suppress(OSError):
                    self.left = clear_outbox(self._dir_fd)
                with suppress(OSError):
                    self.path.rmdir()
            release_lock(self._lock_fd)
            os.close(self._dir_fd)
            self._dir_fd = -1

    async def aclose(self) -> None:
        """Close it, and leave its room to the captures that share it."""
        with anyio.CancelScope(shield=True):
            await run_sync(self.close)
        self.quota.leave(cleared=not self.needed)

    def _describe(self, **more: Any) -> None:
        self.description = replace(self.description, **more)
        with explained(self.path):
            self._write_description()

    def _write_description(self) -> None:
        replace_file(DESCRIPTION, [self.description.to_json()], self._dir_fd)

    def _take(self, dir_fd: int) -> None:
        """Lock the directory *dir_fd*, which is closed with it."""
        with undone(partial(os.close, dir_fd)):
            self._lock_fd = take_lock(self.path, dir_fd)
        self._dir_fd = dir_fd

    def _read_description(self) -> Description:
        try:
            with self._open(DESCRIPTION) as file:
                return Description.parse(file.read(LARGEST_DESCRIPTION))
        except (OSError, ValueError):
            raise not_an_outbox(self.path, DESCRIPTION) from None

    def _open(self, name: str) -> IO[bytes]:
        """Open the file *name*, which no other user can have written, for reading."""
        file = os.fdopen(open_regular(name, os.O_RDONLY, dir_fd=self._dir_fd), "rb")
        with undone(file.close):
            refuse_foreign(self.path, file.fileno(), name)
        return file


def _object_name(url: str, *, whole: bool) -> str:
    # Hashed: keys may be longer than file names, and one key may be the directory of another.
    digest = blake2b(url.encode(), digest_size=16).hexdigest()
    return f"{OBJECTS}/{digest if whole else f'{digest}.part'}"


def _not_here(root: Path, problem: str) -> DestinationError:
    return DestinationError(root, f"{problem}; name another with --spill (spill=)")
