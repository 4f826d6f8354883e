"""The lock of a capture's directory: which process is writing there."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from dumpstream._errors import DestinationInUseError
from dumpstream.system.nofollow import open_regular

LOCK = ".lock"

_TRIES = 10
_PAUSE_S = 0.01

_held: set[int] = set()


def take_lock(path: Path, dir_fd: int) -> int:
    """Lock the directory *path*, open as *dir_fd*, and return the lock; raises `DestinationInUseError`."""
    while True:
        fd = open_regular(LOCK, os.O_RDWR | os.O_CREAT, dir_fd=dir_fd)
        try:
            _wait_for(path, fd)
            if _is_there(fd, dir_fd):
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
                _held.add(fd)
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its last holder has removed it


def release_lock(fd: int) -> None:
    """Release the lock; does nothing in a forked child, which does not hold it."""
    if fd in _held:
        _held.discard(fd)
        with suppress(OSError):
            os.ftruncate(fd, 0)
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def holds_lock(fd: int) -> bool:
    """Whether this process holds the lock *fd*; false for a forked child's copy of it."""
    return fd in _held


def lock_holder(path: Path) -> int | None:
    """Return the process that captures into *path* now (0 if it has not written its id yet), or None."""
    try:
        fd = open_regular(path / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_pid(fd)
    else:
        return None
    finally:
        os.close(fd)


def _wait_for(path: Path, fd: int) -> None:
    for _ in range(_TRIES):
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)  # `lock_holder` takes it for a moment, too
    raise DestinationInUseError(path, _read_pid(fd))


def _is_there(fd: int, dir_fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(LOCK, dir_fd=dir_fd, follow_symlinks=False), os.fstat(fd))
    except FileNotFoundError:
        return False


def _read_pid(fd: int) -> int:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def _drop_inherited() -> None:
    """Close a forked child's copies: a lock ends with the process that captures."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_drop_inherited)
