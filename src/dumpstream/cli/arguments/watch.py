"""Find the operators that trample on the outputs of watched ones.

Takes a run with dump_scene watcher: a capture, or a directory that CANN itself wrote. Compares the dumps of
each watched operator and iteration in the order of time. Says between which two dumps bytes changed, how many
elements and where, and which operators ran in between. Exits with 3 if something was trampled on, or if not
every dump could be compared.

Examples:
  dumpstream watch run1
  dumpstream watch run1 --ops graph.json                        with the names of all operators in between
  dumpstream watch run1 --json | jq '.watched[] | select(.state == "trampled")'
"""

from argparse import ArgumentParser
from pathlib import Path

from dumpstream.cli._arguments import add_rank_argument, add_run_argument


def add_arguments(parser: ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument(
        "--ops", type=Path, metavar="FILE", help="the operators in the order of the graph, a JSON array"
    )
    add_rank_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
