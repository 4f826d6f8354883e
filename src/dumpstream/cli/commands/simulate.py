"""Run a training job on the simulated runtime.

Behaves like a program on an NPU: initialises ACL, configures a dump, loads its models, runs steps, finalises.
It captures nothing by itself; put it behind `dumpstream capture --out DIR --`. Without a capture the runtime
writes what it dumps to its own disk, as CANN does. Ctrl-C ends the job when the files under way are dumped.

Examples:
  dumpstream capture --out run1 -- dumpstream simulate --ranks 4     four processes, captured from outside
  dumpstream simulate --workload demo --steps 20 --rate 50M          a longer run at 50 MiB/s
  dumpstream simulate --steps 10 --crash-at 3                        one that is killed
  dumpstream simulate --fault nan=3@1 --fault truncated=0.01         with NaNs, and files that are cut off
  dumpstream simulate --ranks 4 --fault rank1:nan=5@3                NaNs in one rank
"""

import os
import re
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from dumpstream._errors import DumpstreamError
from dumpstream.cli._arguments import local_path, size
from dumpstream.cli._display import count_text, in_words, say
from dumpstream.cli._exit import BY_SIGNAL, FAILED, WrongUsageError
from dumpstream.simulation.job import Job, JobOptions, JobResult
from dumpstream.simulation.workload import Workload, opened
from dumpstream.system.scratch import ScratchDirectory

_MOST_RANKS = 1024
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_FAULT = re.compile(r"(?:rank(?P<rank>\d{1,9}):)?(?P<name>\w+)=(?P<selector>.+)", re.ASCII)
_CRASHES = {"kill": signal.SIGKILL, "abort": signal.SIGABRT}


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--ranks", type=int, metavar="N", help="fork N processes, each with a rank and a device of its own")
    add("--workload", default="small", help="a preset, a JSON file, or key=value,... (default: small)")
    add("--steps", type=int, metavar="N", help="steps to run (default: the workload's)")
    add("--rate", type=size, metavar="SIZE", help="bytes dumped per second (default: the workload's)")
    add("--seed", type=int, metavar="N", help="the seed of names and bytes; each rank adds its number")
    add(
        "--fault",
        action="append",
        default=[],
        metavar="[rankN:]NAME=SELECTOR",
        help="such as nan=3@1, or rank1:nan=3@1 in one rank; may be repeated",
    )
    add(
        "--crash-at",
        type=int,
        metavar="STEP",
        help="die in this step, counted from 0; of several ranks the last",
    )
    add("--crash-by", choices=("kill", "abort"), default="kill", help="SIGKILL, or abort() (default: kill)")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--config", type=local_path, metavar="FILE", help="the dump configuration (default: the workload's)")
    add("--no-dump", action="store_true", help="do not configure a dump; leave that to the capture")


def run(args: Namespace) -> int:
    try:
        workload = _workload(args)
    except ValueError as exc:
        raise WrongUsageError(str(exc)) from exc
    with _configured(args, workload) as config:
        options = JobOptions(
            workload=workload,
            config=config,
            crash_at=args.crash_at,
            crash_signal=_CRASHES[args.crash_by],
        )
        return _run_job(options) if args.ranks is None else _run_ranks(options, args.ranks)


def _workload(args: Namespace) -> Workload:
    workload = Workload.parse(args.workload)
    if args.ranks is not None and not 1 <= args.ranks <= _MOST_RANKS:
        raise ValueError(f"--ranks {args.ranks}: must be 1 to {_MOST_RANKS}")
    changes: dict[str, Any] = _faults(args.fault, workload, args.ranks)
    keys = ("steps", "rate", "seed", "ranks")
    changes |= {key: value for key in keys if (value := getattr(args, key)) is not None}
    workload = replace(workload, **changes)
    if workload.steps < 0:
        raise ValueError(f"--steps {workload.steps}: must be 0 or more")
    with opened(workload):
        return workload


def _faults(texts: Iterable[str], workload: Workload, ranks: int | None) -> dict[str, Any]:
    """Return the selectors of the faults that *texts* name.

    Those of all ranks replace those of the *workload*; those of one rank join them.
    """
    common: dict[str, list[str]] = {}
    of_ranks: dict[str, list[str]] = {}
    for text in texts:
        match = _FAULT.fullmatch(text)
        if match is None or not isinstance(getattr(workload, match["name"], None), str):
            raise ValueError(f"--fault {text}: must be NAME=SELECTOR, such as nan=3@1, or rank1:nan=3@1")
        if match["rank"] is None:
            common.setdefault(match["name"], []).append(match["selector"])
            continue
        rank = int(match["rank"])
        if rank not in range(ranks or 0):
            most = "there are no ranks without --ranks" if ranks is None else f"the last rank is {ranks - 1}"
            raise ValueError(f"--fault rank{rank}:...: {most}")
        of_ranks.setdefault(match["name"], []).append(f"rank{rank}:{match['selector']}")
    selectors = {
        name: [*common.get(name, filter(None, [getattr(workload, name)])), *of_ranks.get(name, [])]
        for name in common.keys() | of_ranks.keys()
    }
    return {name: "+".join(items) for name, items in selectors.items()}


@contextmanager
def _configured(args: Namespace, workload: Workload) -> Iterator[Path | None]:
    """Give the dump configuration of the job; None without one."""
    if args.config is not None or args.no_dump:
        yield args.config
        return
    with ScratchDirectory("simulate") as directory:
        config = directory.path / "acl.json"
        config.write_text(workload.config(directory.path), encoding="utf-8")
        yield config


def _run_ranks(options: JobOptions, ranks: int) -> int:
    """Run *ranks* jobs in processes of their own, and return the first exit code that is not 0."""
    sys.stdout.flush()
    children: list[int] = []
    # A signal that comes early waits until it can be passed on.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    for rank in range(ranks):
        try:
            child = os.fork()
        except OSError as exc:
            _tell(children, signal.SIGKILL)
            why = f"rank {rank}: cannot fork ({exc.strerror}); ask for fewer --ranks"
            raise DumpstreamError(why) from exc
        if not child:
            _run_rank(options, rank, ranks)
        children.append(child)
    with _handling(lambda number: _tell(children, number)):
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for rank, code in enumerate(codes):
        if code < 0:
            say(f"rank {rank} was killed by {signal.Signals(-code).name}")
    return next((code if code > 0 else BY_SIGNAL - code for code in codes if code), 0)


@contextmanager
def _handling(handle: Callable[[int], None]) -> Iterator[None]:
    """Call *handle* with every signal that asks the process to end while the block runs."""
    before = {number: signal.signal(number, lambda number, _: handle(number)) for number in _STOPPING}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(children: Sequence[int], number: int) -> None:
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, number)


