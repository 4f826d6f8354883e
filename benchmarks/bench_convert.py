"""How fast dump files become npy files.

512 MiB of float tensors in a few dump files, beside ``cp`` of the same files; and 5,000 dump files of 16 KiB
beside a bare Python loop that reads and writes each. All files are in the page cache before the clock starts,
and are written to one file system (that of TMPDIR). Both take turns; rates are medians of all rounds and
count the bytes of the dump files. The small files of all rounds are removed together at the end: for a minute
ext4 does not use the inodes of removed files again, and searches behind all of them for every new file, which
would take most of the time of either side. So let TMPDIR be in a file system that has not lost many files in
the last minutes.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from dumpstream.analysis.conversion import ConversionOptions, convert
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.outputs import Outputs
from figures import Arguments, Figure, Floor, parse_arguments, report, spread
from simulated import HEADER_BYTES, scratch, simulated_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MIB = 1 << 20
_SMALL_BYTES = 16 << 10
_DISTINCT = 500  #: different small files
_ROUNDS = 7

_LARGE_FLOOR = Floor("ratio", ">=", 0.6)
_SMALL_FLOOR = Floor("ratio", ">=", 1.5)


class Rounds(NamedTuple):
    """The seconds that each round took."""

    ours: list[float]
    baseline: list[float]


def _write_dumps(directory: Path, tensor_bytes: int, files: int, distinct: int) -> int:
    """Write *files* dump files of one tensor each into *directory*; return their size in bytes."""
    payloads = simulated_files(distinct, tensor_bytes, "float32+float16")
    for number in range(files):
        (directory / f"MatMulV2.layer.{number}.1.1780159660546556").write_bytes(payloads[number % distinct])
    return sum(len(payloads[number % distinct]) for number in range(files))


def _convert(source: Path, out: Path) -> None:
    with Outputs(out, replace=False) as outputs:
        inputs = list(find_inputs([source]))
        problems = [it for it in convert(inputs, outputs, ConversionOptions()) if it.problem]
    if problems:
        raise RuntimeError(f"{len(problems)} files were not converted: {problems[0].problem}")


def _copy(source: Path, out: Path) -> None:
    subprocess.run(["cp", "-r", "--", str(source), str(out)], check=True)


def _copy_by_loop(source: Path, out: Path) -> None:
    out.mkdir()
    for name in os.listdir(source):  # noqa: PTH208 - pathlib would slow the baseline down
        with open(f"{source}/{name}", "rb") as file:  # noqa: PTH123 - likewise
            data = file.read()
        with open(f"{out}/{name}", "wb") as file:  # noqa: PTH123 - likewise
            file.write(data)


def _measure(source: Path, baseline: Callable[[Path, Path], None], rounds: int, *, keep: bool) -> Rounds:
    """Let the conversion and *baseline* take turns; a first round of each is not counted.

    What they write is removed after each, or with *keep* only after all of them.
    """
    found = Rounds([], [])
    with ExitStack() as kept:
        for _ in range(rounds + 1):
            for run, seconds in ((_convert, found.ours), (baseline, found.baseline)):
                with ExitStack() as removed:
                    directory = (kept if keep else removed).enter_context(scratch())
                    start = perf_counter()
                    run(source, directory / "out")
                    seconds.append(perf_counter() - start)
    return Rounds(found.ours[1:], found.baseline[1:])


def _run(arguments: Arguments) -> None:
    rounds = 1 if arguments.quick else _ROUNDS
    files, large_bytes = (4, 8 * _MIB) if arguments.quick else (4, 128 * _MIB)
    with scratch() as source:
        size = _write_dumps(source, large_bytes - HEADER_BYTES, files, files)
        large = _measure(source, _copy, rounds, keep=False)
    small_files = 500 if arguments.quick else 5000
    with scratch() as source:
        _write_dumps(source, _SMALL_BYTES - HEADER_BYTES, small_files, _DISTINCT)
        small = _measure(source, _copy_by_loop, rounds, keep=True)
    figures = [
        Figure(
            name=f"{size / _MIB:,.0f} MiB in {files} files",
            unit="MB/s",
            ours=size / median(large.ours) / 1e6,
            baseline=size / median(large.baseline) / 1e6,
            beside="cp",
            floor=_LARGE_FLOOR,
        ),
        Figure(
            name=f"{small_files:,} files of 16 KiB",
            unit="files/s",
            ours=small_files / median(small.ours),
            baseline=small_files / median(small.baseline),
            beside="Python loop",
            floor=_SMALL_FLOOR,
        ),
    ]
    report(arguments, figures, spread("seconds of the rounds", figures, (large, small)))


if __name__ == "__main__":
    _run(parse_arguments(__doc__))
