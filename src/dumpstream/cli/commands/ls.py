"""List the files of a capture.

Shows the verdict of each file, its original and its stored size, the chunks it came in and the parts it is
stored in. Of a capture of several processes, also lists the processes and how each ended. Works while the
capture runs, too.

Examples:
  dumpstream ls run1
  dumpstream ls run1 '*MatMul*'                 those that match
  dumpstream ls s3://bucket/run1
  dumpstream ls run1 --rank 0                   of a capture of several processes, those of one rank
  dumpstream ls run1 --json | jq -r '.files[] | select(.verdict == "gap") | .name'
"""

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from dumpstream.archive.manifest import Process
from dumpstream.archive.place import is_inside
from dumpstream.archive.totals import Totals
from dumpstream.cli._arguments import add_capture_argument, add_names_argument, add_rank_argument
from dumpstream.cli._display import attributes, count_text, print_json_with_list, printable, size_text
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.filelist import FileSummary
from dumpstream.reading.selection import Selection
from dumpstream.reading.storedfile import StoredFile

_LONGEST_COMMAND = 60
_LINES_AT_ONCE = 1000
_TITLES = f"{'verdict':<12} {'bytes':>9} {'stored':>9} {'chunks':>7} {'parts':>5}  name"


def add_arguments(parser: ArgumentParser) -> None:
    add_capture_argument(parser)
    add_names_argument(parser)
    add_rank_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    collection = Collection.open(args.capture, args.rank)
    selection = Selection(args.names)
    selection.refuse_unmatched(collection)
    if args.json:
        _print_json(collection, selection)
    else:
        _print_tables(collection, selection)
    return 0


def _totals(member: Member) -> Totals:
    return Totals() if member.capture is None else member.capture.totals


def _add_files(total: Totals, files: Sequence[FileSummary]) -> None:
    total.files += len(files)
    total.bytes += sum(file.bytes for file in files)
    total.stored_bytes += sum(file.stored_bytes for file in files)
    total.verdicts = Counter(total.verdicts) + Counter(file.verdict for file in files)


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
    del known["ring"]  # only `recover` needs it
    return {
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
        **({} if member.process is None else {"rank": member.rank}),
        "path": f"{member.prefix}{file.path}" if inside else file.path,
        "parts": len(file.parts),
        **attributes(file, "bytes", "stored_bytes", "chunks", "verdict", "cause", "missing"),
    }


def _print_tables(collection: Collection, selection: Selection) -> None:
    total = Totals()
    states, processes = [], []
    problems: list[str] = []
    for member in collection.members():
        if member.capture is not None:
            states.append(member.capture.state)
            _add_losses(total, member.capture.totals)
            for files in _summaries(member, selection):
                if files and not total.files:
                    print(_TITLES)
                _add_files(total, files)
                _print_files(files, member.prefix)
        if (process := member.process) is not None:
            processes.append(_process_cells(member, process, running=collection.writer is not None))
            if problem := member.problem or process.problem:
                name = process.directory or f"process {process.pid}"
                problems.append(f"{name}: {printable(problem)}")
    if collection.processes is not None:
        _print_processes(processes)
        for problem in problems:
            print(problem)
    print(_summary(total, collection, collection.state(states)))


def _summaries(member: Member, selection: Selection) -> Iterator[list[FileSummary]]:
    """Yield the selected files of *member*, some at a time."""
    assert member.capture is not None
    if selection.everything:
        yield from member.capture.files.summaries()
        return
    files = map(FileSummary.of, selection.files(member))
    while some := list(islice(files, _LINES_AT_ONCE)):
        yield some


def _print_files(files: Sequence[FileSummary], prefix: str) -> None:
    lines = [
        f"{verdict:<12} {size_text(size):>9} {size_text(stored_bytes):>9} {chunks:>7} {parts:>5}  "
        f"{printable(prefix + name)}\n"
        for name, verdict, size, stored_bytes, chunks, parts in files
    ]
    sys.stdout.write("".join(lines))


def _process_cells(member: Member, process: Process, *, running: bool) -> Sequence[str]:
    # The directories of the interpreter and of the script do not tell processes apart.
    words = [word.rpartition("/")[2] for word in process.command[:2]] + process.command[2:]
    command = printable(" ".join(words))
    if len(command) > _LONGEST_COMMAND:
        command = f"{command[: _LONGEST_COMMAND - 3]}..."
    return (
        process.directory or "refused",
        "-" if process.rank is None else str(process.rank),
        "-" if process.device is None else str(process.device),
        str(process.pid),
        printable(process.ending or ("running" if running else "not known")),
        _verdicts_text(_totals(member).verdicts) or "no files",
        command,
    )


def _print_processes(processes: Sequence[Sequence[str]]) -> None:
    rows = [("process", "rank", "device", "pid", "ended", "files", "command"), *processes]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    print()
    for cells in rows if processes else []:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def _summary(total: Totals, collection: Collection, state: str) -> str:
    summary = count_text(total.files, "file")
    if total.verdicts:
        summary += f" ({_verdicts_text(total.verdicts)})"
    if collection.processes is not None:
        summary += f" of {count_text(len(collection.processes), 'process')}"
    summary += f", {size_text(total.bytes)} stored in {size_text(total.stored_bytes)}; the capture is {state}"
    for cause, (chunks, size) in total.losses.items():
        summary += f"; lost {count_text(chunks, 'chunk')}, {size_text(size)} ({printable(cause)})"
    if total.unreadable:
        summary += f"; {count_text(total.unreadable, 'journal line')} unreadable"
    return summary
