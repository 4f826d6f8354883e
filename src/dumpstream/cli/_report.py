"""How the commands that capture show what came."""

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import TextIO

import anyio

from dumpstream.capture import Capture
from dumpstream.cli._display import (
    count_text,
    not_stored_text,
    print_text,
    printable,
    say,
    size_text,
    sizes_text,
    summarise,
)
from dumpstream.cli.screen.capturing import Captured, CapturePicture
from dumpstream.cli.screen.colour import Style, styled
from dumpstream.cli.screen.layout import Column
from dumpstream.cli.screen.live import Live
from dumpstream.cli.screen.table import Table
from dumpstream.format.verdict import Verdict
from dumpstream.outside.collector import Collector
from dumpstream.outside.process import CapturedProcess
from dumpstream.processes import PROCESS_GONE
from dumpstream.remote.outboxes import waiting_text
from dumpstream.stages.report import Report
from dumpstream.system.location import Prefix

_PROGRESS_S = 0.25
_MOST_PROCESSES = 16  #: that are listed one by one, if they are whole
_WHOLE_NAMES = "a pattern is that of a whole name as `dumpstream ls` shows it, such as '*MatMul*'"


def tell_remains(capture: Capture | Collector) -> None:
    """Say which files --force did not delete, if there are any."""
    if capture.remains.count:
        say(f"{capture.path}: {capture.remains}")


async def show_progress(capture: Capture | Collector, *, beside_command: bool = False) -> None:
    """Show what has come, until cancelled; a command may print to the same terminal meanwhile."""
    picture = CapturePicture()
    async with Live(picture, others_write=beside_command).drawn_beside():
        while True:
            picture.show(*_state_of(capture))
            await anyio.sleep(_PROGRESS_S)


def _state_of(capture: Capture | Collector) -> tuple[str, Report, list[Captured]]:
    """Return what is going on, what has come of it, and from which processes that run."""
    if not isinstance(capture, Collector):
        return "capturing", capture.report, []
    processes = capture.processes
    running = sorted((it for it in processes if it.capture is not None), key=by_rank)
    doing = f"capturing {count_text(len(processes), 'process')}"
    return doing, capture.report, [Captured(_label(it), it.report) for it in running]


def _label(process: CapturedProcess) -> str:
    rank = process.record.rank
    return f"process {process.record.pid}" if rank is None else f"rank {rank}"


def by_rank(process: CapturedProcess) -> tuple[float, int]:
    """Return what processes are listed by."""
    rank = process.record.rank
    return (inf if rank is None else rank, process.record.pid)


def verdicts_text(report: Report) -> str:
    """Return ``16 files (16 complete)``."""
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in report.verdicts.items())
    return f"{count_text(report.files, 'file')} ({verdicts or 'none'})"


def process_text(process: CapturedProcess) -> str:
    """Return a line about a process: what came from it, and how it ended."""
    record, report = process.record, process.report
    line = f"{_name(process)}: process {record.pid}"
    if record.directory:
        sizes = sizes_text(report.bytes, report.stored_bytes, report.not_stored)
        line += f", {verdicts_text(report)}, {sizes}"
    line = ", ".join([line, *_missing(process)])
    return printable("; ".join(dict.fromkeys(filter(None, (line, record.ending, *_problems(process))))))


def _name(process: CapturedProcess) -> str:
    return process.record.directory or "refused"


def _missing(process: CapturedProcess) -> Iterator[str]:
    """Yield what did not come from a process, or is not where it belongs."""
    report = process.report
    if report.not_stored:
        yield not_stored_text(report.not_stored)
    if lost := sum(loss.chunks for loss in report.losses.values()):
        yield f"{count_text(lost, 'chunk')} lost"
    if report.waiting:
        yield f"{count_text(report.waiting_files, 'file')} not in the store yet"


def _problems(process: CapturedProcess) -> Iterator[str | None]:
    """Yield what is known to have gone wrong with a process."""
    yield "gone without aclFinalize" if process.report.cut_off == PROCESS_GONE else None
    yield process.report.failure
    yield process.record.problem


