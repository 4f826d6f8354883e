"""The cache: files that only save time, in a directory of the user's own. All of it may be deleted."""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

_UNUSED_S = 30 * 24 * 3600
_MOST_BYTES = 16 << 30


def open_cache() -> tuple[Path, int] | None:
    """Return the directory and a descriptor of it, which the caller closes; None if there cannot be one.

    It is ``$XDG_CACHE_HOME/dumpstream``, or ``~/.cache/dumpstream``. A directory of another user, or one that
    other users may write to, is not used, because its files could be forged.
    """
    try:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dumpstream"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, RuntimeError):  # RuntimeError: the user does not have a home
        return None
    status = os.fstat(fd)
    if status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return path, fd
    os.close(fd)
    return None


def prune_cache(fd: int) -> None:
    """Delete files of the cache *fd* that were not used for a month, and the oldest if it is too large."""
    found = []
    with suppress(OSError), os.scandir(fd) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime, status.st_size, entry.name))
    total = 0
    for used, size, name in sorted(found, reverse=True):
        total += size
        if total > _MOST_BYTES or time.time() - used > _UNUSED_S:
            with suppress(OSError):
                os.unlink(name, dir_fd=fd)
