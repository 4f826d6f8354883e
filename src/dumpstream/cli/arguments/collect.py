"""Capture every process that joins, as a service.

Listens at a socket. A process joins with DUMPSTREAM_SOCKET and LD_PRELOAD in its environment, or by calling
dumpstream.attach(). The first Ctrl-C ends the captures and keeps everything that came; the second aborts.

Examples:
  dumpstream collect --socket /run/user/1000/dumpstream --out run1
  dumpstream collect --socket ./socket --out run1 --config acl.json --buffer-bytes 1G
  dumpstream collect --socket ./socket --out s3://bucket/run1 --spill /var/tmp/spill

exit codes: 0 everything is whole, 1 failed, 2 wrong usage, 3 finished but not everything is whole
"""

from argparse import ArgumentParser
from pathlib import Path

from dumpstream.cli._arguments import place
from dumpstream.cli._options import add_capture_arguments


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--socket",
        type=Path,
        metavar="PATH",
        required=True,
        help="where processes join; made, and removed at the end",
    )
    add("--out", type=place, metavar="PLACE", required=True, help="the directory or URL for the captures")
    add("--config", type=Path, metavar="FILE", help="the dump configuration (acl.json) of every process")
    add_capture_arguments(parser)
    add("--json", action="store_true", help="print the report as one JSON object")
