"""Scratch: temporary directories that are named after their owner, and removed if a kill left them."""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from types import TracebackType
from typing import Self

from dumpstream.system.removal import remove_tree

#: Kind, process and its start time, in clock ticks since the boot: together they are no other process's.
_NAME = re.compile(r"dumpstream-[a-z]+-([0-9]{1,10})-([0-9]{1,20})-[0-9a-f]{8}", re.ASCII)
#: Until the owner has locked the directory, it does not have a name that others may remove.
_UNLOCKED = "dumpstream-new-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: In /proc/PID/stat behind the name of the program: the state, and the start time.
_STATE, _START = 0, 19


class ScratchDirectory:
    """A new private directory of this process in *parent*, by default that of temporary files.

    Those that killed processes of this user left in *parent* are removed first. Its owner holds a lock on it,
    which the system releases at a kill, because its number means another process in another container.
    """

    def __init__(self, kind: str, parent: Path | None = None) -> None:
        parent = Path(gettempdir()) if parent is None else parent
        remove_abandoned(parent)
        self._pid = os.getpid()
        unlocked = mkdtemp(prefix=_UNLOCKED, dir=parent)
        self._fd = os.open(unlocked, _DIRECTORY)
        with suppress(OSError):  # without a lock it is never removed by others
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path = parent / _name(kind, self._pid)
        Path(unlocked).rename(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove it with everything in it; does nothing if that was done, or in a forked child."""
        if self._fd >= 0 and os.getpid() == self._pid:
            with suppress(OSError), _opened(self.path.parent) as parent_fd:
                remove_tree(self.path.name, parent_fd)
            os.close(self._fd)
            self._fd = -1


def name_length(kind: str) -> int:
    """Return how long the names of this process's directories of this *kind* are."""
    return len(_name(kind, os.getpid()))


def remove_abandoned(parent: Path) -> None:
    """Remove the directories in *parent* whose owner, a process of this user, is dead; blocks."""
    with suppress(OSError), _opened(parent) as parent_fd:
        with os.scandir(parent_fd) as entries:
            matches = [match for entry in entries if (match := _NAME.fullmatch(entry.name))]
        for match in matches:
            with suppress(OSError):
                _remove_if_abandoned(match[0], parent_fd, int(match[1]), int(match[2]))


def _remove_if_abandoned(name: str, parent_fd: int, pid: int, start: int) -> None:
    if _start_of(pid) == start:
        return
    with _opened(name, parent_fd) as fd:  # raises if it is a link, or not a directory
        if os.fstat(fd).st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if its owner lives elsewhere
            remove_tree(name, parent_fd)


@contextmanager
def _opened(path: str | Path, dir_fd: int | None = None) -> Iterator[int]:
    fd = os.open(path, _DIRECTORY, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def _name(kind: str, pid: int) -> str:
    return f"dumpstream-{kind}-{pid}-{_start_of(pid) or 0}-{secrets.token_hex(4)}"


def _start_of(pid: int) -> int | None:
    """Return when the process *pid* was started; None if it is dead."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text.rpartition(b") ")[2].split()
    return None if fields[_STATE] in (b"Z", b"X") else int(fields[_START])
