"""Tree: files below a directory, each a draft until it is published without replacing anything."""

import errno
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from typing_extensions import Buffer

from dumpstream._native import sync_filesystem
from dumpstream.names import clean_name, free_number, hashed_name
from dumpstream.system.durable import force_names, force_path
from dumpstream.system.lock import release_shares, share_directories
from dumpstream.system.nofollow import open_directory
from dumpstream.system.publishing import create_draft, discard_draft, publish_draft, write_all, write_files

#: Descriptors that a thread may have open besides that of the directory it has leased.
TRANSIENT_DESCRIPTORS = 2

_GROWING = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_MORE = _GROWING | os.O_APPEND

# Something in the way is not a directory (a file, a planted link), or the file system is stricter about names
# than most.
_UNUSABLE_PATH = {errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


class Draft(NamedTuple):
    """A file that is not published yet."""

    directory: tuple[str, ...]
    stem: str  #: its published name without number and suffix
    temporary: str  #: its name until it is published


class _Directory:
    """A cached descriptor that stays open while it has users; leaving the context ends one use."""

    __slots__ = ("_lock", "fd", "users")

    def __init__(self, fd: int, lock: Lock) -> None:
        self.fd, self.users, self._lock = fd, 0, lock

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.users -= 1


class Tree:
    """Files below *root*, named for the runtime's names; never outside it, or through a symbolic link.

    Every method blocks and raises `OSError`. Several threads may call them, but not for one draft at once.
    The root is made and opened by the first call that needs it. Until `close`, no capture that the root is
    inside of can be deleted, except that in *base*.

    Args:
        root: where the tree begins; may itself be a symbolic link.
        below: directories under *root* that come before every name.
        suffix: ends every published name.
        base: published paths are relative to it if the root is inside it, else absolute.
        directories: how many descriptors to keep; at least one for each thread that uses the tree.
        durable: whether a file is on the disk before it is published, and its path before `publish` returns.
    """

    def __init__(
        self,
        root: Path,
        *,
        below: tuple[str, ...],
        suffix: str,
        base: Path | None,
        directories: int,
        durable: bool,
    ) -> None:
        self._root, self._below, self._suffix, self._base = root, below, suffix, base
        self._capacity, self._durable = directories, durable
        self._lock = Lock()
        self._root_fd: int | None = None
        self._shares: list[int] = []
        self._from_base = ""
        self._cache: OrderedDict[tuple[str, ...], _Directory] = OrderedDict()

    def create(self, name: str) -> tuple[Draft, int]:
        """Begin the file *name*; return the draft and a descriptor to write to, which the caller closes."""
        *directory, stem = clean_name(name)
        try:
            return self._create((*self._below, *directory), stem)
        except OSError as exc:
            if exc.errno not in _UNUSABLE_PATH:
                raise
        return self._create(self._below, hashed_name(name))

    def begin(self, name: str) -> tuple[Draft, str]:
        """Make the file *name*, empty and published, for `grow`; return it and its path."""
        draft, fd = self.create(name)
        os.close(fd)
        path = self.publish(draft)
        return draft._replace(temporary=path.rpartition("/")[2]), path

    def grow(self, draft: Draft, data: Buffer, size: int) -> None:
        """Append *data* to a file of `begin` that has *size* bytes; if that fails, it keeps its size."""
        with self._lease(draft.directory) as dir_fd:
            fd = os.open(draft.temporary, _GROWING, dir_fd=dir_fd)
        try:
            os.lseek(fd, size, os.SEEK_SET)
            write_all(fd, data)
            if self._durable:
                os.fsync(fd)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(fd, size)
            raise
        finally:
            os.close(fd)

    def write(self, files: Sequence[tuple[str, Buffer]]) -> list[str | OSError]:
        """Make *files*, each a name and its content, whole or not at all; return their paths or errors.

        Files of the same name get their numbers in order.
        """
        if self._durable:
            return [self._write_draft(name, content) for name, content in files]
        results: list[str | OSError] = []
        placed = [(*_split(clean_name(name)), name, content) for name, content in files]
        for folder, group in groupby(placed, itemgetter(0)):
            _, stems, names, contents = zip(*group, strict=True)
            written = [*self._write(folder, stems, contents)]  # a thread may lease one directory at a time
            for name, content, made in zip(names, contents, written, strict=True):
                unusable = isinstance(made, OSError) and made.errno in _UNUSABLE_PATH
                results += self._write((), [hashed_name(name)], [content]) if unusable else [made]
        return results

    def append(self, draft: Draft, data: memoryview) -> None:
        with self._lease(draft.directory) as dir_fd:
            fd = os.open(draft.temporary, _MORE, dir_fd=dir_fd)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)

    def path(self, draft: Draft, *, number: int = 1) -> str:
        """Return the path that *draft* gets if its name is free."""
        return self._from_base + "/".join((*draft.directory, self._numbered(draft.stem, number)))

    def publish(self, draft: Draft, *, number: int = 1) -> str:
        """Give *draft* the first free name from *number* on; return its path."""
        with self._lease(draft.directory) as dir_fd:
            if self._durable:
                _sync(draft.temporary, dir_fd)
            while True:
                try:
                    publish_draft(draft.temporary, self._numbered(draft.stem, number), dir_fd)
                    break
                except FileExistsError:
                    number = self._free_number(draft.stem, number, dir_fd)
            if self._durable:
                force_names(dir_fd)
        return self.path(draft, number=number)

    def discard(self, draft: Draft) -> None:
        """Remove *draft*, unless it is gone."""
        with self._lease(draft.directory) as dir_fd:
            discard_draft(draft.temporary, dir_fd)

    def sync(self) -> None:
        """Force the file system that the tree is in to the disk."""
        if self._root_fd is not None:
            sync_filesystem(self._root_fd)

    def close(self) -> None:
        """Close every descriptor; the last call."""
        for directory in self._cache.values():
            os.close(directory.fd)
        self._cache.clear()
        if self._root_fd is not None:
            os.close(self._root_fd)
            self._root_fd = None
        release_shares(self._shares)

    def _write(
        self, folder: tuple[str, ...], stems: Sequence[str], contents: Sequence[Buffer]
    ) -> Iterator[str | OSError]:
        directory = (*self._below, *folder)
        try:
            leased = self._lease(directory)
        except OSError as exc:
            yield from [exc] * len(stems)
            return
        free: dict[str, int] = {}  # by stem, the number of its next file
        done = 0
        with leased as dir_fd:
            beginning = self._from_base + "".join(f"{component}/" for component in directory)
            while done < len(stems):
                numbers = _in_turn(stems[done:], free)
                names = [*map(self._numbered, stems[done:], numbers)]
                for number, name, problem in zip(
                    numbers, names, write_files(dir_fd, names, contents[done:]), strict=True
                ):
                    stem = stems[done]
                    free[stem] = number + 1
                    if isinstance(problem, FileExistsError):
                        free[stem] = self._free_number(stem, number, dir_fd)
                        break
                    yield problem or beginning + name
                    done += 1

    def _write_draft(self, name: str, content: Buffer) -> str | OSError:
        draft = None
        try:
            draft, fd = self.create(name)
            try:
                write_all(fd, content)
            finally:
                os.close(fd)
            return self.publish(draft)
        except OSError as exc:
            if draft is not None:
                with suppress(OSError):  # the first failure is the one to report
                    self.discard(draft)
            return exc

    def _create(self, directory: tuple[str, ...], stem: str) -> tuple[Draft, int]:
        with self._lease(directory) as dir_fd:
            temporary, fd = create_draft(dir_fd)
        return Draft(directory, stem, temporary), fd

    def _free_number(self, stem: str, taken: int, dir_fd: int) -> int:
        return free_number(lambda number: _exists(self._numbered(stem, number), dir_fd), taken)

    def _numbered(self, stem: str, number: int) -> str:
        return f"{stem}{self._suffix}" if number == 1 else f"{stem}.{number}{self._suffix}"

    def _lease(self, path: tuple[str, ...]) -> _Directory:
        """Return the directory *path*, made if missing; the caller must leave it."""
        with self._lock:
            if (directory := self._cache.get(path)) is not None:
                directory.users += 1
                self._cache.move_to_end(path)
                return directory
        fd = open_directory(self._opened_root(), path, create=True, durable=self._durable)
        with self._lock:
            if (directory := self._cache.get(path)) is None:
                self._evict()
                directory = self._cache[path] = _Directory(fd, self._lock)
            else:  # another thread was faster
                os.close(fd)
            directory.users += 1
            return directory

    def _evict(self) -> None:
        """Make room for one more directory; there are fewer users than descriptors."""
        if len(self._cache) >= self._capacity:
            idle = next(path for path, directory in self._cache.items() if not directory.users)
            os.close(self._cache.pop(idle).fd)

    def _opened_root(self) -> int:
        with self._lock:
            if self._root_fd is None:
                self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
                root, base = self._root.resolve(), self._base and self._base.resolve()
                inside = base if base is not None and root.is_relative_to(base) else None
                self._from_base = "" if root == base else f"{root.relative_to(inside) if inside else root}/"
                self._shares = share_directories(root, besides=base)
                if self._durable:
                    force_path(root)
                self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            return self._root_fd


def _split(path: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    return path[:-1], path[-1]


def _in_turn(stems: Sequence[str], first: Mapping[str, int]) -> list[int]:
    """Return a number for each of *stems*: those of the same stem count up from its *first*, else from 1."""
    following = dict(first)
    numbers = []
    for stem in stems:
        number = following.get(stem, 1)
        following[stem] = number + 1
        numbers.append(number)
    return numbers


def _exists(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _sync(name: str, dir_fd: int) -> None:
    fd = os.open(name, _MORE, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
