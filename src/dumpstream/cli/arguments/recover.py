"""Store the data that a dead collector left in its rings.

Works on what `collect` or `capture -- COMMAND` wrote with --buffer-file: reads the rings in those files to
their ends, and gives every file its verdict.

Examples:
  dumpstream recover run1

exit codes: 0 everything that was left is whole, 1 failed, 2 wrong usage, 3 done, but not everything is whole
"""

from argparse import ArgumentParser

from dumpstream.cli._arguments import place


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("directory", type=place, metavar="DIR", help="the directory or URL that the collector wrote to")
    add(
        "--sink",
        action="append",
        metavar="KIND:LOCATION",
        help="where files go, as for the collector; may be repeated (default: zstd:)",
    )
    add("--json", action="store_true", help="print one JSON object")
