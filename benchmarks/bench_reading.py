"""How long commands take to read a capture of very many tiny files, and how much memory.

A million files of two small tensors, in packs, captured with the statistics sink. Each command runs in a
process of its own, beside a Python loop that does the same from the journal; the first `ls` builds the index.
Everything is in the page cache. `--files 10000000` shows whether memory grows: `ls` and `verify` alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from figures import Arguments, Figure, Floor, report
from simulated import scratch

_OPERATORS = 1000
_FILES, _QUICK_FILES, _GROWN_FILES = 1_000_000, 4000, 10_000_000
_COMMAND = (sys.executable, "-m", "dumpstream")

# What the loops do: with the journal and the directory of the capture as their arguments.
_LIST = """
for row in rows:
    print(row["verdict"], row["bytes"], sum(part["stored_bytes"] for part in row["stored"]), row["name"])
"""
_VERIFY = """
for row in rows:
    data = read(row["stored"][0])
    assert len(data) == row["bytes"] and xxhash.xxh3_64_hexdigest(data) == row["stored"][0]["xxh3"]
"""
_MEASURE = """
import numpy as np
from dumpstream import DumpFile
for row in rows:
    with DumpFile.open(read(row["stored"][0])) as dump:
        for tensor in dump.tensors:
            array = dump.array(tensor).astype(np.float64)
            found = array.max(), array.min(), array.mean(), np.isnan(array).sum(), np.isinf(array).sum()
            print(row["name"], *found)
"""
_FILTER = """
import pyarrow.compute, pyarrow.dataset
print(pyarrow.dataset.dataset(sys.argv[2] + "/stats").to_table(filter=pyarrow.compute.field("nan") > 0))
"""
_WRITE = """
data = bytes(630)
for row in rows:
    path = os.path.join(sys.argv[3], row["name"].lstrip("/"))
    if os.path.dirname(path) not in made:
        os.makedirs(os.path.dirname(path))
        made.add(os.path.dirname(path))
    with open(path, "wb") as file:
        file.write(data)
"""
_LOOP = """
import json, os, sys
import xxhash
from dumpstream._native import Decoder
made = set()
packs = {}
decoder = Decoder()
def read(part):
    path = part["path"]
    if path not in packs:
        packs.clear()
        packs[path] = open(os.path.join(sys.argv[2], path), "rb")
    packs[path].seek(part["start"])
    data = bytearray(part["bytes"])
    decoder.decode(packs[path].read(part["stored_bytes"]), data)
    return data
