"""Capture every process that joins, as a service.

Listens at a socket. A process joins with DUMPSTREAM_SOCKET and LD_PRELOAD in its environment, or by calling
dumpstream.attach(). Ctrl-C once ends the captures and keeps everything that came; twice aborts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dumpstream.cli._arguments import add_capture_arguments, place
from dumpstream.cli._display import printable

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dumpstream.cli._outside import Signals
    from dumpstream.outside.collector import Collector

_EPILOG = """\
examples:
  dumpstream collect --socket /run/user/1000/dumpstream --out run1
  dumpstream collect --socket ./socket --out run1 --config acl.json --buffer-bytes 1G
  dumpstream collect --socket ./socket --out s3://bucket/run1 --spill /var/tmp/spill

exit codes: 0 everything is whole, 1 failed, 2 wrong usage, 3 finished but not everything is whole
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--socket", type=Path, metavar="PATH", required=True, help="where processes join; made, and removed"
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


def run(args: Namespace) -> int:
    """Collect until a signal comes, print the summary, and return the exit code."""
    from dumpstream.cli._outside import run_outside  # noqa: PLC0415 - --help need not wait for it

    return run_outside(args, _collect)


async def _collect(args: Namespace) -> int:
    from dumpstream.cli._outside import (  # noqa: PLC0415 - as above
        collect_while,
        raise_descriptor_limit,
        report_outside,
    )

    raise_descriptor_limit()
    collector = await collect_while(args, _listen, args.socket)
    return 1 if collector is None else report_outside(collector, args)


async def _listen(collector: Collector, _signals: Signals) -> None:
    from dumpstream.outside.agent import SOCKET, agent_library  # noqa: PLC0415 - as above

    print(
        f"dumpstream: listening; join with {SOCKET}={printable(str(collector.socket_path))} "
        f"LD_PRELOAD={printable(str(agent_library()))}",
        file=sys.stderr,
        flush=True,
    )
    await collector.stopped()
