"""List the operators that overflowed.

Takes a run with dump_debug on: a capture, or a directory that CANN itself wrote. Prints each operator that
overflowed, in the order of time, what the device recorded about it, and its inputs and outputs with their
statistics. Records without tensors, and tensors without a record, are listed, too. Exits with 3 if a file
cannot be read, or not completely.

Examples:
  dumpstream overflow run1
  dumpstream overflow run1 --json | jq -r '.overflows[0].op_name'
"""

from argparse import ArgumentParser

from dumpstream.cli._arguments import add_rank_argument, add_run_argument


def add_arguments(parser: ArgumentParser) -> None:
    add_run_argument(parser)
    add_rank_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
