"""Store the data that a dead collector left in its rings.

Works on what `collect` or `capture -- COMMAND` wrote with --buffer-file: reads the rings in those files to
their ends, and gives every file its verdict.

Examples:
  dumpstream recover run1

exit codes: 0 everything that was left is whole, 1 failed, 2 wrong usage, 3 done, but not everything is whole
"""

from argparse import ArgumentParser, Namespace
from functools import partial

from dumpstream.cli._arguments import location
from dumpstream.cli._display import print_json, summarise
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.cli._loop import run_async
from dumpstream.cli._report import process_text
from dumpstream.outside.recovery import recover


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("directory", type=location, metavar="DIR", help="the directory or URL that the collector wrote to")
    add(
        "--sink",
        action="append",
        metavar="KIND:LOCATION",
        help="where files go, as for the collector; may be repeated (default: zstd:)",
    )
    add("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    processes = run_async(partial(recover, args.directory, sinks=args.sink))
    if args.json:
        print_json({"processes": [process.as_dict() for process in processes]})
    else:
        for process in processes:
            summarise(process_text(process), good=process.whole)
        done = "nothing was left to recover" if not processes else f"recovered into {args.directory}"
        summarise(done, good=True)
    return 0 if all(process.whole for process in processes) else NOT_WHOLE
