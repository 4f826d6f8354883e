"""The cache: files that only save time, in a directory of the user's own. All of it may be deleted."""

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from xxhash import xxh3_128_hexdigest

from dumpstream.system.nofollow import open_regular
from dumpstream.system.publishing import create_draft, discard_draft, is_temporary, publish_draft

_UNUSED_S = 30 * 24 * 3600
_DRAFT_S = 3600  #: a draft that is not written to for so long is that of a process that was killed
_MOST_BYTES = 16 << 30


def open_cache() -> tuple[Path, int] | None:
    """Return the directory and a descriptor of it, which the caller closes; None if there cannot be one.

    It is ``$XDG_CACHE_HOME/dumpstream`` if that is absolute, or ``~/.cache/dumpstream``. A directory of
    another user, or one that other users may write to, is not used, because its files could be forged.
    """
    try:
        chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
        path = (chosen if chosen.is_absolute() else Path.home() / ".cache") / "dumpstream"
        for directory in (path.parent, path):  # not further up: a home that does not exist stays so
            directory.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, RuntimeError):  # RuntimeError: the user does not have a home
        return None
    status = os.fstat(fd)
    if status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return path, fd
    os.close(fd)
    return None


def open_cached(name: str, version: str, write: Callable[[IO[bytes]], None]) -> int:
    """Return a descriptor of what *write* writes, which is kept for the next caller with the same *version*.

    Other versions of *name* are deleted. Where there is no cache, or no space in it, the file is a temporary
    one. *write* may be called twice.
    """
    cache = open_cache()
    if cache is not None:
        try:
            return _open_kept(cache[1], _hash(name), _hash(version), write)
        except OSError:
            pass
        finally:
            os.close(cache[1])
    with TemporaryFile() as file:
        write(file)
        file.flush()
        return os.dup(file.fileno())


def _hash(text: str) -> str:
    return xxh3_128_hexdigest(os.fsencode(text))


def _open_kept(cache: int, name: str, version: str, write: Callable[[IO[bytes]], None]) -> int:
    kept = f"{name}-{version}"
    with suppress(FileNotFoundError):
        fd = open_regular(kept, os.O_RDONLY, dir_fd=cache)
        with suppress(OSError):  # a read-only disk
            os.utime(fd)
        return fd
    prune_cache(cache, f"{name}-")
    draft, fd = create_draft(cache)
    try:
        with os.fdopen(fd, "wb") as file:
            write(file)
        publish_draft(draft, kept, cache, replace=True)
    finally:
        discard_draft(draft, cache)
    return open_regular(kept, os.O_RDONLY, dir_fd=cache)


def prune_cache(fd: int, outdated: str = "") -> None:
    """Delete files of the cache *fd* that were not used for a month, and the oldest if it is too large.

    Files whose names begin with *outdated* are deleted, too, and drafts of processes that were killed.
    """
    found = []
    with suppress(OSError), os.scandir(fd) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime, status.st_size, entry.name))
    total = 0
    for used, size, name in sorted(found, reverse=True):
        total += size
        is_outdated = bool(outdated) and name.startswith(outdated)
        limit_s = _DRAFT_S if is_temporary(name) else _UNUSED_S
        if is_outdated or total > _MOST_BYTES or time.time() - used > limit_s:
            with suppress(OSError):
                os.unlink(name, dir_fd=fd)
