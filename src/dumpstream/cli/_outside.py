"""Collectors, as `capture -- COMMAND` and `collect` run them and report on them."""

import gc
import resource
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from signal import SIGTERM
from time import time

import anyio

from dumpstream.cli._alerts import AlertTeller, wants_alerts
from dumpstream.cli._display import print_json, print_text, printable, say
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.cli._nothing import tell_lack, tell_no_process, tell_written
from dumpstream.cli._options import capture_arguments
from dumpstream.cli._report import print_processes, print_report, show_progress, tell_remains
from dumpstream.cli._signals import CaptureSignals
from dumpstream.cli.screen.options import is_quiet
from dumpstream.outside.collector import Collector, open_collector
from dumpstream.outside.command import FORWARDED
from dumpstream.outside.process import CapturedProcess

_LOOK_S = 0.1


async def collect_while(
    args: Namespace,
    work: Callable[[Collector, CaptureSignals], Awaitable[None]],
    socket_path: Path | None = None,
) -> Collector | None:
    """Have a collector open, as the flags ask, while *work* runs; return it, or None if it was aborted.

    Raises:
        WrongUsageError: an option is out of range.
    """
    args.started, args.stopped_for = time(), None
    signals = CaptureSignals(FORWARDED)
    opening = open_collector(args.out, host=args.host, socket_path=socket_path, **capture_arguments(args))
    collector = None
    async with signals.obeyed() as tasks:
        teller = AlertTeller(tasks, args.on_alert)
        async with AsyncExitStack() as stack:
            try:
                collector = await stack.enter_async_context(opening)
            except ValueError as exc:
                raise WrongUsageError(str(exc)) from exc
            # A full garbage collection stops everything; it need not look at what the whole program keeps.
            gc.freeze()
            signals.begin(collector, collector.stop)
            tell_remains(collector)
            tasks.start_soon(partial(show_progress, collector, beside_command=socket_path is None))
            if wants_alerts(args):
                collector.when_captured(teller.tell_process)
            if args.on_failure == "stop":
                tasks.start_soon(_stop_on_failure, collector, signals, args)
            await work(collector, signals)
        if wants_alerts(args):
            await teller.finish()
    return None if signals.tell_abort(args.spill) else collector


async def _stop_on_failure(collector: Collector, signals: CaptureSignals, args: Namespace) -> None:
    """End the job as soon as the capture of a process fails; a service ends only that process."""
    serves = args.command == "collect"
    asked: set[CapturedProcess] = set()
    while collector.error is None and (serves or not collector.failed):
        for process in set(collector.failed) - asked:
            asked.add(process)
            collector.terminate([process])
            args.stopped_for = args.stopped_for or _failure_of(process)
            say(f"{process.label} is asked to end (SIGTERM), because of that: --on-failure stop")
        await anyio.sleep(_LOOK_S)
    args.stopped_for = _failure_of(collector.failed[0]) if collector.error is None else str(collector.error)
    say("everything that is captured is asked to end (SIGTERM), because of that: --on-failure stop")
    captured = {*collector.processes}
    if (command := signals.command) is not None:
        command.forward(SIGTERM)
        # A second one might come when the command no longer handles the first.
        captured = {process for process in captured if process.record.pid != command.pid}
    collector.terminate(captured)
    if serves:
        collector.stop()


def _failure_of(process: CapturedProcess) -> str:
    return f"{process.label}: {process.failure}"


def report_outside(collector: Collector, args: Namespace) -> int:
    """Print the summary, or the report, and return the exit code.

    The summary goes to standard error: standard output is the command's.
    """
    report = collector.report
    lacking = tell_lack(args, report)
    code = 0 if collector.whole and not (report.waiting or lacking) else NOT_WHOLE
    if args.json:
        processes = [process.as_dict() for process in collector.processes]
        ended = {"whole": collector.whole, "stopped_for": args.stopped_for}
        print_json({**report.as_dict(), **ended, "processes": processes})
        return code
    if is_quiet() and not code and not report.hints and collector.processes:
        return code
    print_processes(collector.processes, sys.stderr)
    if not collector.processes:
        tell_no_process()
        tell_written(args.config, args.started)
        return code
    print_report(report, args.out, args.spill, file=sys.stderr)
    if not report.chunks:
        tell_written(args.config, args.started)
    if died := [process.label for process in collector.processes if process.died]:
        what = "1 process died" if len(died) == 1 else f"{len(died)} processes died"
        print_text(f"{what}: what had not been dumped by then is not there", file=sys.stderr)
    if report.whole and not collector.whole:
        print_text(
            "not every process was captured as it should have been; its line says why", file=sys.stderr
        )
    if args.stopped_for is not None:
        print_text(printable(f"ended by --on-failure stop, because of {args.stopped_for}"), file=sys.stderr)
    return code


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
