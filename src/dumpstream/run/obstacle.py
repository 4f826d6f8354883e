"""Obstacles: why a capture has to be stored in the program itself, and not by a companion."""

import os
import sys
from pathlib import Path

from dumpstream.run.request import Request
from dumpstream.system.location import Prefix

#: Kinds of sinks that are made from their text alone and leave nothing in the process that has them.
_SERVED_SINKS = frozenset({"az", "gs", "null", "obs", "s3", "stats", "zstd"})


def obstacle(request: Request) -> str | None:
    """Return why no companion can store what *request* asks for, or None if one can."""
    if request.source is not None:
        return "source= is an object of this process"
    if request.profile is not None:
        return "profile= is made in this process"
    if not all(isinstance(sink, str) and sink.partition(":")[0] in _SERVED_SINKS for sink in request.sinks):
        return "sinks= has objects of this process, or sinks of other packages"
    if request.destination is None:
        return "without a destination, files are for the consumers in this process"
    if isinstance(request.destination, Prefix) and request.destination.store is not None:
        return "the store is an object of this process"
    return _obstacle_here()


def _obstacle_here() -> str | None:
    """Return why this program can have no companion, whatever it captures."""
    if not _has_interpreter():
        return "sys.executable does not name a Python interpreter"
    return None if _has_pidfds() else "another process cannot be watched here: Linux 5.3 is needed"


def _has_interpreter() -> bool:
    """Whether `sys.executable` runs modules: of a program that embeds Python, or is frozen, it may not."""
    return Path(sys.executable or "").name.startswith("python") and not hasattr(sys, "frozen")


def _has_pidfds() -> bool:
    """Whether the kernel, and the container that this may be in, let a process be held."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
