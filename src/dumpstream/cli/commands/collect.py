"""A collector as a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dumpstream.cli._display import say
from dumpstream.cli._loop import run_async
from dumpstream.cli._outside import collect_while, raise_descriptor_limit, report_outside
from dumpstream.outside.agent import SOCKET, agent_library

if TYPE_CHECKING:
    from argparse import Namespace

    from dumpstream.cli._signals import CaptureSignals
    from dumpstream.outside.collector import Collector


def run(args: Namespace) -> int:
    return run_async(_collect, args)


async def _collect(args: Namespace) -> int:
    raise_descriptor_limit()
    collector = await collect_while(args, _listen, args.socket)
    return 1 if collector is None else report_outside(collector, args)


async def _listen(collector: Collector, _signals: CaptureSignals) -> None:
    say(f"listening; join with {SOCKET}={collector.socket_path} LD_PRELOAD={agent_library()}")
    await collector.stopped()
