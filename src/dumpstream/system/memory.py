"""How much memory this process may still take, and how it gives back that of mapped files."""

import mmap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class _Groups(NamedTuple):
    """The control groups of a version, and what their files are called."""

    root: Path
    controllers: str  #: which one the line of `_MEMBERSHIP` names; none in version 2
    limit: str
    usage: str
    cache: frozenset[str]  #: in `memory.stat`: what counts as used, and is given up when it is needed


_GROUPS = (
    _Groups(
        Path("/sys/fs/cgroup"),
        "",
        "memory.max",
        "memory.current",
        frozenset({"inactive_file", "active_file"}),
    ),
    _Groups(
        Path("/sys/fs/cgroup/memory"),
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        frozenset({"total_inactive_file", "total_active_file"}),
    ),
)
#: In which control groups this process is, as it sees them.
_MEMBERSHIP = Path("/proc/self/cgroup")

#: So much of a mapped file stays in memory behind the place where it is read.
KEPT_BYTES = 16 << 20


def available_memory() -> int:
    """Return how many bytes the machine, and the container or service, can still give without swapping."""
    available = _machine_available()
    for groups in _GROUPS:
        for directory in _directories(groups):
            with suppress(OSError, ValueError):  # not there, or without a limit
                limit = int((directory / groups.limit).read_text(encoding="ascii"))
                used = int((directory / groups.usage).read_text(encoding="ascii"))
                available = min(available, limit - used + _cached(directory, groups))
    return max(available, 0)


def _directories(groups: _Groups) -> Iterator[Path]:
    """Yield the directories of the control group that this process is in, and of those around it."""
    yield groups.root
    with suppress(OSError, ValueError):
        for line in _MEMBERSHIP.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            _, controllers, path = line.split(":", 2)
            if groups.controllers in controllers.split(","):
                relative = PurePosixPath(path).relative_to("/")
                yield from (groups.root / it for it in (relative, *relative.parents[:-1]))


def _cached(directory: Path, groups: _Groups) -> int:
    """Return how many of the bytes that a group uses are those of files that could be read again."""
    lines = (directory / "memory.stat").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.split()[0] in groups.cache)


def _machine_available() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62


def forget(mapping: mmap.mmap, start: int = 0, stop: int | None = None) -> None:
    """Let the system take back the memory for the pages between *start* and *stop* of a read-only *mapping*.

    They are read from the file again if they are used again.
    """
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    end = len(mapping) if stop is None else stop // mmap.PAGESIZE * mmap.PAGESIZE
    if end > first:
        mapping.madvise(mmap.MADV_DONTNEED, first, end - first)
