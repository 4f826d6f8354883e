"""What a process that floods its collector takes from the others, and from the end of the collector.

An honest process hands over a file every 2 ms to `dumpstream collect`, and next to it another process hands
over as many chunks as it can: tiny files, one name again and again, a byte at every second offset of a file,
statistics text with names of its own, or long statistics text of one name. The journal of the honest process
is watched: the figure is the longest time for which it did not grow. Beside it is what that was while the
other process merely kept a core busy, which is what a machine of two cores does to the collector anyway. Then
the collector gets SIGTERM with a full ring, of 128 MiB, and is timed until it has ended.

Figures are medians of several rounds. All options of the collector have their defaults.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING, NamedTuple

from compiled import compile_program
from dumpstream import target_environment
from figures import Arguments, Figure, Floor, parse_arguments, report
from simulated import scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS = ("tiny", "same", "gaps", "text", "rows")
_BUSY = "busy"
_PAUSE_US = 2000
_ROUNDS, _WATCHED_S = 5, 4.0
_LOOK_S = 0.001  #: between two looks at the journal
_PATIENCE_S = 120
_LONGEST_PAUSE, _LONGEST_END = Floor("ours", "<=", 100), Floor("ours", "<=", 8)


class Round(NamedTuple):
    """What was found beside one kind of process."""

    pause_ms: float
    end_s: float


def _until(path: Path) -> None:
    deadline = perf_counter() + _PATIENCE_S
    while not path.exists():
        if perf_counter() > deadline:
            raise SystemExit(f"{path} did not appear")
        sleep(_LOOK_S)


def _pauses(journal: Path, seconds: float) -> Iterator[float]:
    """Yield for how long *journal* did not grow, each time that it did."""
    size, grown = journal.stat().st_size, perf_counter()
    end = grown + seconds
    while (now := perf_counter()) < end:
        if (found := journal.stat().st_size) != size:
            yield now - grown
            size, grown = found, now
        sleep(_LOOK_S)
    yield perf_counter() - grown


class _Collector:
    """A collector in a process of its own, and those that join it."""

    def __init__(self, directory: Path, processes: ExitStack) -> None:
        self.out, self._socket = directory / "run", directory / "socket"
        self._processes = processes
        command = (sys.executable, "-m", "dumpstream", "collect", "--out", self.out, "--socket", self._socket)
        self.process = self._start(*command)
        _until(self._socket)

    def join(self, rank: int, *command: object) -> None:
        # The first of two gets half of all the memory for rings.
        more = {"RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        self._start(*command, env={**target_environment(self._socket, os.environ), **more})

    def _start(self, *command: object, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        words = [*map(str, command)]
        quiet, waiting = subprocess.DEVNULL, subprocess.PIPE
        process = subprocess.Popen(words, stdin=waiting, stdout=quiet, stderr=quiet, env=env)
        self._processes.callback(process.wait)
        self._processes.callback(process.kill)
        return process


def _measure(program: Path, kind: str, seconds: float) -> Round:
    with scratch() as directory, ExitStack() as processes:
        collector = _Collector(directory, processes)
        if kind == _BUSY:
            collector.join(1, sys.executable, "-c", "while True: pass")
        else:
            collector.join(1, program, kind, 0)
            _until(collector.out / "rank-1" / "journal.jsonl")
        collector.join(0, program, "tiny", 0, _PAUSE_US)
        journal = collector.out / "rank-0" / "journal.jsonl"
        _until(journal)
        pause = max(_pauses(journal, seconds))
        start = perf_counter()
        collector.process.send_signal(signal.SIGTERM)
        collector.process.wait(_PATIENCE_S)
        return Round(pause * 1e3, perf_counter() - start)


def _figures(kind: str, rounds: list[Round], beside: list[Round]) -> list[Figure]:
    pairs = (
        (f"another's journal beside {kind}, longest pause", "ms", 0, _LONGEST_PAUSE),
        (f"the end of the collector after {kind}", "s", 1, _LONGEST_END),
    )
    return [
        Figure(
            name=name,
            unit=unit,
            ours=median(found[column] for found in rounds),
            baseline=median(found[column] for found in beside),
            beside="a busy core",
            floor=floor,
        )
        for name, unit, column, floor in pairs
    ]


def _run(arguments: Arguments) -> None:
    rounds, seconds = (1, 0.5) if arguments.quick else (_ROUNDS, _WATCHED_S)
    found: dict[str, list[Round]] = {kind: [] for kind in (_BUSY, *_KINDS)}
    with scratch() as directory:
        program = compile_program("flood.c", "acl.c", directory)
        for _ in range(rounds):
            for kind, results in found.items():
                results.append(_measure(program, kind, seconds))
    figures = [it for kind in _KINDS for it in _figures(kind, found[kind], found[_BUSY])]
    report(arguments, figures)


if __name__ == "__main__":
    _run(parse_arguments(__doc__))
