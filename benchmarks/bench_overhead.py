"""What a capture costs the model.

A simulated job trains: every step computes for about 50 ms in kernels that Python launches, while the device
dumps 10 files of 1 MB, and then waits for the device. That is 200 MB/s of dumps. The thread that computes has
a core for itself; the runtime and the consumer of the chunks share the other. The consumers are:

- none: a callback in C that does nothing,
- a capture by `open_capture` in the job, which a process of its own stores; the same with
  ``own_process=False``, which stores in the job; and a capture from outside: dumpstream, storing files with
  the zstd sink, at a level at which one core is enough,
- a Python callback through ctypes that writes every file,
- the runtime itself, which without a callback writes files in its record thread, as CANN does.

Every run is a process of its own, and the kinds take turns. The step time of a run is its mean; the figures
are medians over the runs. The time from aclInit to the first chunk includes the work of the agent: it
connects, takes over its ring, and registers. The memory of the job is its resident memory without the ring,
which it shares with the collector. The event loop of the job is asked to wake a task every 5 ms; what a
capture adds to how late it is, at the 99th percentile, is that of the loop and of the scheduler, which gives
the core of the loop to the consumer, too. The callback is that of the agent, called with chunks of 1 MiB;
in the first lap of the ring, it also enters the ring in the page tables of the job.

Files go to the temporary directory (TMPDIR).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from compiled import load_compiled
from figures import Arguments, Detail, Figure, Floor, parse_arguments, report
from training import CALL, FILE, IGNORED, INSIDE, LEVEL, OUTSIDE, OWN, PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable

_KINDS = (IGNORED, OUTSIDE, OWN, INSIDE, PYTHON, FILE)
_KERNELS, _KERNEL_S = 50, 1e-3
_FILES, _FILE_BYTES = 10, 1_000_000
_RATE = 400_000_000  #: of the device: it dumps in the first half of a step
_RUNS, _STEPS, _WARM_UP = 9, 20, 3
_CALIBRATIONS, _CALIBRATION_ROUNDS = 20, 200

Found = dict[str, Any]


def _run(arguments: Arguments) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("this needs two cores: one for the model, one for everything else")
    settings = {
        "core": cores[0],
        "kernels": _KERNELS,
        "rounds": _calibrate(cores[0]),
        "files": _FILES,
        "file_bytes": _FILE_BYTES,
        "rate": _RATE,
        "warm_up": _WARM_UP,
        "steps": 3 if arguments.quick else _STEPS,
        "calls": 16 if arguments.quick else 128,
        "call_rounds": 2 if arguments.quick else 8,
    }
    os.sched_setaffinity(0, {cores[1]})  # also of all later processes
    runs: dict[str, list[Found]] = {kind: [] for kind in _KINDS}
    for number in range(1 if arguments.quick else _RUNS):
        for place in range(len(_KINDS)):
            kind = _KINDS[(number + place) % len(_KINDS)]
            runs[kind].append(_in_process(kind, settings))
    calls = _in_process(CALL, settings)
    report(arguments, _figures(runs, calls), Detail("steps", _COLUMNS, [_row(*it) for it in runs.items()]))


def _calibrate(core: int) -> int:
    """Return how many rounds make a kernel."""
    kernel = load_compiled("training.c").bench_kernel
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    least = min(_seconds(kernel) for _ in range(_CALIBRATIONS))
    os.sched_setaffinity(0, before)
    return max(1, round(_CALIBRATION_ROUNDS * _KERNEL_S / least))


def _seconds(kernel: Callable[[int], object]) -> float:
    start = perf_counter()
    kernel(_CALIBRATION_ROUNDS)
    return perf_counter() - start


def _in_process(kind: str, settings: dict[str, Any]) -> Found:
    """Return the findings of a process of this *kind*."""
    with tempfile.TemporaryDirectory(prefix="dumpstream-bench-") as directory:
        os.sync()  # so that what earlier runs wrote is not written during this one
        result = Path(directory, "result.json")
        job = [sys.executable, str(Path(__file__).with_name("training.py")), kind, str(result)]
        job.append(json.dumps(settings | {"directory": directory}))
        if kind in {OUTSIDE, CALL}:
            out = ["--out", f"{directory}/capture", f"--level={LEVEL}"]
            job = [sys.executable, "-m", "dumpstream", "capture", *out, "--", *job]
        # One process on the machine: the ring is its own.
        environment = os.environ | {"LOCAL_WORLD_SIZE": "1"}
        done = subprocess.run(job, env=environment, capture_output=True, text=True, check=False)
        if not result.exists():
            raise SystemExit(f"{kind}: {done.stderr or done.stdout}")
        found: Found = json.loads(result.read_text(encoding="ascii"))
        return found


def _step_ms(run: Found) -> float:
    return float(mean(run["step_ns"])) / 1e6


_COLUMNS = ("taken by", "ms per step", "least", "most", "MB/s", "ms to the first chunk", "lost")


def _row(kind: str, runs: list[Found]) -> list[str | float]:
    steps = [_step_ms(run) for run in runs]
    rate = _FILES * _FILE_BYTES / median(steps) / 1e3
    first = median(run["first_chunk_ns"] for run in runs) / 1e6
    lost = sum(run["counters"]["lost"] + run["counters"]["refused"] for run in runs)
    return [kind, median(steps), min(steps), max(steps), rate, first, lost]


def _figures(runs: dict[str, list[Found]], calls: Found) -> list[Figure]:
    steps = {kind: median(_step_ms(run) for run in found) for kind, found in runs.items()}
    first = {kind: median(run["first_chunk_ns"] for run in found) / 1e6 for kind, found in runs.items()}
    own = {kind: median(_own_bytes(run) for run in found) / (1 << 20) for kind, found in runs.items()}
    late = {kind: median(_late_ms(run) for run in found) for kind, found in runs.items()}
    floors = {OUTSIDE: Floor("ratio", "<=", 1.03), OWN: Floor("ratio", "<=", 1.03)}
    figures = [
        Figure(
            name=f"step, {kind}",
            unit="ms",
            ours=steps[kind],
            baseline=steps[IGNORED],
            beside=IGNORED,
            floor=floors.get(kind),
        )
        for kind in _KINDS[1:]
    ]
    figures += [
        Figure(
            name=name,
            unit="us",
            ours=median(calls[kind]) / 1e3,
            baseline=median(calls["memcpy"]) / 1e3,
            beside="memcpy",
            floor=Floor("ratio", "<=", most),
        )
        for name, kind, most in (
            ("callback from outside, 1 MiB", "callback", 1.2),
            ("callback from outside, 1 MiB, first lap", "first lap", 3.0),
        )
    ]
    figures.append(
        Figure(
            name="aclInit to the first chunk",
            unit="ms",
            ours=first[OUTSIDE],
            baseline=first[IGNORED],
            beside=IGNORED,
            floor=Floor("ratio", "<=", 2.0),
        )
    )
    added = {kind: late[kind] - late[IGNORED] for kind in (OWN, INSIDE)}
    figures += [
        Figure(
            name=f"added latency of the event loop, p99, {kind}",
            unit="ms",
            ours=added[kind],
            baseline=late[IGNORED],
            beside=f"late with {IGNORED}",
            floor=Floor("ours", "<=", 2.0) if kind == OWN else None,
        )
        for kind in added
    ]
    figures += [
        Figure(
            name=f"memory of the job without the ring, {kind}",
            unit="MiB",
            ours=own[kind],
            baseline=own[IGNORED],
            beside=IGNORED,
            floor=Floor("ratio", "<=", 1.05) if kind != INSIDE else None,
        )
        for kind in (OWN, OUTSIDE, INSIDE)
    ]
    return figures


def _late_ms(run: Found) -> float:
    """Return the 99th percentile of how late the event loop of the job was."""
    late = sorted(run["late_ns"])
    return float(late[len(late) * 99 // 100]) / 1e6


def _own_bytes(run: Found) -> int:
    return int(run["memory"]["RssAnon"] + run["memory"]["RssFile"])


if __name__ == "__main__":
    _run(parse_arguments(__doc__))
