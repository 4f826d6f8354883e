"""List the files of a capture.

Shows the verdict of each file, its original and its stored size, the chunks it came in and the parts it is
stored in; if the program has marked steps, also the step of files whose names have none. Of a capture of
several processes, also lists the processes and how each ended. Of a job of several hosts, lists the hosts;
with a host, a rank or a name, the files. Works while the capture runs, too.

Examples:
  dumpstream ls run1
  dumpstream ls run1 '*MatMul*'                 those that match
  dumpstream ls s3://bucket/run1
  dumpstream ls run1 --rank 0                   of a capture of several processes, those of one rank
  dumpstream ls s3://bucket/job                 the hosts of a job
  dumpstream ls s3://bucket/job --host 3        the files of one of them
  dumpstream ls run1 --json | jq -r '.files[] | select(.verdict == "gap") | .name'
"""

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import islice
from typing import Any

from dumpstream.archive.journalfile import FileSummary
from dumpstream.archive.manifest import FIGURES, Process
from dumpstream.archive.place import is_inside
from dumpstream.archive.totals import Totals
from dumpstream.cli._arguments import add_capture_argument, add_members_arguments, add_names_argument
from dumpstream.cli._display import (
    attributes,
    count_text,
    not_stored_text,
    print_json_with_list,
    printable,
    size_text,
    sizes_text,
    summarise,
)
from dumpstream.cli.screen.colour import style_of, verdict
from dumpstream.cli.screen.hosts import print_hosts, print_hosts_json
from dumpstream.cli.screen.layout import Column
from dumpstream.cli.screen.table import Table
from dumpstream.format.opname import parse_name
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.filelist import summary_of
from dumpstream.reading.selection import Selection
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile

_LINES_AT_ONCE = 1000


@lru_cache(4096)
def _stored_text(stored: int | str) -> str:
    """Return the stored size, or why nothing was stored."""
    return size_text(stored) if isinstance(stored, int) else printable(stored)


def _step_text(step: int | None) -> str:
    return "-" if step is None else str(step)


_FILES = (
    Column(name="verdict", repeats=True, at_least=8, style=style_of, importance=5),
    Column(name="bytes", text=size_text, numeric=True, repeats=True, at_least=8, importance=3),
    Column(
        name="stored", text=_stored_text, numeric=True, repeats=True, at_least=8, importance=2, yields=True
    ),
    Column(name="chunks", numeric=True, repeats=True, importance=1, yields=True),
    Column(name="parts", numeric=True, repeats=True, yields=True),
    Column(name="name", text=printable, least=28, ample=1000, folds=True, importance=6),
)
_STEP = Column(name="step", text=_step_text, numeric=True, importance=4)
_PROCESSES = (
    Column(name="process", text=printable, least=8, importance=6),
    Column(name="rank", importance=1),
    Column(name="device", importance=2),
    Column(name="pid", importance=3),
    Column(name="ended", text=printable, least=11, importance=4),
    Column(name="files", text=printable, least=11, importance=5),
    Column(name="command", text=printable, least=12),
)


def add_arguments(parser: ArgumentParser) -> None:
    add_capture_argument(parser)
    add_names_argument(parser)
    add_members_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    collection = Collection.open(args.capture, args.rank, args.host)
    if collection.job is not None and not (args.rank or args.host or args.names):
        (print_hosts_json if args.json else print_hosts)(collection)
        return 0
    selection = Selection(args.names)
    selection.refuse_unmatched(collection)
    if args.json:
        _print_json(collection, selection)
    else:
        _print_tables(collection, selection)
    return 0


def _totals(member: Member) -> Totals:
    return Totals() if member.capture is None else member.capture.totals


def _add_files(total: Totals, of: Totals) -> None:
    total.files += of.files
    total.bytes += of.bytes
    total.stored_bytes += of.stored_bytes
    total.verdicts = Counter(total.verdicts) + Counter(of.verdicts)


def _totals_of(files: Sequence[FileSummary]) -> Totals:
    totals = Totals(files=len(files))
    for _, word, size, stored_bytes, *_ in files:
        totals.bytes += size
        totals.stored_bytes += stored_bytes
        totals.verdicts[word] = totals.verdicts.get(word, 0) + 1
    return totals


def _add_losses(total: Totals, capture: Totals) -> None:
    """Add what a capture lost, and how many of its lines cannot be read."""
    total.unreadable += capture.unreadable
    for cause, (chunks, size) in capture.losses.items():
        before = total.losses.get(cause, (0, 0))
        total.losses[cause] = [before[0] + chunks, before[1] + size]


def _losses_json(totals: Totals) -> list[dict[str, Any]]:
    return [{"cause": cause, "chunks": it[0], "bytes": it[1]} for cause, it in totals.losses.items()]


def _verdicts_text(verdicts: Mapping[str, int]) -> str:
    """Return ``2 complete, 1 gap``."""
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))


def _print_json(collection: Collection, selection: Selection) -> None:
    total = Totals()
    states, processes = [], []
    runs: list[dict[str, Any]] = []
    for member in collection.members():
        if member.process is not None:
            processes.append(_process(member))
        if member.capture is not None:
            _add_losses(total, member.capture.totals)
            states.append(member.capture.state)
            runs = [{"run": run, "outcome": outcome} for run, outcome in member.capture.outcomes.items()]
    several = collection.processes is not None
    listed = {
        "state": collection.state(states),
        **({"processes": processes} if several else {"runs": runs}),
        "files": [],
        "losses": _losses_json(total),
        "unreadable_lines": total.unreadable,
    }
    rows = (_row(file, member) for member in collection.members() for file in selection.files(member))
    print_json_with_list(listed, "files", rows)


