"""List the files of a capture.

Shows the verdict of each file, its original and its stored size, the chunks it came in and the parts it is
stored in. Of a capture of several processes, also lists the processes and how each ended. Works while the
capture runs, too.

Examples:
  dumpstream ls run1
  dumpstream ls s3://bucket/run1
  dumpstream ls run1 --rank 0                   of a capture of several processes, those of one rank
  dumpstream ls run1 --json | jq -r '.files[] | select(.verdict == "gap") | .name'
"""

from argparse import ArgumentParser

from dumpstream.cli._arguments import add_capture_argument, add_rank_argument


def add_arguments(parser: ArgumentParser) -> None:
    add_capture_argument(parser)
    add_rank_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
