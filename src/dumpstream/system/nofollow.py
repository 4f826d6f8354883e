"""Files and directories, opened without following symbolic links, which may have been planted."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dumpstream.system.durable import force_names

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_regular(path: str | Path, flags: int, *, dir_fd: int | None = None) -> int:
    """Open a regular file, or make it with mode 0600; raises ELOOP for a link, EINVAL for anything else."""
    # O_NONBLOCK: opening a FIFO in the place of a file must not wait for its other end.
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return fd


def open_directory(
    root: int, components: Iterable[str], *, create: bool = False, durable: bool = False
) -> int:
    """Return a new descriptor of the directory *components* lead to from the descriptor *root*.

    With *create*, missing directories are made with mode 0700. With *durable*, the names of all of them are
    forced to the disk.
    """
    fd = os.dup(root)
    for component in components:
        try:
            below = _open_below(fd, component, create=create)
            if durable:
                force_names(fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def _open_below(fd: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=fd)  # first, as most directories are there already
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=fd)
    return os.open(name, _DIRECTORY, dir_fd=fd)


@contextmanager
def opened_directory(root: int, components: Iterable[str], *, create: bool = False) -> Iterator[int]:
    """Have the directory that `open_directory` opens while the block runs."""
    fd = open_directory(root, components, create=create)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_root(path: str | Path) -> Iterator[int]:
    """Have the directory *path*, which the user has named and which may be a link, while the block runs."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