def _style_of_ending(text: str) -> Style:
    if text.startswith("exit code"):
        return Style.PLAIN if text == "exit code 0" else Style.FAIR
    return Style.BAD


_PROCESSES = (
    Column(name="process", text=printable, least=8, importance=6),
    Column(name="pid", importance=1),
    Column(name="files", text=printable, least=11, importance=5),
    Column(name="captured", text=size_text, numeric=True, importance=3),
    Column(name="stored", text=size_text, numeric=True, importance=2),
    Column(name="ended", text=printable, least=11, importance=4, style=_style_of_ending),
)


def print_processes(processes: Sequence[CapturedProcess], file: TextIO) -> None:
    """Print what came from each process: on a terminal, as a table, with lines about what went wrong."""
    listed = sorted(processes, key=by_rank)
    if not file.isatty():
        for process in listed:
            print(process_text(process), file=file)
        return
    good = [it for it in listed if it.whole and not it.record.problem]
    left_out = set(good[_MOST_PROCESSES:])
    _print_table([it for it in listed if it not in left_out], file)
    if left_out:
        print(f"and {len(left_out)} more that are whole", file=file)
    for process in listed:
        about = dict.fromkeys(filter(None, (*_missing(process), *_problems(process))))
        if process not in good and about:
            print_text(f"{_name(process)}: {printable('; '.join(about))}", indent=2, file=file)


def _print_table(processes: Sequence[CapturedProcess], file: TextIO) -> None:
    table = Table(_PROCESSES, file=file)
    reports = [it.report for it in processes]
    table.add(
        {
            "process": [*map(_name, processes)],
            "pid": [it.record.pid for it in processes],
            "files": [", ".join(f"{count} {word}" for word, count in it.verdicts.items()) for it in reports],
            "captured": [it.bytes for it in reports],
            "stored": [it.stored_bytes for it in reports],
            "ended": [it.record.ending or "" for it in processes],
        }
    )
    file.writelines(table.lines())


def print_report(
    report: Report, directory: Path | Prefix, spill: Path | None, *, file: TextIO | None = None
) -> None:
    """Print the summary of a capture into *directory*, and how to upload what waits in *spill*."""
    judged = Style.GOOD if report.whole and report.files else Style.BAD if not report.whole else Style.PLAIN
    summarise(
        f"{styled(verdicts_text(report), judged, file)} from {count_text(report.chunks, 'chunk')}, "
        f"{sizes_text(report.bytes, report.stored_bytes, report.not_stored)}, "
        f"{report.seconds:.1f} s, {size_text(int(report.bytes_per_second))}/s, in {directory}",
        good=False,  # the caller has decided to print it
        file=file,
    )
    if report.not_stored:
        print(not_stored_text(report.not_stored), file=file)
        if report.not_stored == report.files:
            print_text(f"no file matches --only; {_WHOLE_NAMES}", file=file)
    if report.profile is not None:
        print_text(f"profile in {directory / report.profile}", file=file)
    for cause, loss in report.losses.items():
        print(f"lost to {cause}: {count_text(loss.chunks, 'chunk')}, {size_text(loss.bytes)}", file=file)
    if report.unnamed_losses:
        unnamed = count_text(report.unnamed_losses, "lost chunk")
        print(f"{unnamed} of files whose names are not known", file=file)
    if report.hints:
        print("no chunk came at all; likely causes:", file=file)
        for hint in report.hints:
            print_text(f"  - {hint}", indent=4, file=file)
    if not report.whole:
        problem = styled("not everything is whole", Style.BAD, file)
        is_listed = bool(report.losses) or not all(Verdict(name).whole for name in report.verdicts)
        where = f": dumpstream ls {directory} shows which files" if is_listed else ""
        print_text(f"{problem}{where}", file=file)
    print_waiting(report, spill, file=file)


def print_waiting(report: Report, spill: Path | None, *, file: TextIO | None = None) -> None:
    """Print how much has not reached its store yet, if anything, and how to upload it."""
    if report.waiting:
        print_text(waiting_text(report.waiting_files, spill), file=file)
