"""How fast two tensors are compared, and how fast those that belong together are found.

Gigabytes per second of both sides together, 64 MiB each, on one thread, without the Kullback-Leibler
divergence: beside the speed at which the thread can read both (numpy's sum of the same bytes as float32), and
beside numpy code that computes what CANN's own tool does, with its casts to float32. Mine is the golden with
noise of a few thousandths; "equal" is two copies.

Then pairs of small tensors per second of processor time: a capture of packed files with three tensors each
and its copy, which are identical and need not be read, without and with the tables of the statistics sink;
and the files of two directories, 4 KiB a tensor, beside numpy code that reads and compares the same files.

All take turns, in rounds; the fastest round of each counts, because other work on the machine only adds time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from dumpstream._native import use_kernels
from dumpstream.comparison.elements import elements_of
from dumpstream.comparison.metrics import compare_elements
from dumpstream.comparison.pairs.pairing import pair_sides
from dumpstream.comparison.sides.side import open_side
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.simulation import Workload
from figures import Arguments, Detail, Figure, Floor, parse_arguments, report
from simulated import scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_ELEMENTS = 16 << 20
_QUICK_ELEMENTS = 1 << 20
_ROUNDS = 7
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
    for _ in range(1 if quick else _ROUNDS):
        for name, turn in turns.items():
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


# What belongs together


def _capture(out: Path, files: int, *sinks: str) -> tuple[Path, Path]:
    """Capture about *files* files of three tiny tensors; return the capture and a copy."""
    workload = f"models=1,ops=500,steps={-(-files // 500)},tensor_bytes=64-512,queue_bytes={64 << 20}"
    command = [
        sys.executable,
        "-m",
        "dumpstream",
        "capture",
        "--out",
        str(out),
        "--simulate",
        workload,
        "--pack",
    ]
    subprocess.run([*command, "--quiet", *sinks], check=True)
    copy = out.with_name(f"{out.name}-copy")
    shutil.copytree(out, copy)
    return out, copy


def _two_directories(root: Path, files: int) -> tuple[Path, Path]:
    """Write *files* files of two tensors to each of two directories, the last byte of each file different."""
    workload = Workload.parse(f"models=1,ops={files},inputs=1,outputs=1,tensor_bytes=4096,dtypes=float32")
    for side in (0, 1):
        for file in workload.expected_files(str(root / str(side))):
            path = Path(file.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data[:-1] + bytes([file.data[-1] ^ side]))
    return root / "0", root / "1"


def _pair_all(mine: Path, golden: Path) -> int:
    """Pair everything, and compare what is not known to be identical; return how many pairs there are."""
    count = 0
    with pair_sides(open_side(mine, "mine"), open_side(golden, "the golden")) as executions:
        for execution in executions:
            count += len(execution.pairs)
            for pair in () if execution.identical else execution.pairs:
                assert pair.mine is not None
                assert pair.golden is not None
                assert pair.mine.open is not None
                assert pair.golden.open is not None
                with pair.mine.open() as ours, pair.golden.open() as theirs:
                    compare_elements(ours, theirs)
    return count


def _numpy_pairs(mine: Path, golden: Path) -> int:
    """Compare the files of two directories that have the same names, as CANN's tool does."""
    count = 0
    for path in sorted(it for it in mine.rglob("*") if it.is_file()):
        with DumpFile.open(path) as ours, DumpFile.open(golden / path.relative_to(mine)) as theirs:
            for tensor, other in zip(ours.tensors, theirs.tensors, strict=True):
                _as_canns_tool(ours.array(tensor), theirs.array(other))
                count += 1
    return count


def _rate(turn: Callable[[Path, Path], int], sides: tuple[Path, Path], rounds: int) -> float:
    """Return how many pairs *turn* does in a second of processor time, in the fastest round."""
    rates = []
    for _ in range(rounds):
        start = time.process_time()
        count = turn(*sides)
        rates.append(count / (time.process_time() - start))
    return max(rates)


def _pair_figures(*, quick: bool) -> list[Figure]:
    rounds, files = (1, 500) if quick else (3, 20_000)
    with scratch() as directory:
        small = _two_directories(directory / "files", 100 if quick else 1000)
        tabled = _capture(directory / "tabled", files, "--sink", "stats:", "--sink", "zstd:")
        plain = _capture(directory / "plain", files)
        numpy = _rate(_numpy_pairs, small, rounds)
        cases = {
            "capture and copy": (plain, Floor("ours", ">=", 40_000)),
            "with tables": (tabled, Floor("ours", ">=", 100_000)),
            "2,000 small pairs": (small, Floor("ratio", ">=", 20)),
        }
        return [
            Figure(
                name=name,
                unit="pairs/s",
                ours=_rate(_pair_all, sides, rounds),
                baseline=numpy,
                beside="numpy",
                floor=None if quick else floor,
            )
            for name, (sides, floor) in cases.items()
        ]


def _run(arguments: Arguments) -> None:
    figures, rows = [], []
    for case in _CASES:
        times, size = _measure(case, quick=arguments.quick)
        rows.append(times)
        figures += _kernel_figures(case, times, size)
    figures += _pair_figures(quick=arguments.quick)
    elements = _QUICK_ELEMENTS if arguments.quick else _ELEMENTS
    title = f"milliseconds for {elements} elements of each side, {use_kernels('auto')} kernels"
    report(arguments, figures, Detail(title, Times._fields, rows))


if __name__ == "__main__":
    np.seterr(all="ignore")
    _run(parse_arguments(__doc__))