def _process(member: Member) -> dict[str, Any]:
    assert member.process is not None
    totals = _totals(member)
    known = asdict(member.process)
    for name in ("ring", *FIGURES):  # only `recover` needs it, and its journal says more
        del known[name]
    return {
        **({} if member.host is None else {"host": member.host}),
        **known,
        "problem": member.problem or member.process.problem,
        "state": None if member.capture is None else member.capture.state,
        **attributes(totals, "files", "bytes", "stored_bytes"),
        "verdicts": dict(sorted(totals.verdicts.items())),
        "losses": _losses_json(totals),
    }


def _row(file: StoredFile, member: Member) -> dict[str, Any]:
    inside = file.path is not None and is_inside(file.path)
    return {
        "name": member.prefix + file.name,
        **({} if member.host is None else {"host": member.host}),
        **({} if member.process is None else {"rank": member.rank}),
        "step": _step_of(file),
        "path": f"{member.prefix}{file.path}" if inside else file.path,
        "parts": len(file.parts),
        **attributes(file, "bytes", "stored_bytes", "chunks", "verdict", "cause", "missing", "not_stored"),
    }


def _step_of(file: StoredFile) -> int | None:
    """Return the step that the name of *file* has, or that was marked."""
    named = parse_name(file.name).iteration
    return file.step if named is None else named


def _print_tables(collection: Collection, selection: Selection) -> None:
    total = Totals()
    states, processes = [], []
    problems: list[str] = []
    table = Table(_FILES, leads=[_STEP], grows=True)
    running = any(host.writer is not None for host in collection.hosts)
    for member in collection.members():
        if member.capture is not None:
            states.append(member.capture.state)
            _add_losses(total, member.capture.totals)
            _print_captured(member.capture, member, selection, total, table)
        if (process := member.process) is not None:
            processes.append(_process_cells(member, process, running=running))
        problem = member.problem or (None if member.process is None else member.process.problem)
        if problem is not None:
            problems.append(printable(f"{member.label}: {problem}"))
    if collection.processes is not None:
        _print_processes(processes)
        for problem in problems:
            print(problem)
    state = collection.state(states)
    good = state == "finished" and not total.losses and not total.unreadable
    summarise(_summary(total, collection, state), good=good)


def _print_captured(
    capture: StoredCapture, member: Member, selection: Selection, total: Totals, table: Table
) -> None:
    """Print the selected files of *member*, which has *capture*, and add them to *total*."""
    for files in _summaries(capture, member, selection):
        table.add(_columns_of(files, member.prefix))
        sys.stdout.writelines(table.lines())
        total.not_stored += len(files) - [it[6] for it in files].count(None)
        if not selection.everything:
            _add_files(total, _totals_of(files))
    if selection.everything:
        _add_files(total, capture.totals)


def _summaries(
    capture: StoredCapture, member: Member, selection: Selection
) -> Iterator[Sequence[FileSummary]]:
    """Yield the selected files of *member*, which has *capture*, some at a time."""
    if selection.everything:
        yield from capture.files.summaries()
        return
    files = map(summary_of, selection.files(member))
    while some := list(islice(files, _LINES_AT_ONCE)):
        yield some


def _columns_of(files: Sequence[FileSummary], prefix: str) -> dict[str, Sequence[Any]]:
    """Return what the table shows of *files*, column by column."""
    names, verdicts, sizes, stored, chunks, parts, reasons, steps = (
        zip(*files, strict=True) if files else [()] * 8
    )
    return {
        "step": steps,
        "verdict": verdicts,
        "bytes": sizes,
        "stored": [reason or size for size, reason in zip(stored, reasons, strict=True)]
        if any(reasons)
        else stored,
        "chunks": chunks,
        "parts": parts,
        "name": [prefix + name for name in names] if prefix else names,
    }


def _process_cells(member: Member, process: Process, *, running: bool) -> Sequence[str]:
    # The directories of the interpreter and of the script do not tell processes apart.
    words = [word.rpartition("/")[2] for word in process.command[:2]] + process.command[2:]
    return (
        member.label if process.directory else f"{member.below}refused",
        "-" if process.rank is None else str(process.rank),
        "-" if process.device is None else str(process.device),
        str(process.pid),
        process.ending or ("running" if running else "not known"),
        _verdicts_text(_totals(member).verdicts) or "no files",
        " ".join(words),
    )


def _print_processes(processes: Sequence[Sequence[str]]) -> None:
    table = Table(_PROCESSES)
    if processes:
        cells = zip(*processes, strict=True)
        table.add({column.name: values for column, values in zip(_PROCESSES, cells, strict=True)})
    print()
    sys.stdout.writelines(table.lines())


def _summary(total: Totals, collection: Collection, state: str) -> str:
    summary = count_text(total.files, "file")
    if total.verdicts:
        summary += f" ({_verdicts_text(total.verdicts)})"
    if collection.processes is not None:
        summary += f" of {count_text(len(collection.processes), 'process')}"
    summary += f", {sizes_text(total.bytes, total.stored_bytes, total.not_stored)}"
    summary += f"; the capture is {verdict(state)}"
    if total.not_stored:
        summary += f"; {not_stored_text(total.not_stored)}"
    for cause, (chunks, size) in total.losses.items():
        summary += f"; lost {count_text(chunks, 'chunk')}, {size_text(size)} ({printable(cause)})"
    if total.unreadable:
        summary += f"; {count_text(total.unreadable, 'journal line')} unreadable"
    return summary
