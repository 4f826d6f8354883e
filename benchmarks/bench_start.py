"""How long `dumpstream --help` takes beyond the interpreter itself.

The CPU time of `python -m dumpstream --help`, of the help of commands, and of `python -c pass`, which take
turns; each is the mean of all rounds. CPU time, because other processes do not change it much.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from resource import RUSAGE_CHILDREN, getrusage

from figures import Figure, Floor, parse_arguments, report

_ROUNDS = 10
_MOST_MS = 150.0
_BARE = ("-c", "pass")
_HELPS = (("--help",), ("ls", "--help"), ("stats", "--help"), ("capture", "--help"))


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
    report(arguments, figures)


if __name__ == "__main__":
    main()
