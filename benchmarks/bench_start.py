"""How long `dumpstream --help` takes beyond the interpreter itself, and a capture beyond its command.

The CPU time of `python -m dumpstream --help`, of the help of commands, and of `python -c pass`, which take
turns; each is the mean of all rounds. CPU time, because other processes do not change it much.

And the time by the clock, medians, of `capture` of a command that does not use ACL, and of `dumpstream
simulate`, each beside the same command alone. The modules of dumpstream are compiled before, as `pip` does.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import perf_counter

import dumpstream
from figures import Figure, Floor, parse_arguments, report
from simulated import scratch

_ROUNDS = 10
_MOST_MS = 150.0
_BARE = ("-c", "pass")
_HELPS = (("--help",), ("ls", "--help"), ("stats", "--help"), ("capture", "--help"))
_COMMANDS = (_BARE, ("-m", "dumpstream", "simulate"))
_MOST_MORE_MS = 400.0


def _clock_ms(*words: str) -> float:
    """Return the milliseconds that a Python process with the arguments *words* takes."""
    with scratch() as directory:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        start = perf_counter()
        subprocess.run(
            [sys.executable, *words], cwd=directory, env=environment, capture_output=True, check=True
        )
        return 1000 * (perf_counter() - start)


def _capture_figures(rounds: int) -> list[Figure]:
    compileall.compile_dir(Path(dumpstream.__file__).parent, quiet=2)
    times: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    capture = ("-m", "dumpstream", "capture", "--out", "run", "--", sys.executable)
    captured = {words: (*capture, *words) for words in _COMMANDS}
    for _ in range(rounds):
        for words in (*_COMMANDS, *captured.values()):
            times[words].append(_clock_ms(*words))
    alone = {words: median(times[words]) for words in _COMMANDS}
    ours = {words: median(times[captured[words]]) for words in _COMMANDS}
    return [
        Figure(
            name=f"capture -- python {' '.join(words)}, {ours[words] - alone[words]:.0f} ms more",
            unit="ms",
            ours=ours[words],
            baseline=alone[words],
            beside="alone",
            floor=Floor("ours", "<=", alone[words] + _MOST_MORE_MS),
        )
        for words in _COMMANDS
    ]


def _cpu_ms(arguments: tuple[str, ...]) -> float:
    """Return the milliseconds of CPU time that a Python process with *arguments* takes."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main() -> None:
    """Measure and print."""
    arguments = parse_arguments(__doc__)
    rounds = 2 if arguments.quick else _ROUNDS
    total: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for _ in range(rounds):
        for words in (_BARE, *_HELPS):
            command = words if words is _BARE else ("-m", "dumpstream", *words)
            total[words] += _cpu_ms(command) / rounds
    floor = Floor("ours", "<=", total[_BARE] + _MOST_MS)
    figures = [
        Figure(
            name=f"dumpstream {' '.join(words)}, {total[words] - total[_BARE]:.0f} ms more",
            unit="ms",
            ours=total[words],
            baseline=total[_BARE],
            beside="python -c pass",
            floor=floor if words == _HELPS[0] else None,
        )
        for words in _HELPS
    ]
    report(arguments, figures + _capture_figures(rounds))


if __name__ == "__main__":
    main()
