"""How much memory this process may still take."""

from contextlib import suppress
from pathlib import Path

_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


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
