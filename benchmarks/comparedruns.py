"""Compared runs: how fast whole runs are compared, and in how much memory."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import numpy as np

from asmsaccucmp import compare_directories
from dumpstream import compare
from dumpstream._native import count_segments
from figures import Figure, Floor
from simulated import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ROUNDS = 3
_SMALL_ROUNDS = 7
_SHOWN_ROWS = 30
_LARGE_BYTES, _LARGE_FILES = 512 << 20, 16
_SMALL_FILES, _SMALL_ELEMENTS = 2000, 1024
_COPIED_STEPS = 80
_MSACCUCMP = 230  #: pairs of small files that CANN's own tool compared in a second, on the same machine
_PAIR_BYTES = 8 << 30
_MEMORY = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from dumpstream import compare
from dumpstream._native import count_segments
from resident import peak, reset_peak
reset_peak()
with compare(sys.argv[1], sys.argv[2]) as comparison:
    (row,) = comparison
assert row.verdict == "identical", row
print(peak())
"""


def run_figures(*, quick: bool) -> Iterator[Figure]:
    """Yield a figure for each question; *quick* ones are of much smaller runs."""
    yield _large(1 if quick else _LARGE_FILES)
    yield from _small(50 if quick else _SMALL_FILES)
    yield from _copied(1 if quick else _COPIED_STEPS)
    yield from _copied(1 if quick else _COPIED_STEPS, "zstd:", "stats:")
    yield _memory((64 << 20) if quick else _PAIR_BYTES)


def _large(files: int) -> Figure:
    elements = _LARGE_BYTES // _LARGE_FILES // 4
    with scratch() as directory:
        _write_runs(directory, files, elements)
        ours, numpy = _turns(directory)
    size = files * elements * 4 / 1e6
    return Figure(
        name=f"two directories of {size:.0f} MB",
        unit="MB/s of each",
        ours=size / ours,
        baseline=size / numpy,
        beside="numpy as msaccucmp",
        floor=Floor("ratio", ">=", 40),
    )


def _small(files: int) -> Iterator[Figure]:
    """Yield the figures of many small pairs: by the clock, in processor time, and beside reading alone."""
    with scratch() as directory:
        _write_runs(directory, files, _SMALL_ELEMENTS)
        sides = directory / "mine", directory / "golden"
        functions = {"ours": _compare, "numpy": _as_msaccucmp, "reading": _read_both}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
        for _ in range(_SMALL_ROUNDS):
            for name, function in functions.items():
                found[name].append(_times(function, *sides))
    clock, processor = (
        {name: files / min(times[at] for times in found[name]) for name in functions} for at in (0, 1)
    )
    for name, rates, baseline, beside, floor in (
        ("", clock, "numpy", "numpy as msaccucmp", 20),
        (", processor time", processor, "numpy", "numpy as msaccucmp", None),
        (", processor time", processor, "reading", "opening and reading both", None),
    ):
        yield Figure(
            name=f"{files} pairs of small files{name}",
            unit="pairs/s",
            ours=rates["ours"],
            baseline=rates[baseline],
            beside=beside,
            floor=None if floor is None else Floor("ratio", ">=", floor),
        )


def _times(function: Callable[[Path, Path], int], mine: Path, golden: Path) -> tuple[float, float]:
    """Return how many seconds *function* takes, by the clock and of processor time."""
    clock, processor = perf_counter(), process_time()
    function(mine, golden)
    return perf_counter() - clock, process_time() - processor


def _read_both(mine: Path, golden: Path) -> int:
    """Read both as native code does that has nothing else to do: list, open, read and close."""
    for side in (mine, golden):
        count_segments([entry.path for entry in os.scandir(side)])
    return 0


def _rate(function: Callable[[Path, Path], int], mine: Path, golden: Path) -> float:
    """Return how many pairs of tensors *function* compares in a second of processor time."""
    start = process_time()
    pairs = function(mine, golden)
    return pairs / (process_time() - start)


