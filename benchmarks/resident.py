"""Resident: how much memory this process has had."""

from __future__ import annotations

from pathlib import Path


def reset_peak() -> int:
    """Let the peak of the resident memory begin anew, and return what is resident."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status("VmRSS")


def peak() -> int:
    """Return the peak of the resident memory, in bytes."""
    return _status("VmHWM")


def _status(key: str) -> int:
    """Return an entry of this process's status, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) << 10
    raise LookupError(f"the kernel does not tell {key}")
