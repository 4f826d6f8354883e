"""Walk: what is below a directory, however deep, with two descriptors and without following a link."""

import errno
import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import NamedTuple

from dumpstream.system.nofollow import open_directory

_UP = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Folder:
    """A directory of a walk.

    Attributes:
        fd: a descriptor of it, until the walk goes on.
        files: the names in it that are not directories, in order.
        folders: its directories, in order. The walk enters those that the caller leaves in the list.
        ended: whether everything below it has been walked.
    """

    __slots__ = ("_above", "ended", "fd", "files", "folders")

    def __init__(self, fd: int, above: list[str], *, with_files: bool) -> None:
        self.fd, self._above, self.ended = fd, above, False
        self.files: list[str] = []
        self.folders: list[str] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self.folders.append(entry.name)
                elif with_files:
                    self.files.append(entry.name)
        self.files.sort()
        self.folders.sort()

    @property
    def path(self) -> str:
        """Its path from where the walk began, with a slash at the end; empty for that directory itself."""
        return "".join(f"{name}/" for name in self._above)


class _Level(NamedTuple):
    folder: Folder
    rest: Iterator[str]  #: the directories in it that were not entered yet
    status: os.stat_result


def walk(dir_fd: int, *, with_files: bool = True) -> Generator[Folder]:
    """Yield the directory *dir_fd* and all below it, each twice: before and, `ended`, after what is in it.

    Without files, memory is only taken for the directories.

    Raises:
        OSError: a directory cannot be read, or was moved meanwhile.
    """
    above: list[str] = []
    levels: list[_Level] = []
    fd = os.dup(dir_fd)
    try:
        while True:
            folder = Folder(fd, above, with_files=with_files)
            yield folder
            levels.append(_Level(folder, iter(folder.folders), os.fstat(fd)))
            while (below := _enter(levels[-1].rest, fd)) is None:
                ended = levels.pop().folder
                ended.fd, ended.ended = fd, True
                yield ended
                if not levels:
                    return
                below_fd, fd = fd, os.open("..", _UP, dir_fd=fd)
                os.close(below_fd)
                if not os.path.samestat(os.fstat(fd), levels[-1].status):
                    raise OSError(errno.ESTALE, "was moved while it was read", folder.path)
                above.pop()
            name, below_fd = below
            os.close(fd)
            fd = below_fd
            above.append(name)
    finally:
        os.close(fd)


def walk_paths(top: str | os.PathLike[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the path of *top* and of every directory below it, with the names in it: directories, and others.

    Both are in order, and only the directories that the caller leaves in their list are entered. Links are
    not followed, and directories that cannot be read have nothing in them. Any depth will do, for which
    `os.walk` of Python 3.11 would run out of frames.
    """
    waiting = [os.fspath(top)]
    while waiting:
        path = waiting.pop()
        folders: list[str] = []
        others: list[str] = []
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                (folders if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        folders.sort()
        others.sort()
        yield path, folders, others
        waiting += [f"{path}/{name}" for name in reversed(folders)]


def _enter(names: Iterator[str], fd: int) -> tuple[str, int] | None:
    """Open the next of the directories *names* in the one that is *fd*; None if there are no more."""
    for name in names:
        with suppress(FileNotFoundError, NotADirectoryError):  # removed meanwhile, or replaced by a link
            return name, open_directory(fd, [name])
    return None
