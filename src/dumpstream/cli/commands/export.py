"""Write a run in a format that other programs open.

perfetto: a trace for Perfetto's viewer. A rank is a process, a stream is a thread, and an operator is a slice
with the statistics of its tensors. Arrows show which output became which input, and outputs with NaNs or
infinities are marked. Widths say when operators were dumped, not how long they ran, and the clocks of ranks
may differ.

Examples:
  dumpstream export run1 --format perfetto --out run1.pftrace
  dumpstream export run1 --rank 0 --format perfetto --out rank0.pftrace
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from dumpstream.cli._arguments import add_members_arguments, add_run_argument, local_path
from dumpstream.cli._display import count_text, say, summarise
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.cli.screen.progress import Progress
from dumpstream.diagnosis.dataflow.executions import find_executions
from dumpstream.diagnosis.dataflow.flow import find_flow
from dumpstream.diagnosis.subject import read_subject
from dumpstream.reading.outputs import open_output
from dumpstream.tables.perfetto import write_trace


def add_arguments(parser: ArgumentParser) -> None:
    add_run_argument(parser)
    add_members_arguments(parser)
    parser.add_argument("--format", choices=["perfetto"], required=True, help="of the file")
    parser.add_argument("--out", type=local_path, metavar="FILE", required=True, help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace --out if it is there")


def run(args: Namespace) -> int:
    with open_output(args.out, replace=args.force) as file:
        with Progress("reading", "file") as progress:
            subject = read_subject(args.path, args.rank, args.host, progress=progress.show)
        executions = find_executions(subject.trace)
        written = write_trace(file, subject.trace, executions, find_flow(subject.trace, executions))
    for problem in subject.missing:
        say(problem)
    if untimed := len(executions) - written:
        say(f"{count_text(untimed, 'operator')} left out: the names of their files have no time")
    whole = not subject.missing and not untimed
    summarise(f"{count_text(written, 'operator')} in {args.out}", good=whole)
    return 0 if whole else NOT_WHOLE
