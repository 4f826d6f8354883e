"""Capture dump files into a directory.

Runs a command and captures, from outside, each of its processes that uses ACL. With --simulate, captures the
simulated runtime in this process instead. Stores every file whole and compressed, and says for each file
whether anything is missing. Signals go to the command. With --simulate, the first Ctrl-C stops the run and
keeps everything that came; the second aborts.

Examples:
  dumpstream capture --out run1 -- python train.py          a program, with the dump that it configures
  dumpstream capture --out run1 --config acl.json -- torchrun --nproc-per-node 8 train.py
  dumpstream capture --out run1 --simulate                  a small simulated training run
  dumpstream capture --out run1 --simulate steps=20,ops=50  a longer one
  dumpstream capture --out run1 --simulate --on-full drop   never stall the model, lose by name instead
  dumpstream capture --out run1 --simulate --sink null:     measure without writing
  dumpstream capture --out s3://bucket/job --host auto -- torchrun --nnodes 64 train.py
                                                            on every host of a job
  dumpstream capture --out s3://bucket/run1 --pack --spill /var/tmp/spill -- python train.py
                                                            to an object store

exit codes: 0 everything is whole, 1 failed, 2 wrong usage, 3 finished but not everything is whole;
a command's own, if it is not 0
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from anyio.to_thread import run_sync

from dumpstream.capture import Capture, open_capture
from dumpstream.cli._alerts import AlertTeller, wants_alerts
from dumpstream.cli._arguments import add_out_argument, local_path
from dumpstream.cli._command import capture_command, refuse_missing
from dumpstream.cli._display import print_json, say
from dumpstream.cli._exit import FAILED, NOT_WHOLE, WrongUsageError
from dumpstream.cli._loop import run_async
from dumpstream.cli._nothing import tell_lack
from dumpstream.cli._options import add_capture_arguments, capture_arguments, capture_options
from dumpstream.cli._profile import add_profile_arguments, profile_settings
from dumpstream.cli._report import print_report, show_progress, tell_remains
from dumpstream.cli._signals import ENDING, CaptureSignals
from dumpstream.cli.screen.options import is_quiet
from dumpstream.profiling.settings import ProfileSettings
from dumpstream.simulation import SimulatedRuntime, Workload, simulated_library
from dumpstream.stages.options import StageOptions
from dumpstream.stages.report import Report
from dumpstream.system.scratch import ScratchDirectory


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_out_argument(parser, "the directory or URL for this capture")
    add(
        "--simulate",
        nargs="?",
        const="small",
        metavar="WORKLOAD",
        help="capture from the simulated runtime: a preset, a JSON file, or key=value,... (default: small)",
    )
    add("--config", type=local_path, metavar="FILE", help="the dump configuration (acl.json) to apply")
    add("--acl-lib", metavar="PATH", help="the library with the ACL functions")
    add("words", nargs="*", metavar="COMMAND", help="behind --: the command to run and capture, from outside")
    add_capture_arguments(parser)
    add_profile_arguments(parser)
    add("--json", action="store_true", help="print the report as one JSON object")


def run(args: Namespace) -> int:
    if (args.simulate is None) == (not args.words):
        raise WrongUsageError("give either a command, behind --, or --simulate")
    if args.words and (args.acl_lib or args.profile):
        raise WrongUsageError("--acl-lib and --profile go with --simulate; a command finds its own library")
    if args.simulate is not None:
        if args.host is not None:
            raise WrongUsageError("--host goes with a command; capture `dumpstream simulate` behind --")
        return _simulate(args)
    code = refuse_missing(args.words[0])
    return run_async(capture_command, args) if code is None else code


def _simulate(args: Namespace) -> int:
    try:
        workload = Workload.parse(args.simulate)
        StageOptions.divide(capture_options(args), directory=Path())
        profile = profile_settings(args, device=workload.device_id)
    except ValueError as exc:
        raise WrongUsageError(str(exc)) from exc
    with ScratchDirectory("simulate") as directory, SimulatedRuntime(workload) as runtime:
        if args.config is None:
            args.config = directory.path / "acl.json"
            # Exception dumps are not captured, so they must outlive the temporary directory.
            lasting = None if workload.mode == "exception" else directory.path
            args.config.write_text(workload.config(lasting), encoding="utf-8")
        args.acl_lib = args.acl_lib or simulated_library()
        before = runtime.counters.exceptions
        report = run_async(_capture, args, runtime, profile)
        if exceptions := runtime.counters.exceptions - before:
            say(f"{exceptions} exception dumps went to disk: {runtime.exception_directory}")
    if report is None:
        return FAILED
    lacking = tell_lack(args, report)
    code = 0 if report.whole and not (report.waiting or lacking) else NOT_WHOLE
    if args.json:
        print_json(report.as_dict())
    elif code or not is_quiet() or report.hints:
        print_report(report, args.out, args.spill)
    return code


async def _capture(
    args: Namespace, runtime: SimulatedRuntime, profile: ProfileSettings | None
) -> Report | None:
    """Return the report, or None if the capture was aborted."""
    signals = CaptureSignals(ENDING)
    opening = open_capture(
        args.out,
        acl_library=args.acl_lib,
        profile=profile,
        own_process=False,  # this command has nothing else to do
        **capture_arguments(args),
    )
    async with signals.obeyed() as tasks:
        teller = AlertTeller(tasks, args.on_alert)
        async with opening as capture:
            signals.begin(capture, runtime.stop)
            tell_remains(capture)
            tasks.start_soon(show_progress, capture)
            if wants_alerts(args):
                teller.tell(capture)
            if args.on_failure == "stop":
                tasks.start_soon(_stop_when_ended, capture, runtime)
            await run_sync(runtime.run)
        await teller.finish()
    return None if signals.tell_abort(args.spill) else capture.report


async def _stop_when_ended(capture: Capture, runtime: SimulatedRuntime) -> None:
    """Stop the run if its capture ends early."""
    await capture.wait()
    runtime.stop()
