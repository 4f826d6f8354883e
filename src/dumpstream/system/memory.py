"""How much memory this process may still take, and how it gives back that of mapped files."""

import mmap
from contextlib import suppress
from pathlib import Path

_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)

#: So much of a mapped file stays in memory behind the place where it is read.
KEPT_BYTES = 16 << 20


def available_memory() -> int:
    """Return how many bytes the machine, and the container, can still give without swapping."""
    available = _machine_available()
    for limit, usage in _CGROUPS:
        with suppress(OSError, ValueError):
            available = min(available, int(limit.read_text()) - int(usage.read_text()))
    return max(available, 0)


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
