"""Collectors, as `capture -- COMMAND` and `collect` run them and report on them."""

import resource
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from math import inf
from pathlib import Path

from dumpstream.cli._display import print_json, say
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.cli._options import capture_arguments
from dumpstream.cli._report import print_report, process_text, show_progress, tell_remains
from dumpstream.cli._signals import CaptureSignals
from dumpstream.outside.collector import Collector, open_collector
from dumpstream.outside.command import FORWARDED
from dumpstream.outside.process import CapturedProcess

_NO_PROCESS = (
    "it runs nothing on an NPU, or not with CANN",
    "it was started without the agent: LD_PRELOAD is stripped by set-uid programs, sudo and some containers",
    "it is linked statically, or its launcher starts it on another machine",
)


async def collect_while(
    args: Namespace,
    work: Callable[[Collector, CaptureSignals], Awaitable[None]],
    socket_path: Path | None = None,
) -> Collector | None:
    """Have a collector open, as the flags ask, while *work* runs; return it, or None if it was aborted.

    Raises:
        WrongUsageError: an option is out of range.
    """
    signals = CaptureSignals(FORWARDED)
    opening = open_collector(args.out, socket_path=socket_path, **capture_arguments(args))
    collector = None
    async with signals.obeyed() as tasks, AsyncExitStack() as stack:
        try:
            collector = await stack.enter_async_context(opening)
        except ValueError as exc:
            raise WrongUsageError(str(exc)) from exc
        signals.begin(collector, collector.stop)
        tell_remains(collector)
        tasks.start_soon(show_progress, collector)
        await work(collector, signals)
    return None if signals.tell_abort(args.spill) else collector


def report_outside(collector: Collector, args: Namespace) -> int:
    """Print the summary, or the report, and return the exit code.

    The summary goes to standard error: standard output is the command's.
    """
    report = collector.report
    code = 0 if collector.whole and not report.waiting else NOT_WHOLE
    if args.json:
        processes = [process.as_dict() for process in collector.processes]
        print_json({**report.as_dict(), "whole": collector.whole, "processes": processes})
        return code
    for process in sorted(collector.processes, key=_by_rank):
        print(process_text(process), file=sys.stderr)
    if not collector.processes:
        say("no process used ACL, so nothing was captured; if one should have:")
        for reason in _NO_PROCESS:
            print(f"  - {reason}", file=sys.stderr)
        return code
    print_report(report, args.out, args.spill, file=sys.stderr)
    if report.whole and not collector.whole:
        print("not every process was captured as it should have been; its line says why", file=sys.stderr)
    return code


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _by_rank(process: CapturedProcess) -> tuple[float, int]:
    rank = process.record.rank
    return (inf if rank is None else rank, process.record.pid)
