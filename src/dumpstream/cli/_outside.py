"""What the commands that capture from outside have in common."""

from __future__ import annotations

import json
import resource
import sys
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING

import anyio

from dumpstream._errors import ConfigError
from dumpstream.cli._display import count_text, printable
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.cli._interrupt import heard
from dumpstream.cli._options import capture_options
from dumpstream.cli._problems import print_problems
from dumpstream.cli._report import print_report, print_waiting, process_text, show_progress
from dumpstream.objectstore.patience import ABORT_S
from dumpstream.outside.collector import open_collector
from dumpstream.outside.command import FORWARDED

if TYPE_CHECKING:
    import signal
    from argparse import Namespace
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from anyio.abc import TaskStatus

    from dumpstream.outside.collector import Collector
    from dumpstream.outside.command import Command
    from dumpstream.outside.process import CapturedProcess

_NOBODY = (
    "it runs nothing on an NPU, or not with CANN",
    "it was started without the agent: LD_PRELOAD is stripped by set-uid programs, sudo and some containers",
    "it is linked statically, or its launcher starts it on another machine",
)


class WrongUsageError(Exception):
    """What was asked for cannot be; the message says why."""


class Signals:
    """What signals do: they go to the command while it runs; then one ends the capture, the next aborts."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self.command: Command | None = None
        self.collector: Collector | None = None
        self._scope = scope
        self._ending = False

    async def obey(self, *, task_status: TaskStatus[None]) -> None:
        """Do it until cancelled."""
        with anyio.open_signal_receiver(*heard(FORWARDED)) as signals:
            task_status.started()
            async for number in signals:
                self._obey(number)

    def _obey(self, number: signal.Signals) -> None:
        if self.command is not None:
            self.command.forward(number)
        elif self.collector is None or self._ending:
            if self.collector is not None:
                self.collector.hurry(ABORT_S)
            self._scope.cancel()
        else:
            self._ending = True
            self.collector.stop()
            self.collector.hurry()
            print("dumpstream: finishing what has come; again to abort", file=sys.stderr)


async def collect_while(
    args: Namespace,
    work: Callable[[Collector, Signals], Awaitable[None]],
    socket_path: Path | None = None,
) -> Collector | None:
    """Open the collector that the flags ask for while *work* runs; None if it was aborted.

    Raises:
        WrongUsageError: an option is out of range.
    """
    collector = None
    with anyio.CancelScope() as scope:
        try:
            async with anyio.create_task_group() as tasks:
                signals = Signals(scope)
                await tasks.start(signals.obey)
                async with AsyncExitStack() as stack:
                    collector = signals.collector = await _enter(args, socket_path, stack)
                    tasks.start_soon(show_progress, collector, partial(_processes_text, collector))
                    await work(collector, signals)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # The group is for signals and progress; what the collector raises is not to be wrapped by it.
            raise group.exceptions[0] from None
    if not scope.cancelled_caught:
        return collector
    print("dumpstream: aborted; what was finished stays", file=sys.stderr)
    if collector is not None:
        print_waiting(collector.report, args.spill, file=sys.stderr)
    return None


async def _enter(args: Namespace, socket_path: Path | None, stack: AsyncExitStack) -> Collector:
    try:
        return await stack.enter_async_context(
            open_collector(
                args.out,
                socket_path=socket_path,
                config=args.config,
                sinks=args.sink,
                append=args.append,
                force=args.force,
                **capture_options(args),
            )
        )
    except ValueError as exc:
        raise WrongUsageError(str(exc)) from exc


def run_outside(args: Namespace, capture: Callable[[Namespace], Awaitable[int]]) -> int:
    """Return what *capture* returns, or the exit code for what it raises."""
    uvloop = {"use_uvloop": find_spec("uvloop") is not None}
    try:
        return anyio.run(capture, args, backend_options=uvloop)
    except WrongUsageError as exc:
        print(f"dumpstream: {printable(str(exc))}", file=sys.stderr)
        return 2
    except ConfigError as exc:
        print_problems(exc.problems, exc.path)
        return 1


def report_outside(collector: Collector, args: Namespace) -> int:
    """Print the summary, or the report, and return the exit code.

    The summary goes to standard error: standard output is the command's.
    """
    report = collector.report
    code = 0 if collector.whole and not report.waiting else NOT_WHOLE
    if args.json:
        processes = [process.as_dict() for process in collector.processes]
        print(json.dumps({**report.as_dict(), "whole": collector.whole, "processes": processes}, indent=2))
        return code
    for process in sorted(collector.processes, key=_by_rank):
        print(process_text(process), file=sys.stderr)
    if not collector.processes:
        print(
            "dumpstream: no process used ACL, so nothing was captured; if one should have:", file=sys.stderr
        )
        for reason in _NOBODY:
            print(f"  - {reason}", file=sys.stderr)
        return code
    print_report(report, args.out, file=sys.stderr)
    print_waiting(report, args.spill, file=sys.stderr)
    if report.whole and not collector.whole:
        print("not every process was captured as it should have been; its line says why", file=sys.stderr)
    return code


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the system allows it to."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _by_rank(process: CapturedProcess) -> tuple[float, int]:
    rank = process.record.rank
    return (inf if rank is None else rank, process.record.pid)


def _processes_text(collector: Collector) -> str:
    return f"{count_text(len(collector.processes), 'process')}, "
