"""Show what is in a dump file.

Prints the operator, and for each tensor its type, format and shape, its statistics, a histogram of its finite
values, and the first and last values. Of an overflow record, prints what it says; of an exception dump, what
each segment is. Exits with 3 if the file is damaged or is not whole.

Examples:
  dumpstream show MatMulV2.a.1.2.1780159660546556
  dumpstream show run1 '*MatMulV2.a.*'                          a file of a capture, by name or pattern
  dumpstream show run1 '*MatMulV2.a.*' --json | jq '.tensors[] | .statistics.nan'
"""

from argparse import ArgumentParser

from dumpstream.cli._arguments import add_rank_argument, place


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("path", type=place, metavar="PATH", help="a dump file (raw or .zst), or a capture (directory or URL)")
    add(
        "name",
        nargs="?",
        metavar="NAME",
        help="of a capture: a name as `ls` shows it, or a pattern with * ? [ ] that one name matches",
    )
    add_rank_argument(parser)
    add("--json", action="store_true", help="print one JSON object")
