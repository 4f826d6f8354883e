"""How long `dumpstream stats` takes for a capture of many small files.

100,000 files of two small tensors, in packs. The command computes the statistics of all tensors, beside a
Python loop that reads the journal, decompresses each file and asks numpy; then it looks for NaNs in the table
that the statistics sink left, beside pyarrow alone; and a terminal waits for the first row, beside all rows.
Everything is in the page cache; the command and its baseline take turns, and seconds are medians.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute
import pyarrow.dataset
import zstandard

from dumpstream import DumpFile
from figures import Arguments, Figure, Floor, parse_arguments, report
from simulated import scratch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_STEPS, _OPERATORS = 100, 1000
_ROUNDS = 3
_CONDITION = "nan > 0"
_COMMAND = (sys.executable, "-m", "dumpstream")
_ALL, _FILTERED, _FIRST = Floor("ours", "<=", 12), Floor("ours", "<=", 2), Floor("ours", "<=", 1)


def _capture(out: Path, steps: int) -> None:
    """Capture one file per operator and step, with its bytes and its statistics."""
    workload = f"models=1,ops={_OPERATORS},inputs=1,outputs=1,tensor_bytes=256,steps={steps},nan=7@1"
    sinks = ("--sink", "zstd:", "--sink", "stats:")
    command = [*_COMMAND, "capture", "--out", str(out), "--simulate", workload, "--pack", *sinks]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def _stats(*arguments: str) -> None:
    subprocess.run([*_COMMAND, "stats", *arguments], stdout=subprocess.DEVNULL, check=True)


def _loop(capture: Path) -> None:
    """Compute what the table of `stats` shows, file by file."""
    for line in (capture / "journal.jsonl").read_bytes().splitlines():
        row = json.loads(line)
        if row["type"] == "file":
            part = row["stored"][0]
            with open(f"{capture}/{part['path']}", "rb") as pack:  # noqa: PTH123 - pathlib would slow it down
                pack.seek(part["start"])
                data = zstandard.decompress(pack.read(part["stored_bytes"]))
            with DumpFile.open(data) as dump:
                for tensor in dump.tensors:
                    array = dump.array(tensor).astype(np.float64)
                    _ = (array.max(), array.min(), array.mean(), np.isnan(array).sum(), np.isinf(array).sum())


def _filter(capture: Path) -> None:
    found = pyarrow.dataset.dataset(capture / "stats").to_table(filter=pyarrow.compute.field("nan") > 0)
    if not found.num_rows:
        raise RuntimeError("the simulated NaNs are missing")


def _show_first(capture: Path) -> None:
    """Wait until a terminal shows the first row, and end the command."""
    terminal, side = pty.openpty()
    with subprocess.Popen([*_COMMAND, "stats", str(capture)], stdout=side) as process:
        os.close(side)
        while b"layer_" not in os.read(terminal, 1 << 16):
            pass
        process.terminate()
    os.close(terminal)


def _seconds(run: Callable[[], None]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def _measure(rounds: int, ours: Callable[[], None], baseline: Callable[[], None]) -> tuple[float, float]:
    """Return the median seconds of both."""
    found = [(_seconds(ours), _seconds(baseline)) for _ in range(rounds)]
    return median(it for it, _ in found), median(it for _, it in found)


def _run(arguments: Arguments) -> None:
    steps, rounds = (2, 1) if arguments.quick else (_STEPS, _ROUNDS)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as on a user's machine, modules are compiled once
    with scratch() as directory:
        capture = directory / "capture"
        _capture(capture, steps)
        filtered = _measure(
            rounds, lambda: _stats(str(capture), "--where", _CONDITION), lambda: _filter(capture)
        )
        for table in (capture / "stats").iterdir():  # from now on, statistics must be computed
            table.unlink()
        everything = _measure(rounds, lambda: _stats(str(capture)), lambda: _loop(capture))
        first = _measure(rounds, lambda: _show_first(capture), lambda: _stats(str(capture)))
    files = f"{steps * _OPERATORS:,} files"
    measured = [
        (f"{files}, computed", everything, "Python loop", _ALL),
        (f"{files}, --where '{_CONDITION}' in the sink's table", filtered, "pyarrow", _FILTERED),
        (f"{files}, first row", first, "all rows", _FIRST),
    ]
    figures = [
        Figure(name=name, unit="s", ours=ours, baseline=baseline, beside=beside, inverse=True, floor=floor)
        for name, (ours, baseline), beside, floor in measured
    ]
    report(arguments, figures)


if __name__ == "__main__":
    _run(parse_arguments(__doc__))
