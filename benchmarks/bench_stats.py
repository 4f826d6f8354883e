"""How fast the statistics of a tensor are.

Gigabytes per second of 64 MiB, on one thread, beside numpy and ml_dtypes computing max, min, mean, the counts
of NaN and Inf (of floats) and l2norm, which is less than ours; and beside one numpy sum of the same float32,
which reads the memory once. Means and norms of 16 and 8 bits are taken in float32, as they would overflow
otherwise. The content hash is xxh3 of what lies in the cache, block by block; the histogram is that of the
exponents.

All take turns, in rounds; the fastest round of each counts, because other work on the machine only adds time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np
import xxhash

from dumpstream._native import CACHED_BYTES, Statistics, use_kernels
from figures import Arguments, Detail, Figure, Floor, parse_arguments, report

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_BYTES = 64 << 20
_QUICK_BYTES = 4 << 20
_ROUNDS = 5
_OF_A_SUM = 0.7
#: The share of every other floor that must be reached with the hash.
_HASH_SHARE = 0.5


class Case(NamedTuple):
    """A data type, its name in the kernels, and how many times as fast as numpy they must be."""

    label: str
    kind: str
    dtype: np.dtype[Any]
    floor: float | None

    @property
    def library(self) -> str:
        """The package that has its arithmetic."""
        return "ml_dtypes" if self.dtype.kind == "V" else "numpy"


_CASES = (
    Case("fp32", "f4", np.dtype(np.float32), 6),
    Case("fp16", "f2", np.dtype(np.float16), 40),
    Case("bf16", "bf16", np.dtype(ml_dtypes.bfloat16), 20),
    Case("int32", "i4", np.dtype(np.int32), 3),
    Case("int8", "i1", np.dtype(np.int8), 3),
    Case("fp8", "byte", np.dtype(ml_dtypes.float8_e4m3fn), None),
)


class Times(NamedTuple):
    """The fastest rounds of one data type, in milliseconds."""

    dtype: str
    numpy: float
    ours: float
    with_hash: float
    with_histogram: float
    hash_alone: float
    one_sum: float


def _array(case: Case, size: int) -> NDArray[Any]:
    random = np.random.default_rng(0)
    count = size // case.dtype.itemsize
    if case.dtype.kind == "i":
        bounds = np.iinfo(case.dtype)
        return random.integers(bounds.min, bounds.max, count, case.dtype, endpoint=True)
    return random.standard_normal(count, np.float32).astype(case.dtype)


def _numpy_statistics(array: NDArray[Any]) -> None:
    array.max()
    array.min()
    if array.dtype.kind == "i":
        array.mean()
        np.linalg.norm(array)
        return
    array.mean(dtype=np.float32)
    np.isnan(array).sum()
    np.isinf(array).sum()
    np.linalg.norm(array.astype(np.float32, copy=False))


def _statistics(case: Case, *, histogram: bool = False) -> Statistics:
    if case.kind != "byte":
        return Statistics(case.kind, histogram=histogram)
    table = np.arange(256, dtype=np.uint8).view(case.dtype).astype(np.float64)
    return Statistics(case.kind, table=table.data, min_normal=2.0**-6, histogram=histogram)


def _ours(case: Case, data: memoryview, *, histogram: bool = False) -> None:
    statistics = _statistics(case, histogram=histogram)
    statistics.update(data)
    statistics.result()


def _ours_with_hash(case: Case, data: memoryview) -> None:
    statistics = _statistics(case)
    content = xxhash.xxh3_64()
    for start in range(0, len(data), CACHED_BYTES):
        piece = data[start : start + CACHED_BYTES]
        statistics.update(piece)
        content.update(piece)
    statistics.result()
    content.intdigest()


def _measure(case: Case, *, quick: bool) -> Times:
    """Let all take turns on one data type."""
    array = _array(case, _QUICK_BYTES if quick else _BYTES)
    data = array.view(np.uint8).data
    turns: dict[str, Callable[[], object]] = {
        "numpy": lambda: _numpy_statistics(array),
        "ours": lambda: _ours(case, data),
        "with_hash": lambda: _ours_with_hash(case, data),
        "with_histogram": lambda: _ours(case, data, histogram=True),
        "hash_alone": lambda: xxhash.xxh3_64(data).intdigest(),
        "one_sum": lambda: array.view(np.float32).sum(),
    }
    found = dict.fromkeys(turns, float("inf"))
    for _ in range(1 if quick else _ROUNDS):
        for name, turn in turns.items():
            start = time.perf_counter()
            turn()
            found[name] = min(found[name], (time.perf_counter() - start) * 1e3)
    return Times(case.label, **found)


def _compare(case: Case, times: Times, size: int) -> list[Figure]:
    def figure(name: str, ours: float, baseline: float, beside: str, floor: float | None = None) -> Figure:
        return Figure(
            name=f"{case.label}{name}",
            unit="GB/s",
            ours=size / ours / 1e6,
            baseline=size / baseline / 1e6,
            beside=beside,
            floor=None if floor is None else Floor("ratio", ">=", floor),
        )

    figures = []
    for name, ours, share in [("", times.ours, 1.0), (", hash", times.with_hash, _HASH_SHARE)]:
        figures.append(figure(name, ours, times.numpy, case.library, case.floor and case.floor * share))
        if case.kind == "f4":
            figures.append(figure(name, ours, times.one_sum, "one sum", _OF_A_SUM * share))
    figures.append(figure(", hash", times.with_hash, times.ours, "without"))
    if case.dtype.kind != "i":
        figures.append(figure(", histogram", times.with_histogram, times.ours, "without"))
    return figures


def _run(arguments: Arguments) -> None:
    size = _QUICK_BYTES if arguments.quick else _BYTES
    figures, rows = [], []
    for case in _CASES:
        times = _measure(case, quick=arguments.quick)
        rows.append(times)
        figures += _compare(case, times, size)
    title = f"milliseconds for {size >> 20} MiB, {use_kernels('auto')} kernels"
    report(arguments, figures, Detail(title, Times._fields, rows))


if __name__ == "__main__":
    np.seterr(all="ignore")
    _run(parse_arguments(__doc__))
