"""Bytes to numbers, and numbers to tables."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dumpstream.statistics.running import (
        RunningStatistics as RunningStatistics,
        tensor_statistics as tensor_statistics,
    )

__all__ = ["RunningStatistics", "tensor_statistics"]


def __getattr__(name: str) -> object:
    """Return a public *name*: it needs numpy, which a capture without statistics does not load."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dumpstream.statistics import running  # noqa: PLC0415 - as it says

    return getattr(running, name)
