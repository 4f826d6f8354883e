"""Captures of the simulated runtime, in this process; a command is captured by `_command`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from anyio.to_thread import run_sync

from dumpstream.capture import open_capture
from dumpstream.cli._command import capture_command
from dumpstream.cli._display import print_json, say
from dumpstream.cli._exit import FAILED, NOT_WHOLE, WrongUsageError
from dumpstream.cli._loop import run_async
from dumpstream.cli._options import capture_options
from dumpstream.cli._profile import profile_settings
from dumpstream.cli._report import print_report, show_progress
from dumpstream.cli._signals import ENDING, CaptureSignals
from dumpstream.simulation import SimulatedRuntime, Workload, simulated_library
from dumpstream.stages.options import StageOptions

if TYPE_CHECKING:
    from argparse import Namespace

    from dumpstream.capture import Capture
    from dumpstream.profiling.settings import ProfileSettings
    from dumpstream.stages.report import Report


def run(args: Namespace) -> int:
    if (args.simulate is None) == (not args.words):
        raise WrongUsageError("give either a command, behind --, or --simulate")
    if args.words and (args.acl_lib or args.profile):
        raise WrongUsageError("--acl-lib and --profile go with --simulate; a command finds its own library")
    return run_async(capture_command, args) if args.simulate is None else _simulate(args)


def _simulate(args: Namespace) -> int:
    try:
        workload = Workload.parse(args.simulate)
        StageOptions.divide(capture_options(args), directory=Path())
        profile = profile_settings(args, device=workload.device_id)
    except ValueError as exc:
        raise WrongUsageError(str(exc)) from exc
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
        before = runtime.counters.exceptions
        report = run_async(_capture, args, runtime, profile)
        if exceptions := runtime.counters.exceptions - before:
            say(f"{exceptions} exception dumps went to disk: {runtime.exception_directory}")
    if report is None:
        return FAILED
    if args.json:
        print_json(report.as_dict())
    else:
        print_report(report, args.out, args.spill)
    return 0 if report.whole and not report.waiting else NOT_WHOLE


async def _capture(
    args: Namespace, runtime: SimulatedRuntime, profile: ProfileSettings | None
) -> Report | None:
    """Return the report, or None if the capture was aborted."""
    signals = CaptureSignals(ENDING)
    async with (
        signals.obeyed() as tasks,
        open_capture(
            args.out,
            config=args.config,
            acl_library=args.acl_lib,
            sinks=args.sink,
            profile=profile,
            append=args.append,
            force=args.force,
            **capture_options(args),
        ) as capture,
    ):
        signals.begin(capture, runtime.stop)
        tasks.start_soon(show_progress, capture)
        tasks.start_soon(_stop_when_ended, capture, runtime)
        await run_sync(runtime.run)
    return None if signals.tell_abort(args.spill) else capture.report


async def _stop_when_ended(capture: Capture, runtime: SimulatedRuntime) -> None:
    """Stop the run if its capture ends early."""
    await capture.wait()
    runtime.stop()
