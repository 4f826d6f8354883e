"""Removal: files and directories, removed below a descriptor, so that no link leads elsewhere."""

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from dumpstream.system.nofollow import open_directory, opened_directory
from dumpstream.system.walk import walk

# A directory or a link is in its place, or no file can be called so.
_NO_SUCH_FILE = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_MOST_OPEN = 64
# Instead of descriptors:
_FOREIGN, _MISSING = -1, -2


def remove_file(name: str, dir_fd: int) -> None:
    """Remove the file or link *name*, unless it is gone."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=dir_fd)


def remove_empty(path: Sequence[str], dir_fd: int) -> None:
    """Remove the directory that the components *path* lead to, and those above it, as long as they are empty.

    The directory *dir_fd* itself stays.
    """
    with suppress(OSError):
        for depth in range(len(path) - 1, -1, -1):
            with opened_directory(dir_fd, path[:depth]) as above:
                os.rmdir(path[depth], dir_fd=above)


def remove_tree(name: str, dir_fd: int) -> None:
    """Remove *name* and, if it is a directory, everything in it; does nothing if it is gone."""
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            return remove_file(name, dir_fd)
    except FileNotFoundError:
        return None
    with opened_directory(dir_fd, [name]) as fd:
        for folder in walk(fd):
            for file in () if folder.ended else folder.files:
                remove_file(file, folder.fd)
            for below in folder.folders if folder.ended else ():
                with suppress(FileNotFoundError):
                    os.rmdir(below, dir_fd=folder.fd)
    return os.rmdir(name, dir_fd=dir_fd)


class Remover:
    """Removes files below *root*, one after another, and directories that are left empty.

    It keeps only the directories of the latest files open, however many files there are. Directories for
    which *is_foreign* is true, given a descriptor, are not entered.
    """

    def __init__(self, root: int, *, is_foreign: Callable[[int], bool]) -> None:
        self._root, self._is_foreign = root, is_foreign
        self._opened: OrderedDict[tuple[str, ...], int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._opened:
            self._leave()

    def remove(self, path: tuple[str, ...]) -> bool:
        """Remove the file *path*, if it is there; return False if it is in a foreign directory.

        Raises:
            OSError: it cannot be removed.
        """
        folder = path[:-1]
        fd = self._opened.get(folder)
        if fd is None:
            if len(self._opened) >= _MOST_OPEN:
                self._leave()
            fd = self._opened[folder] = self._enter(folder)
        else:
            self._opened.move_to_end(folder)
        try:
            if fd >= 0:
                os.unlink(path[-1], dir_fd=fd)
        except OSError as exc:
            if exc.errno not in _NO_SUCH_FILE:
                raise
        return fd != _FOREIGN

    def _enter(self, folder: tuple[str, ...]) -> int:
        fd = os.dup(self._root)
        try:
            for name in folder:
                above, fd = fd, open_directory(fd, [name])
                os.close(above)
                if self._is_foreign(fd):
                    os.close(fd)
                    return _FOREIGN
        except OSError as exc:
            os.close(fd)
            if exc.errno not in _NO_SUCH_FILE:
                raise
            return _MISSING
        return fd

    def _leave(self) -> None:
        folder, fd = self._opened.popitem(last=False)
        if fd >= 0:
            os.close(fd)
            remove_empty(folder, self._root)