rows = (row for row in map(json.loads, open(sys.argv[1], "rb")) if row["type"] == "file")
"""


class _Usage(NamedTuple):
    seconds: float
    megabytes: float


def _capture(out: Path, files: int) -> None:
    """Capture one file per operator and step, with its bytes and its statistics."""
    steps = files // _OPERATORS
    workload = f"models=1,ops={_OPERATORS},inputs=1,outputs=1,tensor_bytes=256,steps={steps},nan=7@1"
    workload += f",queue_bytes={64 << 20}"  # the runtime must not run ahead of the capture
    sinks = ("--sink", "zstd:", "--sink", "stats:")
    command = [*_COMMAND, "capture", "--out", str(out), "--simulate", workload, "--pack", *sinks]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def _run(*command: str) -> _Usage:
    """Return what *command* took."""
    start = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return _Usage(perf_counter() - start, usage.ru_maxrss / 1000)


def _ours(*arguments: object) -> _Usage:
    return _run(*_COMMAND, *map(str, arguments))


def _loop(body: str, capture: Path, *more: object) -> _Usage:
    return _run(
        sys.executable, "-c", _LOOP + body, str(capture / "journal.jsonl"), str(capture), *map(str, more)
    )


def _first_line(*arguments: object) -> float:
    """Return how long the first line of a file takes."""
    start = perf_counter()
    with subprocess.Popen([*_COMMAND, *map(str, arguments)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(2):  # the titles come first
            process.stdout.readline()
        taken = perf_counter() - start
        process.kill()
    return taken


def _some_name(capture: Path) -> str:
    with (capture / "journal.jsonl").open("rb") as journal:
        for _, line in zip(range(3000), journal, strict=False):
            row = json.loads(line)
    return str(row["name"])


def _figure(name: str, unit: str, ours: float, loop: float, most: float | None) -> Figure:
    floor = None if most is None else Floor("ours", "<=", most)
    return Figure(
        name=name, unit=unit, ours=ours, baseline=loop, beside="Python loop", inverse=True, floor=floor
    )


def _figures(
    name: str, ours: _Usage, loop: _Usage, seconds: float | None, megabytes: float | None
) -> list[Figure]:
    return [
        _figure(name, "s", ours.seconds, loop.seconds, seconds),
        _figure(f"{name}, memory", "MB", ours.megabytes, loop.megabytes, megabytes),
    ]


def _listed(capture: Path, *, grown: bool) -> list[Figure]:
    loop = _loop(_LIST, capture)
    first, again = _ours("ls", capture), _ours("ls", capture)
    figures = _figures("ls, the first time", first, loop, None if grown else 10, 150)
    figures += _figures("ls, with an index", again, loop, None if grown else 3, 150)
    line = _first_line("ls", capture)
    return [*figures, replace(_figure("ls, first line", "s", line, again.seconds, 1), beside="all lines")]


def _one(capture: Path, directory: Path) -> list[Figure]:
    name = _some_name(capture)
    pattern = f"*{name.rpartition('/')[2]}"
    loop = _loop(f"rows = (row for row in rows if row['name'] == {name!r})\n{_VERIFY}", capture)
    measured = {
        "ls PATTERN": _ours("ls", capture, pattern),
        "show NAME": _ours("show", capture, name),
        "show PATTERN": _ours("show", capture, pattern),
        "extract NAME": _ours("extract", capture, name, "--out", directory / "one"),
    }
    return [
        figure for title, ours in measured.items() for figure in _figures(title, ours, loop, 0.5, None)[:1]
    ]


def _measure(capture: Path, directory: Path, files: int) -> list[Figure]:
    grown = files >= _GROWN_FILES
    figures = _listed(capture, grown=grown)
    if grown:
        return figures + _figures("verify", _ours("verify", capture), _loop(_LIST, capture), None, 200)
    figures += _figures("verify", _ours("verify", capture), _loop(_VERIFY, capture), 60, 200)
    figures += _one(capture, directory)
    where = ("--where", "nan > 0")
    figures += _figures(
        "stats --where, sink's tables", _ours("stats", capture, *where), _loop(_FILTER, capture), 10, 300
    )
    figures += _figures("stats, sink's tables", _ours("stats", capture), _loop(_MEASURE, capture), None, 300)
    shutil.rmtree(capture / "stats")  # from now on, statistics must be computed
    figures += _figures("stats, computed", _ours("stats", capture), _loop(_MEASURE, capture), 120, 300)
    return [*figures, *_extracted(capture, directory, files)]


def _extracted(capture: Path, directory: Path, files: int) -> list[Figure]:
    """Compare with a loop before and a loop behind, as disks are not equally fast at all times.

    Nothing is deleted in between: ext4 avoids the inodes of files that were deleted in the last minutes, and
    passes over them one by one for every file that is made.
    """
    usages = []
    for number, command in enumerate((_written, _ours_extracted, _written)):
        os.sync()
        usages.append(command(capture, directory / f"extracted{number}"))
    before, ours, behind = usages
    loop = _Usage((before.seconds + behind.seconds) / 2, behind.megabytes)
    speed = Figure(
        name="extract, speed",
        unit="files/s",
        ours=files / ours.seconds,
        baseline=files / loop.seconds,
        beside="loop that only writes",
        floor=Floor("ratio", ">=", 0.5),
    )
    return [speed, *_figures("extract", ours, loop, None, 300)[1:]]


def _written(capture: Path, out: Path) -> _Usage:
    return _loop(_WRITE, capture, out)


def _ours_extracted(capture: Path, out: Path) -> _Usage:
    return _ours("extract", capture, "--out", out)


def _arguments() -> tuple[Arguments, int]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see whether it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--files", type=int, metavar="N", help=f"how many (default: {_FILES})")
    args = parser.parse_args()
    return Arguments(args.quick, args.json), args.files or (_QUICK_FILES if args.quick else _FILES)


def _main() -> None:
    arguments, files = _arguments()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as on a user's machine, modules are compiled once
    with scratch() as directory, tempfile.TemporaryDirectory(dir=directory) as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        capture = directory / "capture"
        _capture(capture, files)
        figures = _measure(capture, directory, files)
    report(arguments, figures)


if __name__ == "__main__":
    _main()
