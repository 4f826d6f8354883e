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
    """Declare what `run` reads."""
    parser.add_argument(
        "--socket",
        type=Path,
        metavar="PATH",
        required=True,
        help="where processes join; created here, and removed at the end",
    )
    parser.add_argument(
        "--out", type=place, metavar="PLACE", required=True, help="the directory or URL for the captures"
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the dump configuration (acl.json) that every process applies",
    )
    add_capture_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
