"""Bytes to numbers, and numbers to tables."""

from dumpstream.statistics.running import RunningStatistics, tensor_statistics

__all__ = ["RunningStatistics", "tensor_statistics"]
