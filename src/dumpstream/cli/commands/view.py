"""Show a run in the browser, while it is captured or afterwards.

The page has a map of steps and operators, coloured by NaN and infinity, magnitude, drift, what was lost, or
the difference from another run; a click opens a tensor. It is served on this machine alone, at an address
with a token, until Ctrl-C. With --export, writes the page as one file that opens without a server and without
a network.

Examples:
  dumpstream view run1
  dumpstream view s3://bucket/run1 --no-browser           prints the address, and opens nothing
  dumpstream view run1 --against run2                     also coloured by the difference from run2
  dumpstream view run1 --export report.html               to attach to a ticket
"""

from __future__ import annotations

import secrets
import webbrowser
from argparse import ArgumentParser, Namespace
from threading import Thread

import anyio

from dumpstream.cli._arguments import add_rank_argument, add_run_argument, local_path, location
from dumpstream.cli._display import count_text, say, summarise
from dumpstream.cli.screen.amounts import bytes_to_measure
from dumpstream.cli.screen.progress import Progress
from dumpstream.reading.outputs import open_output
from dumpstream.view.against import Against, compare_rows
from dumpstream.view.export import export_page
from dumpstream.view.scene import Scene
from dumpstream.view.server import listening, require_server, serve
from dumpstream.view.snapshot import Snapshot
from dumpstream.view.status import status_of
from dumpstream.view.watch import Watch

_LOOPBACK = "127.0.0.1"


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_run_argument(parser)
    add_rank_argument(parser)
    add(
        "--against",
        type=location,
        metavar="RUN",
        help="also colour by the difference from this run, like compare",
    )
    add("--export", type=local_path, metavar="FILE", help="write the page as one file instead of serving it")
    add("--force", action="store_true", help="replace --export if it is there")
    add("--port", type=int, default=0, metavar="N", help="listen there (default: any free port)")
    add("--host", default=_LOOPBACK, help=f"listen on this address of the machine (default: {_LOOPBACK})")
    add("--no-browser", action="store_true", help="open no browser; the address is printed in any case")


def run(args: Namespace) -> int:
    if args.export is not None:
        return _export(args)
    require_server()
    with listening(args.host, args.port) as listener:
        watch = _opened(args)
        # Other users see the arguments of a browser: what is among them opens the page once.
        token, ticket = secrets.token_urlsafe(18), secrets.token_urlsafe(18)
        host = f"[{args.host}]" if ":" in args.host else args.host
        page = f"http://{host}:{listener.getsockname()[1]}/?token="
        if args.host not in {_LOOPBACK, "::1", "localhost"}:
            say("warning: the page can be reached from other machines, and is not encrypted")
        print(f"{page}{token}", flush=True)
        if not args.no_browser:
            # In a thread: some browsers only return when they are closed.
            Thread(target=webbrowser.open, args=[f"{page}{ticket}"], daemon=True).start()
        anyio.run(serve, watch, listener, token, ticket)
    return 0


def _opened(args: Namespace) -> Watch:
    watch = Watch(args.path, args.rank, against=args.against)
    with _reading(args) as progress:
        watch.open(progress.show)
    return watch


def _reading(args: Namespace) -> Progress:
    return Progress("reading", count_all=lambda: (0, bytes_to_measure([args.path], args.rank)))


def _compared(args: Namespace, scene: Scene) -> Against:
    with Progress("comparing", "tensor") as progress:
        return compare_rows(args.path, args.against, scene.subject.trace, args.rank, told=progress.show)


def _export(args: Namespace) -> int:
    with open_output(args.export, replace=args.force, option="--export") as file:
        status = status_of(args.path, args.rank)
        snapshot = Snapshot(args.path, args.rank)
        with _reading(args) as progress:
            scene = snapshot.scene(progress.show)
        against = None if args.against is None else _compared(args, scene)
        file.write(export_page(snapshot, status, against).encode())
    summarise(f"{count_text(len(scene.cells), 'tensor')} in {args.export}", good=True)
    return 0
