"""Statistics of tensors, in one pass over bytes that come in any pieces."""

import math
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from typing_extensions import Buffer
from xxhash import xxh3_64

from dumpstream._native import CACHED_BYTES, Statistics
from dumpstream.format.dtypes import element_shape, needed_bytes
from dumpstream.format.header import Tensor
from dumpstream.statistics.kernels import encoding_of
from dumpstream.statistics.table import TensorStatistics

_LARGEST = (1 << 63) - 1
_EXTREMES = ("max", "min", "finite_max", "finite_min")
# What `TensorStatistics` begins with: all but the hash, the share of saturated elements and the histogram.
_NUMBERS = attrgetter(*[field.name for field in fields(TensorStatistics)][:-3])
# A thread that gives up the GIL may wait for milliseconds until it has it again. So what is soon done is done
# in blocks for which the kernels and the hash keep it.
_SMALL_BYTES = 256 << 10
_SMALL_BLOCK_BYTES = 8 << 10


def tensor_statistics(tensor: Tensor, data: Buffer, *, histogram: bool = False) -> TensorStatistics:
    """Return the statistics of *tensor*, whose bytes are *data*, as far as its shape needs them.

    With *histogram*, the exponents of floats are counted too.
    """
    running = RunningStatistics(tensor, histogram=histogram)
    running.update(memoryview(data).cast("B"))
    return running.result()


class RunningStatistics:
    """The statistics of one tensor whose bytes come in pieces; keeps sums, and no bytes."""

    __slots__ = ("_encoding", "_hash", "_kernel", "_left", "bytes", "problem", "tensor")

    def __init__(self, tensor: Tensor, *, histogram: bool = False) -> None:
        self.tensor = tensor
        self.bytes = 0  #: that came, padding included
        self.problem: str | None = None  #: why they are not the elements that the shape promises
        dtype, shape, size = tensor.dtype, tensor.shape, tensor.size
        elements: int | None = None
        try:
            self._left = needed_bytes(dtype, shape, size)
            elements = min(math.prod(element_shape(dtype, shape, size)), _LARGEST)
        except ValueError as exc:
            self.problem, self._left = str(exc), size
        packed = elements is not None and dtype.is_packed(elements, size)
        self._encoding = encoding = encoding_of(dtype.number, packed=packed)
        self._kernel: Statistics | None = None
        if encoding is not None:
            self._kernel = Statistics(
                encoding.kind,
                table=encoding.table,
                min_normal=encoding.min_normal,
                elements=None if elements is None else elements * encoding.components,
                histogram=histogram and not encoding.is_integer,
            )
        self._hash = xxh3_64()

    def update(self, data: memoryview) -> None:
        """Take the next bytes of the tensor."""
        self.bytes += len(data)
        data = data[: self._left]
        self._left -= len(data)
        step = _SMALL_BLOCK_BYTES if len(data) <= _SMALL_BYTES else CACHED_BYTES
        for start in range(0, len(data), step):
            block = data[start : start + step]  # summed up first, it is hashed from the cache
            if self._kernel is not None:
                self._kernel.update(block)
            self._hash.update(block)

    def result(self) -> TensorStatistics:
        """Return the statistics of what has come."""
        digest, encoding = self._hash.hexdigest(), self._encoding
        if self._kernel is None or encoding is None:
            return TensorStatistics(hash=digest)
        found = self._kernel.result()
        saturated = None
        if encoding.saturates and found.saturated is not None and found.count:
            saturated = found.saturated / found.count
        histogram = None if found.histogram is None else tuple(found.histogram)
        values: list[Any] = [*_NUMBERS(found), digest, saturated, histogram]
        statistics = TensorStatistics(*values)
        if encoding.is_integer and encoding.table is not None and found.count:  # the table has doubles
            exact: dict[str, Any] = {name: int(getattr(found, name)) for name in _EXTREMES}
            statistics = replace(statistics, **exact)
        return statistics
