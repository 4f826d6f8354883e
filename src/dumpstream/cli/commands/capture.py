"""Capture dump files into a directory.

Runs a command and captures every process of it that uses ACL, from outside; or, with --simulate, captures the
simulated runtime in this process. Stores every file whole and compressed, and says for each whether anything
is missing. Signals go to the command. With --simulate, Ctrl-C once stops and keeps everything that came;
twice aborts.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dumpstream._errors import ConfigError
from dumpstream.cli._arguments import add_capture_arguments, capture_options, place
from dumpstream.cli._display import printable
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.cli._interrupt import heard
from dumpstream.cli._profile import add_profile_arguments, profile_settings
from dumpstream.cli._report import print_report, print_waiting, show_progress
from dumpstream.cli.commands.config import report_problems

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    import anyio

    from dumpstream.capture import Capture
    from dumpstream.report import Report
    from dumpstream.simulation import SimulatedRuntime

_EPILOG = """\
examples:
  dumpstream capture --out run1 -- python train.py          a program, with the dump that it configures
  dumpstream capture --out run1 --config acl.json -- torchrun --nproc-per-node 8 train.py
  dumpstream capture --out run1 --simulate                  a small simulated training run
  dumpstream capture --out run1 --simulate steps=20,ops=50  a longer one
  dumpstream capture --out run1 --simulate --on-full drop   never stall the model, lose by name instead
  dumpstream capture --out run1 --simulate --sink null:     measure without writing
  dumpstream capture --out s3://bucket/run1 --pack --spill /var/tmp/spill -- python train.py
                                                            to an object store

exit codes: 0 everything is whole, 1 failed, 2 wrong usage, 3 finished but not everything is whole;
a command's own, if it is not 0
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--out", type=place, metavar="PLACE", required=True, help="the directory or URL for this capture"
    )
    parser.add_argument(
        "--simulate",
        nargs="?",
        const="small",
        metavar="WORKLOAD",
        help="capture from the simulated runtime: a preset, a JSON file, or key=value,... (default: small)",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the dump configuration (acl.json) to apply"
    )
    parser.add_argument("--acl-lib", metavar="PATH", help="the library with the ACL functions")
    parser.add_argument(
        "words", nargs="*", metavar="COMMAND", help="behind --: the command to run and capture, from outside"
    )
    add_capture_arguments(parser)
    add_profile_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(args: Namespace) -> int:
    """Capture, print the summary, and return the exit code."""
    if (problem := _find_misuse(args)) is not None:
        print(f"dumpstream: {problem}", file=sys.stderr)
        return 2
    if args.simulate is not None:
        return _simulate(args)
    from dumpstream.cli import _command  # noqa: PLC0415 - --help need not wait for it

    return _command.run(args)


def _find_misuse(args: Namespace) -> str | None:
    if (args.simulate is None) == (not args.words):
        return "give either a command, behind --, or --simulate"
    if args.words and (args.acl_lib or args.profile):
        return "--acl-lib and --profile go with --simulate; a command finds its own library"
    return None


def _simulate(args: Namespace) -> int:
    import anyio  # noqa: PLC0415 - --help need not wait for it

    from dumpstream.options import StageOptions  # noqa: PLC0415
    from dumpstream.simulation import (  # noqa: PLC0415
        SimulatedRuntime,
        Workload,
        simulated_library,
    )

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
            report_problems(exc.problems, exc.path)
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
    import anyio  # noqa: PLC0415 - as above
    from anyio.to_thread import run_sync  # noqa: PLC0415

    from dumpstream.capture import open_capture  # noqa: PLC0415

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
        import anyio  # noqa: PLC0415 - as above

        from dumpstream.objectstore.patience import ABORT_S  # noqa: PLC0415

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
