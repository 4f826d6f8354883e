"""Outbox: a local directory for what has to go to an object store and cannot just now."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError, FileRefusedError
from dumpstream.archive.destination import explained, make_directory
from dumpstream.archive.manifest import MANIFEST, manifest_text, read_manifest, write_manifest
from dumpstream.archive.rows import JOURNAL
from dumpstream.remote.room import Room
from dumpstream.source import OnFull
from dumpstream.system.durable import force_directory
from dumpstream.system.lock import release_lock, take_lock
from dumpstream.system.nofollow import open_regular
from dumpstream.system.publishing import replace_file, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from typing_extensions import Buffer

    from dumpstream.archive.manifest import Manifest
    from dumpstream.remote.storelock import StoreLock
    from dumpstream.system.location import Prefix

#: What a file is lost to that fits nowhere while its store is away.
SPILL_FULL = "spill_full"

_DESCRIPTION = "outbox.json"
_OBJECTS = "objects"
_FORMAT = 1
_LARGEST_DESCRIPTION = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_MORE = os.O_WRONLY | os.O_APPEND


class Outbox:
    """The write-ahead journal of a capture, and objects that wait for their store.

    Held by one process. Methods that are not async block: call them from a worker thread.

    Args:
        path: its directory.
        description: what `describe` wrote.
        room: for the objects; without it none may wait here.
        on_full: whether who brings more than fits waits or is refused.
    """

    def __init__(
        self,
        path: Path,
        description: dict[str, Any],
        *,
        room: Room | None = None,
        on_full: OnFull = OnFull.BLOCK,
    ) -> None:
        self.path = path
        self.description = description
        self.needed = False  #: whether it has something that is not yet where it belongs
        self._on_full = on_full
        self._room = Room(0) if room is None else room
        self._dir_fd = -1
        self._lock_fd = -1

    @classmethod
    def make(cls, root: Path, destination: str, *, room: Room | None, on_full: OnFull) -> Outbox:
        """Make an outbox below *root* for a capture to *destination*, and take it.

        Raises:
            DestinationError: there can be none.
        """
        name = f"{strftime('%Y%m%dT%H%M%S', gmtime())}-{secrets.token_hex(4)}"
        description = {"format": _FORMAT, "destination": destination}
        outbox = cls(root / name, description, room=room, on_full=on_full)
        try:
            outbox._take()
            (outbox.path / _OBJECTS).mkdir(mode=0o700, exist_ok=True)
        except OSError as exc:
            raise DestinationError(
                root,
                f"cannot hold what waits for a store ({exc.strerror}); name another with --spill (spill=)",
            ) from exc
        outbox.describe()
        return outbox

    @classmethod
    def open(cls, path: Path) -> Outbox:
        """Take the outbox that a capture left at *path*.

        Raises:
            DestinationInUseError: the capture is still running.
            DestinationError: there is none.
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
        """Write down *more* of what `dumpstream upload` has to know."""
        self.description |= more
        with explained(self.path):
            replace_file(_DESCRIPTION, [json.dumps(self.description).encode("ascii")], self._dir_fd)

    def add_store(self, prefix: Prefix) -> None:
        """Write down that objects for *prefix* may wait here."""
        self.describe(stores=sorted({*self.description.get("stores", ()), prefix.url}))

    def add_packs(self, url: str) -> None:
        """Write down how the URLs of all packs begin that a sink makes."""
        self.describe(packs=[*self.description.get("packs", ()), url])

    def add_lock(self, lock: StoreLock, *, shared: bool = False) -> None:
        """Write down that *lock* must be held when something is uploaded from here.

        Unless it is *shared* with others, it is nobody's any more when this is left behind.
        """
        locks = self.description.get("locks", {})
        self.describe(locks={**locks, lock.prefix.url: None if shared else lock.text})

    def keep_manifest(self, manifest: Manifest) -> bytes:
        """Write down the *manifest* that the destination is to have; return its text."""
        with explained(self.path):
            write_manifest(manifest, self._dir_fd)
        return manifest_text(manifest).encode()

    def manifest(self) -> Manifest | None:
        """Return the manifest that was kept; None if the capture had not begun."""
        return read_manifest(self.path) if (self.path / MANIFEST).exists() else None

    # Space

    @property
    def capacity(self) -> int:
        """How many bytes may ever wait here."""
        return self._room.capacity

    @property
    def free(self) -> int:
        """How many bytes more may wait here."""
        return self._room.free

    @property
    def on_full(self) -> OnFull:
        """What is to happen to a file for which there is no room."""
        return self._on_full

    def take_room(self, size: int, name: str) -> bool:
        """Take room for *size* bytes of the object *name*; return whether there was so much.

        Raises:
            FileRefusedError: there was not, and who comes then is to be refused.
        """
        if size > self.free:
            if self._on_full is OnFull.DROP:
                raise FileRefusedError(
                    f"{name!r} does not fit into the spill of {self.capacity} bytes; raise --spill-bytes",
                    cause=SPILL_FULL,
                )
            return False
        self._room.take(size)
        return True

    def release(self, size: int) -> None:
        """Give room back; for the event loop's thread."""
        self._room.give_back(size)

    async def wait(self) -> None:
        """Wait until room is given back, or `notify` is called."""
        await self._room.freed()

    def notify(self) -> None:
        """Let those who wait look again; for the event loop's thread."""
        self._room.wake()

    # Objects

    def append(self, url: str, pieces: Iterable[Buffer], *, new: bool) -> None:
        """Add *pieces* to what there is of the object *url*, or begin it if it is *new*."""
        flags = _NEW if new else _MORE
        fd = open_regular(self._object_path(url, whole=False), flags)
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
        """Give objects other URLs, and the journal *lines* that say so, both or neither.

        What is under the new URLs now is nobody's.
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

    # The end

    def close(self) -> None:
        """Give it up, and delete it unless it is needed; a second call does nothing."""
        if self._dir_fd >= 0:
            if not self.needed:
                with suppress(OSError):
                    shutil.rmtree(self.path)
            release_lock(self._lock_fd)
            os.close(self._dir_fd)
            self._dir_fd = -1

    async def aclose(self) -> None:
        """Close it, and tell who shares its room."""
        with anyio.CancelScope(shield=True):
            await run_sync(self.close)
        self._room.leave(cleared=not self.needed)

    def _take(self) -> None:
        self._dir_fd = make_directory(self.path)
        try:
            self._lock_fd = take_lock(self.path, self._dir_fd)
        except BaseException:
            os.close(self._dir_fd)
            self._dir_fd = -1
            raise

    def _object_path(self, url: str, *, whole: bool) -> Path:
        # Hashed: keys may be longer than file names, and one may be another's directory.
        digest = blake2b(url.encode(), digest_size=16).hexdigest()
        return self.path / _OBJECTS / (digest if whole else f"{digest}.part")


def _read_description(path: Path) -> dict[str, Any]:
    problem = f"is no outbox: its {_DESCRIPTION} cannot be read; name a --spill directory"
    try:
        with os.fdopen(open_regular(path / _DESCRIPTION, os.O_RDONLY), "rb") as file:
            description = json.loads(file.read(_LARGEST_DESCRIPTION))
        readable = description["format"] == _FORMAT and isinstance(description["destination"], str)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise DestinationError(path, problem) from None
    if not readable:
        raise DestinationError(path, problem)
    return dict(description)


def find_outboxes(directory: Path) -> Iterator[Path]:
    """Yield the outboxes in *directory*, oldest first, or *directory* itself if it is one."""
    if (directory / _DESCRIPTION).exists():
        yield directory
        return
    for path in sorted(directory.glob(f"*/{_DESCRIPTION}")):
        yield path.parent


def count_objects(path: Path) -> int:
    """Return how many objects wait in the outbox at *path*."""
    return sum(not object_path.suffix for object_path in (path / _OBJECTS).glob("*"))


def upload_command(directory: Path | None) -> str:
    """Return the command that brings what waits in *directory*, or in the user's state directory."""
    return "dumpstream upload" if directory is None else f"dumpstream upload {shlex.quote(str(directory))}"


def waiting_text(files: int, spill: Path | None) -> str:
    """Return what there is to say of *files* that a capture with *spill* leaves behind, and the remedy."""
    what = {0: "the end of the journal waits", 1: "1 file waits"}.get(files, f"{files} files wait")
    return f"{what} for the store; upload what is missing with: {upload_command(spill)}"


def state_directory() -> Path:
    """Return where outboxes are if nobody says where."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home, "dumpstream").expanduser()
