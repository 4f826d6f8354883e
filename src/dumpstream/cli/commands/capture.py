"""Captures of the simulated runtime, in this process; a command is captured by `_command`."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import ConfigError
from dumpstream.capture import open_capture
from dumpstream.cli import _command
from dumpstream.cli._display import printable
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.cli._interrupt import heard
from dumpstream.cli._options import capture_options
from dumpstream.cli._problems import print_problems
from dumpstream.cli._profile import profile_settings
from dumpstream.cli._report import print_report, print_waiting, show_progress
from dumpstream.objectstore.patience import ABORT_S
from dumpstream.simulation import SimulatedRuntime, Workload, simulated_library
from dumpstream.stages.options import StageOptions

if TYPE_CHECKING:
    from argparse import Namespace

    from dumpstream.capture import Capture
    from dumpstream.stages.report import Report


def run(args: Namespace) -> int:
    """Capture, print the summary, and return the exit code."""
    if (problem := _find_misuse(args)) is not None:
        print(f"dumpstream: {problem}", file=sys.stderr)
        return 2
    if args.simulate is not None:
        return _simulate(args)
    return _command.run(args)


def _find_misuse(args: Namespace) -> str | None:
    if (args.simulate is None) == (not args.words):
        return "give either a command, behind --, or --simulate"
    if args.words and (args.acl_lib or args.profile):
        return "--acl-lib and --profile go with --simulate; a command finds its own library"
    return None


def _simulate(args: Namespace) -> int:
    try:
        workload = Workload.parse(args.simulate)
        StageOptions.divide(capture_options(args), directory=Path())
        args.profile_settings = profile_settings(args, device=workload.device_id)
    except ValueError as exc:
        print(f"dumpstream: {printable(str(exc))}", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="dumpstream-") as dump_path,
        SimulatedRuntime(workload) as runtime,
    ):
        if args.config is None:
            args.config = Path(dump_path, "acl.json")
            # Exception dumps are not captured, so they must outlive the temporary directory.
            lasting = None if workload.mode == "exception" else dump_path
            args.config.write_text(workload.config(lasting), encoding="utf-8")
        args.acl_lib = args.acl_lib or simulated_library()
        exceptions_before = runtime.counters.exceptions
        uvloop = {"use_uvloop": find_spec("uvloop") is not None}
        try:
            report, aborted = anyio.run(_capture, args, runtime, backend_options=uvloop)
        except ConfigError as exc:
            print_problems(exc.problems, exc.path)
            return 1
        _print_exceptions(runtime, exceptions_before)
    if report is None or aborted:
        print("dumpstream: aborted; what was finished stays", file=sys.stderr)
        if report is not None:
            print_waiting(report, args.spill, file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        print_report(report, args.out)
        print_waiting(report, args.spill)
    return 0 if report.whole and not report.waiting else NOT_WHOLE


def _print_exceptions(runtime: SimulatedRuntime, before: int) -> None:
    """Say where exception dumps went, if there were more than *before*."""
    if exceptions := runtime.counters.exceptions - before:
        where = printable(str(runtime.exception_directory))
        print(f"dumpstream: {exceptions} exception dumps went to disk: {where}", file=sys.stderr)


async def _capture(args: Namespace, runtime: SimulatedRuntime) -> tuple[Report | None, bool]:
    """Return the report, None if the capture had not begun, and whether it was aborted."""
    capture: Capture | None = None
    try:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                signals = _Signals(runtime, scope)
                tasks.start_soon(signals.obey)
                async with open_capture(
                    args.out,
                    config=args.config,
                    acl_library=args.acl_lib,
                    sinks=args.sink,
                    profile=args.profile_settings,
                    append=args.append,
                    force=args.force,
                    **capture_options(args),
                ) as capture:
                    signals.capture = capture
                    tasks.start_soon(show_progress, capture)
                    tasks.start_soon(_stop_when_ended, capture, runtime)
                    await run_sync(runtime.run)
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The task group is for the signals; what open_capture raises is not to be wrapped by it.
        raise group.exceptions[0] from None
    return None if capture is None else capture.report, scope.cancelled_caught


class _Signals:
    """What signals do: the first stops the run, and the second, or one before it, cancels everything."""

    def __init__(self, runtime: SimulatedRuntime, scope: anyio.CancelScope) -> None:
        self._runtime, self._scope = runtime, scope
        self.capture: Capture | None = None  #: once it has begun

    async def obey(self) -> None:
        """Do it until cancelled."""
        with anyio.open_signal_receiver(*heard((signal.SIGINT, signal.SIGTERM))) as signals:
            stopping = False
            async for _ in signals:
                if self.capture is not None:
                    self.capture.hurry(ABORT_S if stopping else None)
                if stopping or self.capture is None:
                    self._scope.cancel()
                    return
                stopping = True
                self._runtime.stop()
                print("dumpstream: finishing what has come; again to abort", file=sys.stderr)


async def _stop_when_ended(capture: Capture, runtime: SimulatedRuntime) -> None:
    """Stop a run that nobody captures any more."""
    await capture.wait()
    runtime.stop()
