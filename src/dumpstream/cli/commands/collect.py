"""Capture every process that joins, as a service.

Listens at a socket. A process joins with DUMPSTREAM_SOCKET and LD_PRELOAD in its environment, or by calling
dumpstream.attach(). The first Ctrl-C or SIGTERM ends the captures and keeps everything that came; the second
aborts. Shells let the background jobs of a script ignore Ctrl-C (SIGINT): end those with SIGTERM.

Examples:
  dumpstream collect --socket /run/user/1000/dumpstream --out run1
  dumpstream collect --socket ./socket --out run1 --config acl.json --buffer-bytes 1G
  dumpstream collect --socket ./socket --out s3://bucket/run1 --spill /var/tmp/spill

exit codes: 0 everything is whole, 1 failed, 2 wrong usage, 3 finished but not everything is whole
"""

import os
import signal
from argparse import ArgumentParser, Namespace

from dumpstream.cli._arguments import add_out_argument, local_path
from dumpstream.cli._display import say
from dumpstream.cli._loop import run_async
from dumpstream.cli._options import add_capture_arguments
from dumpstream.cli._outside import collect_while, raise_descriptor_limit, report_outside
from dumpstream.cli._signals import CaptureSignals
from dumpstream.outside.agent import SOCKET, agent_library
from dumpstream.outside.collector import Collector


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--socket",
        type=local_path,
        metavar="PATH",
        required=True,
        help="where processes join; made, and removed at the end",
    )
    add_out_argument(parser, "the directory or URL for the captures")
    add(
        "--config", type=local_path, metavar="FILE", help="the dump configuration (acl.json) of every process"
    )
    add_capture_arguments(parser)
    add("--json", action="store_true", help="print the report as one JSON object")


def run(args: Namespace) -> int:
    return run_async(_collect, args)


async def _collect(args: Namespace) -> int:
    raise_descriptor_limit()
    collector = await collect_while(args, _listen, args.socket)
    return 1 if collector is None else report_outside(collector, args)


async def _listen(collector: Collector, _signals: CaptureSignals) -> None:
    say(f"listening; join with {SOCKET}={collector.socket_path} LD_PRELOAD={agent_library()}")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        say(f"SIGINT is ignored, as in background jobs of scripts; `kill {os.getpid()}` ends the captures")
    await collector.stopped()
