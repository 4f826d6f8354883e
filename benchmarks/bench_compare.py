"""How fast two tensors, and two runs, are compared.

Gigabytes per second of both sides together, 16 Mi elements each, on one thread, without the Kullback-Leibler
divergence: beside the speed at which the thread can read both (numpy's sum of the same bytes as float32), and
beside numpy code that computes what CANN's own tool does, with its casts to float32. Mine is the golden with
noise of a few thousandths; "equal" is two copies.

Times are those for which the thread has the processor. All take turns, in rounds; the fastest round of each
counts, because other work on the machine only adds time.

Then whole runs: two directories of 512 MB, and 2,000 pairs of small files, beside numpy code that does what
CANN's tool does, pair by pair; a capture of 40,000 files and its copy; and the memory for a pair of 8 GiB
files. The directories are measured by the clock, and the fastest round counts; of the small files also the
processor time, beside numpy and beside native code that only opens and reads both. Pairs of the copy are
those of tensors, in seconds of processor time, and medians.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from comparedruns import run_figures
from dumpstream._native import use_kernels
from dumpstream.comparison.elements import elements_of
from dumpstream.comparison.metrics import compare_elements
from figures import Arguments, Detail, Figure, Floor, parse_arguments, report

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_ELEMENTS = 16 << 20
_QUICK_ELEMENTS = 1 << 20
_ROUNDS = 9
_NUMPY_ROUNDS = 2  #: it takes long
_OF_READING = 0.25
_TINY = 2.2e-16


class Case(NamedTuple):
    """Two data types, and whether the speed has a floor."""

    label: str
    mine: Any
    golden: Any
    floored: bool = False
    noise: float = 1e-3


_CASES = (
    Case("fp32", np.float32, np.float32, floored=True),
    Case("fp32, equal", np.float32, np.float32, noise=0),
    Case("fp16", np.float16, np.float16),
    Case("bf16", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    Case("bf16 and fp32", ml_dtypes.bfloat16, np.float32),
    Case("fp64", np.float64, np.float64),
    Case("int32", np.int32, np.int32, noise=1),
    Case("int64", np.int64, np.int64, noise=1),
)


class Times(NamedTuple):
    """The fastest rounds of one pair, in milliseconds."""

    pair: str
    ours: float
    reading: float
    numpy: float


def _pair(case: Case, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    random = np.random.default_rng(0)
    golden = random.standard_normal(count, np.float32)
    if np.dtype(case.golden).kind == "i":
        golden = golden * 1000
    mine = golden * (1 + np.float32(case.noise) * random.standard_normal(count, np.float32))
    return mine.astype(case.mine), golden.astype(case.golden)


def _as_canns_tool(mine: NDArray[Any], golden: NDArray[Any]) -> None:
    """Compute the metrics of CANN's tool but for the Kullback-Leibler divergence, as it does."""
    x, y = mine.astype(np.float32), golden.astype(np.float32)
    (x / np.linalg.norm(x) * (y / np.linalg.norm(y))).sum()
    np.abs(x - y).max()
    np.abs(x - y).mean()
    np.sqrt(((x - y) ** 2).mean())
    relative = np.where(np.abs(y) > _TINY, np.abs(x / y - 1), 0)
    relative.sum()
    relative.max()
    relative.mean()
    np.sqrt(((x - y) ** 2).sum() / (y**2).sum())
    x.mean(), x.std(), y.mean(), y.std()


def _measure(case: Case, *, quick: bool) -> tuple[Times, int]:
    """Let all take turns on one pair; return the times, and the bytes of both."""
    mine, golden = _pair(case, _QUICK_ELEMENTS if quick else _ELEMENTS)
    words = [side.view(np.uint8).view(np.float32) for side in (mine, golden)]
    turns: dict[str, Callable[[], object]] = {
        "ours": lambda: compare_elements(elements_of(mine), elements_of(golden)),
        "reading": lambda: [side.sum() for side in words],
        "numpy": lambda: _as_canns_tool(mine, golden),
    }
    found = dict.fromkeys(turns, float("inf"))
    for number in range(1 if quick else _ROUNDS):
        for name, turn in turns.items():
            if name == "numpy" and number >= _NUMPY_ROUNDS:
                continue
            start = time.thread_time()
            turn()
            found[name] = min(found[name], (time.thread_time() - start) * 1e3)
    return Times(case.label, **found), mine.nbytes + golden.nbytes


def _kernel_figures(case: Case, times: Times, size: int) -> list[Figure]:
    def figure(baseline: float, beside: str, floor: float | None = None) -> Figure:
        return Figure(
            name=case.label,
            unit="GB/s",
            ours=size / times.ours / 1e6,
            baseline=size / baseline / 1e6,
            beside=beside,
            floor=None if floor is None else Floor("ratio", ">=", floor),
        )

    return [
        figure(times.reading, "reading", _OF_READING if case.floored else None),
        figure(times.numpy, "numpy"),
    ]


def _run(arguments: Arguments) -> None:
    figures, rows = [], []
    for case in _CASES:
        times, size = _measure(case, quick=arguments.quick)
        rows.append(times)
        figures += _kernel_figures(case, times, size)
    elements = _QUICK_ELEMENTS if arguments.quick else _ELEMENTS
    title = f"milliseconds for {elements} elements of each side, {use_kernels('auto')} kernels"
    figures += run_figures(quick=arguments.quick)
    report(arguments, figures, Detail(title, Times._fields, rows))


if __name__ == "__main__":
    np.seterr(all="ignore")
    _run(parse_arguments(__doc__))
