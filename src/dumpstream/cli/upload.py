"""Bring to an object store what captures had to leave behind.

A capture that ends, or is killed, while its store is away keeps the files that it had finished in its spill
directory, and its journal there or in the user's state directory. May be repeated; what has been brought is
removed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dumpstream.cli._display import ProgressLine, count_text, printable, size_text

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dumpstream.objectstore.reconciliation import Reconciliation

_EPILOG = """\
examples:
  dumpstream upload /var/tmp/spill     everything that captures with --spill /var/tmp/spill left
  dumpstream upload                    what captures without --spill left

exit codes: 0 everything was brought, or there was nothing; 1 something was not
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "directory",
        type=Path,
        nargs="?",
        metavar="DIR",
        help="a --spill directory, or one capture's in it (default: the user's state directory)",
    )


def run(args: Namespace) -> int:
    """Upload, print a line for each capture, and return the exit code."""
    import anyio  # noqa: PLC0415 - --help need not wait for it

    return anyio.run(_upload_all, args.directory)


async def _upload_all(directory: Path | None) -> int:
    from anyio.to_thread import run_sync  # noqa: PLC0415 - as above

    from dumpstream._errors import DestinationInUseError, DumpstreamError  # noqa: PLC0415
    from dumpstream.objectstore.outbox import find_outboxes, state_directory  # noqa: PLC0415

    if directory is not None and not await run_sync(directory.is_dir):
        print(f"dumpstream: there is no directory {directory}; name a --spill directory", file=sys.stderr)
        return 1
    directory = directory or state_directory()
    paths = await run_sync(lambda: list(find_outboxes(directory)))
    failed = False
    for path in paths:
        try:
            print(_summary(await _upload(path)))
        except DestinationInUseError as exc:
            failed = True
            print(f"{path}: process {exc.pid} is using it, and uploads by itself", file=sys.stderr)
        except DumpstreamError as exc:
            failed = True
            print(f"dumpstream: {path}: {printable(str(exc))}", file=sys.stderr)
    if not paths:
        print(f"nothing waits in {directory}")
    return int(failed)


async def _upload(path: Path) -> Reconciliation:
    from anyio.to_thread import run_sync  # noqa: PLC0415 - as above

    from dumpstream.objectstore.outbox import Outbox  # noqa: PLC0415
    from dumpstream.objectstore.reconciliation import reconcile  # noqa: PLC0415

    line = ProgressLine()
    outbox = await run_sync(Outbox.open, path)
    try:
        return await reconcile(
            outbox,
            lambda so_far: line.show(f"{count_text(so_far.objects, 'object')}, {size_text(so_far.bytes)}"),
        )
    finally:
        line.clear()
        await run_sync(outbox.close)


def _summary(result: Reconciliation) -> str:
    text = (
        f"{result.destination}: brought {count_text(result.objects, 'object')}, {size_text(result.bytes)}, "
        f"and {count_text(result.lines, 'line')} of the journal of {count_text(result.files, 'file')}"
    )
    if result.deleted_packs:
        text += f"; deleted {count_text(result.deleted_packs, 'pack')} that the run had not finished"
    return text
