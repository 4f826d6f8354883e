"""Durable: what survives a power cut. A file is lost if no directory on the disk leads to it."""

import errno
import os
from enum import StrEnum
from pathlib import Path

# Answers of file systems that have nothing to force, or cannot: network file systems, read-only ones.
_NOTHING_TO_FORCE = {errno.EINVAL, errno.ENOTSUP, errno.EROFS}


class Fsync(StrEnum):
    """When stored bytes are forced to the disk."""

    NONE = "none"  #: the kernel decides; survives a kill of the process, not a power cut
    FILE = "file"  #: every file before it appears under its name
    CAPTURE = "capture"  #: once, when the capture ends


def force_names(dir_fd: int) -> None:
    """Force the names in the directory *dir_fd* to the disk, if its file system can."""
    try:
        os.fsync(dir_fd)
    except OSError as exc:
        if exc.errno not in _NOTHING_TO_FORCE:
            raise


def force_directory(path: Path) -> None:
    """Force the names in the directory *path* to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        force_names(fd)
    finally:
        os.close(fd)


def force_path(path: Path) -> None:
    """Force the names that lead to *path* to the disk, as far up as this process may open directories."""
    for directory in path.resolve().parents:
        try:
            force_directory(directory)
        except PermissionError:
            return
