"""The lock of a capture's directory: which process is writing there."""

import errno
import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path, PurePosixPath

from dumpstream._errors import DestinationError, DestinationInUseError
from dumpstream.system.nofollow import open_regular

LOCK = ".lock"
#: Where sinks of other captures have written to, in the directory of a capture: a folder in each line.
SHARED = ".other-sinks"

_MARKS = (LOCK, "manifest.json")  # the directory of a capture has both

_MOST_SHARED_BYTES = 1 << 20
_MOST_WORDS_BYTES = 2048  #: in the lock
_EVERYTHING = PurePosixPath(".")

_TRIES = 10
_PAUSE_S = 0.01

# Answers of file systems that cannot lock a directory.
_NO_LOCKS = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.EACCES}

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
        finally:
            if fd not in _held:  # another process has it, or its last holder has removed it
                os.close(fd)


def release_lock(fd: int) -> None:
    """Release the lock; does nothing in a forked child, which does not hold it."""
    if fd in _held:
        _held.discard(fd)
        with suppress(OSError):
            os.ftruncate(fd, 0)
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def write_beside_lock(fd: int, words: bytes) -> None:
    """Write *words*, one line, behind the id of this process; they are gone when the lock is released."""
    if fd in _held:
        line = f"{os.getpid()}\n".encode() + words.replace(b"\n", b" ")
        if len(line) < _MOST_WORDS_BYTES:  # padded, so that one call replaces what was there
            os.pwrite(fd, line.ljust(_MOST_WORDS_BYTES - 1) + b"\n", 0)


def read_beside_lock(path: str | Path) -> bytes | None:
    """Return the words that the holder of the lock of *path* has written last; None if there are none."""
    try:
        fd = open_regular(Path(path, LOCK), os.O_RDONLY)
    except OSError:
        return None
    try:
        _, _, words = os.pread(fd, _MOST_WORDS_BYTES, 0).partition(b"\n")
    except OSError:
        return None
    finally:
        os.close(fd)
    return words.strip() or None


def holds_lock(fd: int) -> bool:
    """Whether this process holds the lock *fd*; false for a forked child's copy of it."""
    return fd in _held


def lock_holder(path: str | Path, *, dir_fd: int | None = None) -> int | None:
    """Return the process that captures into *path* now (0 if it has not written its id yet), or None."""
    try:
        fd = open_regular(Path(path, LOCK), os.O_RDONLY, dir_fd=dir_fd)
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


def claim_directory(path: Path, dir_fd: int) -> None:
    """Keep sinks of other captures out of the directory *path*, open as *dir_fd*, until `unclaim_directory`.

    Where the file system cannot lock directories, they are not kept out.

    Raises:
        DestinationError: such a sink is writing there, or below.
    """
    problem = "is being written by another capture's sink; wait for its end, or choose another destination"
    _lock_directory(dir_fd, fcntl.LOCK_EX, DestinationError(path, problem))


def unclaim_directory(dir_fd: int) -> None:
    """Let sinks of other captures write to the directory again."""
    with suppress(OSError):
        fcntl.flock(dir_fd, fcntl.LOCK_UN)


def share_directories(path: Path, *, besides: Path | None) -> list[int]:
    """Let the captures in *path*, and above it, not be deleted until `release_shares`; return what it takes.

    Each of them gets a mark, which `shared_folders` reads, unless *path* is in *besides*, the caller's own
    capture, which is left out.

    Raises:
        OSError: one of them is being deleted.
    """
    shares: list[int] = []
    try:
        for directory in (path, *path.parents):
            if directory != besides and all(os.path.lexists(directory / mark) for mark in _MARKS):
                with suppress(PermissionError):  # as where the file system cannot lock directories
                    shares.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                    _held.add(shares[-1])
                    problem = f"{directory} is being deleted by another capture's --force, or repaired"
                    _lock_directory(shares[-1], fcntl.LOCK_SH, OSError(errno.EBUSY, problem))
                    if besides is None or not path.is_relative_to(
                        besides
                    ):  # whose own files are known by its manifest
                        _mark_shared(shares[-1], path.relative_to(directory))
    except BaseException:
        release_shares(shares)
        raise
    return shares


def release_shares(shares: list[int]) -> None:
    """Release what `share_directories` took; does nothing in a forked child."""
    for fd in shares:
        if fd in _held:
            _held.discard(fd)
            unclaim_directory(fd)
            os.close(fd)
    shares.clear()


def shared_folders(path: Path) -> set[PurePosixPath]:
    """Return the folders in the capture *path* to which sinks of other captures have written.

    If that cannot be told, it is the whole capture.
    """
    try:
        fd = open_regular(path / SHARED, os.O_RDONLY)
    except FileNotFoundError:
        return set()
    except OSError:
        return {_EVERYTHING}
    try:
        folders = {PurePosixPath(json.loads(line)) for line in _read_shared(fd).splitlines()}
    except (ValueError, TypeError, RecursionError, OSError):
        return {_EVERYTHING}
    finally:
        os.close(fd)
    return {_EVERYTHING} if any(".." in folder.parts for folder in folders) else folders


def _mark_shared(dir_fd: int, folder: Path) -> None:
    """Record, before anything is stored there, that a sink of another capture writes to *folder*."""
    fd = open_regular(SHARED, os.O_RDWR | os.O_CREAT | os.O_APPEND, dir_fd=dir_fd)
    try:
        line = json.dumps(os.fspath(folder)).encode()
        if line not in _read_shared(fd).splitlines():
            os.write(fd, line + b"\n")
            os.fsync(fd)
            os.fsync(dir_fd)
    finally:
        os.close(fd)


def _read_shared(fd: int) -> bytes:
    if os.fstat(fd).st_size > _MOST_SHARED_BYTES:
        return json.dumps(os.fspath(_EVERYTHING)).encode()
    return os.pread(fd, _MOST_SHARED_BYTES, 0)


def _lock_directory(fd: int, kind: int, refusal: Exception) -> None:
    """Lock a directory, if its file system can; raise *refusal* if another process has locked it."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise refusal from None
    except OSError as exc:
        if exc.errno not in _NO_LOCKS:
            raise


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
    text, _, _ = os.pread(fd, 32, 0).partition(b"\n")
    return int(text) if text.isdigit() else 0


def _drop_inherited() -> None:
    """Close a forked child's copies: a lock ends with the process that captures."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_drop_inherited)