def _run_rank(options: JobOptions, rank: int, ranks: int) -> NoReturn:
    """Run the job of *rank* in a forked child, and end the child without its parent's cleaning up."""
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK", "DEVICE_ID"), str(rank))
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(ranks))
    if rank != ranks - 1:
        options = replace(options, crash_at=None)
    code = FAILED
    try:
        code = _run_job(options.of_rank(rank), f"rank {rank}: ")
    except DumpstreamError as exc:
        say(f"rank {rank}: {exc}")
    except BaseException:  # noqa: BLE001 - the callers are the parent's
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code)


def _run_job(options: JobOptions, title: str = "") -> int:
    job = Job(options)
    with _handling(lambda _: job.stop()):
        result = job.run()
    # In one call, because other ranks write to the same file.
    sys.stdout.write(in_words(f"{title}{_summary(result, options.workload.steps)}", sys.stdout) + "\n")
    return 0


def _summary(result: JobResult, wanted: int) -> str:
    counters = result.counters
    text = count_text(result.steps, "step")
    if result.steps < wanted:
        text += f" of {wanted}, then stopped"
    text += f", {1000 * result.seconds / max(result.steps, 1):.1f} ms per step, "
    text += f"{count_text(counters.files, 'file')} dumped"
    ways = {
        "to a callback": counters.delivered,
        "refused by it": counters.refused,
        "to the disk": counters.disk,
        "lost": counters.lost,
    }
    parts = ", ".join(f"{count_text(chunks, 'chunk')} {way}" for way, chunks in ways.items() if chunks)
    return f"{text}: {parts}" if parts else text
