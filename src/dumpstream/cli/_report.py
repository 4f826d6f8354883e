"""How the commands that capture show what came."""

from pathlib import Path
from typing import TextIO

import anyio

from dumpstream.capture import Capture
from dumpstream.cli._display import ProgressLine, count_text, printable, say, size_text
from dumpstream.outside.collector import Collector
from dumpstream.outside.process import CapturedProcess
from dumpstream.remote.outboxes import waiting_text
from dumpstream.stages.report import Report
from dumpstream.system.location import Prefix

_PROGRESS_S = 0.25


def tell_remains(capture: Capture | Collector) -> None:
    """Say which files --force did not delete, if there are any."""
    if capture.remains.count:
        say(f"{capture.path}: {capture.remains}")


async def show_progress(capture: Capture | Collector) -> None:
    """Show on the terminal what has come, until cancelled."""
    before = capture.report
    with ProgressLine() as line:
        while True:
            await anyio.sleep(_PROGRESS_S)
            now = capture.report
            text = _progress_text(before, now)
            if isinstance(capture, Collector):
                text = f"{count_text(len(capture.processes), 'process')}, {text}"
            line.show(text)
            before = now


def _progress_text(before: Report, now: Report) -> str:
    rate = (now.bytes - before.bytes) / max(now.seconds - before.seconds, 1e-9)
    lost = sum(loss.chunks for loss in now.losses.values())
    return (
        f"{count_text(now.chunks, 'chunk')}, {count_text(now.files, 'file')}, {size_text(now.bytes)}, "
        f"{size_text(int(rate))}/s, ring {100 * now.ring_fill // max(now.ring_bytes, 1)} %"
        + (f", {lost} lost" if lost else "")
    )


def verdicts_text(report: Report) -> str:
    """Return ``16 files (16 complete)``."""
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in report.verdicts.items())
    return f"{count_text(report.files, 'file')} ({verdicts or 'none'})"


def process_text(process: CapturedProcess) -> str:
    """Return a line about a process: what came from it, and how it ended."""
    record, report = process.record, process.report
    line = f"{record.directory or 'refused'}: process {record.pid}"
    if record.directory:
        sizes = f"{size_text(report.bytes)} stored in {size_text(report.stored_bytes)}"
        line += f", {verdicts_text(report)}, {sizes}"
    if lost := sum(loss.chunks for loss in report.losses.values()):
        line += f", {count_text(lost, 'chunk')} lost"
    if report.waiting:
        line += f", {count_text(report.waiting_files, 'file')} not in the store yet"
    parts = dict.fromkeys((line, record.ending, report.failure, record.problem))
    return printable("; ".join(filter(None, parts)))


def print_report(
    report: Report, directory: Path | Prefix, spill: Path | None, *, file: TextIO | None = None
) -> None:
    """Print the summary of a capture into *directory*, and how to upload what waits in *spill*."""
    print(
        f"{verdicts_text(report)} from {count_text(report.chunks, 'chunk')}, "
        f"{size_text(report.bytes)} stored in {size_text(report.stored_bytes)}, "
        f"{report.seconds:.1f} s, {size_text(int(report.bytes_per_second))}/s, in {directory}",
        file=file,
    )
    if report.profile is not None:
        print(f"profile in {directory / report.profile}", file=file)
    for cause, loss in report.losses.items():
        print(f"lost to {cause}: {count_text(loss.chunks, 'chunk')}, {size_text(loss.bytes)}", file=file)
    if report.unnamed_losses:
        unnamed = count_text(report.unnamed_losses, "lost chunk")
        print(f"{unnamed} of files whose names are not known", file=file)
    if report.hints:
        print("no chunk came at all; likely causes:", file=file)
        for hint in report.hints:
            print(f"  - {hint}", file=file)
    if not report.whole:
        print(f"not everything is whole: dumpstream ls {directory} shows which files", file=file)
    print_waiting(report, spill, file=file)


def print_waiting(report: Report, spill: Path | None, *, file: TextIO | None = None) -> None:
    """Print how much has not reached its store yet, if anything, and how to upload it."""
    if report.waiting:
        print(waiting_text(report.waiting_files, spill), file=file)
