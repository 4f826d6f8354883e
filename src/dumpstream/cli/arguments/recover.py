"""Store what a collector that died had left in its rings.

Works on what collect or capture -- COMMAND wrote with --buffer-file: the rings in its files are read to
their ends, and every file gets its verdict.

Examples:
  dumpstream recover run1

exit codes: 0 everything that was left is whole, 1 failed, 2 wrong usage, 3 done, but not everything is whole
"""

from argparse import ArgumentParser

from dumpstream.cli._arguments import place


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.add_argument("directory", type=place, metavar="DIR", help="what the collector wrote to")
    parser.add_argument(
        "--sink",
        action="append",
        metavar="KIND:LOCATION",
        help="where files go, as the collector had it; may be repeated (default: zstd:)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