def _turns(directory: Path) -> tuple[float, float]:
    """Compare the two runs in *directory*, and let numpy do so; return the fewest seconds of each."""
    sides = directory / "mine", directory / "golden"
    ours, numpy = (min(_seconds(it, *sides) for _ in range(_ROUNDS)) for it in (_compare, _as_msaccucmp))
    return ours, numpy


def _seconds(function: Callable[[Path, Path], int], mine: Path, golden: Path) -> float:
    start = perf_counter()
    function(mine, golden)
    return perf_counter() - start


def _compare(mine: Path, golden: Path) -> int:
    """Compare as the command does that shows what differs; return the number of tensors."""
    with compare(mine, golden) as comparison:
        comparison.worst(_SHOWN_ROWS)
    return comparison.tensors


def _copied(steps: int, *sinks: str) -> Iterator[Figure]:
    """Yield the figures of a capture that is compared with its copy: the first time, and with indexes."""
    workload = f"models=1,ops=500,tensor_bytes=64-512,steps={steps},queue_bytes={64 << 20}"
    command = [sys.executable, "-m", "dumpstream", "capture", "--simulate", workload, "--pack", "--quiet"]
    command += [option for sink in sinks for option in ("--sink", sink)]
    with scratch() as directory:
        mine, golden = directory / "mine", directory / "golden"
        subprocess.run([*command, "--out", str(mine)], check=True)
        shutil.copytree(mine, golden)
        first, again = [], []
        with _own_cache(directory / "cache") as cache:
            for _ in range(_ROUNDS):
                shutil.rmtree(cache, ignore_errors=True)
                first.append(_rate(_compare, mine, golden))
                again.append(_rate(_compare, mine, golden))
    for name, rates, least in (("the first time", first, 40_000), ("with an index", again, 100_000)):
        yield Figure(
            name=f"{steps * 500} files{' with tables' if sinks else ''} and their copy, {name}",
            unit="pairs/s",
            ours=median(rates),
            baseline=_MSACCUCMP,
            beside="msaccucmp, once",
            floor=Floor("ours", ">=", least),
        )


@contextmanager
def _own_cache(path: Path) -> Iterator[Path]:
    """Have indexes below *path* while the block runs."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(path)
    try:
        yield path
    finally:
        del os.environ["XDG_CACHE_HOME"]
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before


def _memory(size: int) -> Figure:
    """Return the peak of the resident memory for a pair of sparse files."""
    with scratch() as directory:
        for side in ("mine", "golden"):
            path = directory / side / "Add.op.1.2.1780159660546556"
            path.parent.mkdir()
            header = _header("op", size // 4)
            path.write_bytes(header)
            os.truncate(path, len(header) + size)
        command = [sys.executable, "-c", _MEMORY, str(directory / "mine"), str(directory / "golden")]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Figure(
        name=f"memory for a pair of {size >> 20} MiB files",
        unit="MiB",
        ours=int(done.stdout) / (1 << 20),
        baseline=2 * size / (1 << 20),
        beside="both",
        inverse=True,
        floor=Floor("ours", "<=", 300),
    )


def _write_runs(directory: Path, files: int, elements: int) -> None:
    random = np.random.default_rng(1)
    for number in range(files):
        golden = random.standard_normal(elements, np.float32)
        mine = golden * (1 + np.float32(1e-4) * random.standard_normal(elements, np.float32))
        for side, array in (("mine", mine), ("golden", golden)):
            (directory / side).mkdir(exist_ok=True)
            name = f"op_{number}"
            path = directory / side / f"Add.{name}.{number}.2.{1780159660546556 + number}"
            path.write_bytes(_header(name, elements) + array.tobytes())


def _as_msaccucmp(mine: Path, golden: Path) -> int:
    return compare_directories(mine, golden, mine.parent / "result.csv")


def _header(name: str, elements: int) -> bytes:
    """Return what a dump file with one float32 output begins with."""
    shape = _field(1, elements)
    output = _field(1, 1) + _field(2, 2) + _field(3, shape) + _field(6, elements * 4) + _field(9, 1)
    message = _field(1, b"2.0") + _field(2, 1780159660546556) + _field(6, name.encode()) + _field(3, output)
    return struct.pack("<Q", len(message)) + message


def _field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protobuf message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
