"""Upload the files that captures could not upload to their object store.

A capture that ends, or is killed, while its store is away keeps finished files in its spill directory, and
its journal there or in the user's state directory. The command may be repeated; it removes what is uploaded.
Ctrl-C ends it within seconds, and the next upload goes on from there; a second Ctrl-C ends it at once.

Examples:
  dumpstream upload /var/tmp/spill     everything from captures with --spill /var/tmp/spill
  dumpstream upload                    everything from captures without --spill

exit codes: 0 nothing is left to upload, 1 something is, 130 interrupted by Ctrl-C (143 by SIGTERM)
"""

import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import DestinationInUseError, DumpstreamError
from dumpstream.cli._arguments import local_path
from dumpstream.cli._display import count_text, printable, say, size_text, summarise
from dumpstream.cli._exit import BY_SIGNAL, FAILED
from dumpstream.cli._signals import ENDING, obeying
from dumpstream.cli.screen.progress import Progress
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.outboxes import find_outboxes, measure_objects, state_directory, upload_command
from dumpstream.remote.reconciliation import Reconciliation, reconcile
from dumpstream.system.cancellation import finish_in_thread


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        type=local_path,
        nargs="?",
        metavar="DIR",
        help="a --spill directory, or that of one capture in it (default: the user's state directory)",
    )


def run(args: Namespace) -> int:
    return anyio.run(_run, args.directory)


async def _run(directory: Path | None) -> int:
    """Upload until everything is there or a signal comes."""
    received: list[signal.Signals] = []
    with anyio.CancelScope() as scope:

        def end(number: signal.Signals) -> bool:
            received.append(number)
            scope.cancel()
            return False

        async with obeying(ENDING, end):
            return await _upload_all(directory)
    say(f"interrupted; {await run_sync(_left_text, directory)}")
    return BY_SIGNAL + received[0]


async def _upload_all(directory: Path | None) -> int:
    if directory is not None and not await run_sync(directory.is_dir):
        say(f"there is no directory {directory}; name a --spill directory")
        return FAILED
    directory = directory or state_directory()
    paths = await run_sync(find_outboxes, directory)
    failed = False
    for path in paths:
        try:
            summarise(_summary(await _upload(path)), good=True)
        except DestinationInUseError as exc:
            failed = True
            print(printable(f"{path}: process {exc.pid} is using it, and uploads by itself"), file=sys.stderr)
        except DumpstreamError as exc:
            failed = True
            say(f"{path}: {exc}")
    if not paths:
        summarise(f"nothing waits in {directory}", good=True)
    return int(failed)


async def _upload(path: Path) -> Reconciliation:
    def show(so_far: Reconciliation) -> None:
        progress.show(so_far.objects, so_far.bytes)

    outbox = await run_sync(Outbox.open, path)
    try:
        async with Progress("uploading", "object") as progress:
            progress.expect(*await run_sync(measure_objects, path))
            return await reconcile(outbox, show)
    finally:
        await finish_in_thread(outbox.close)
        if outbox.left:
            names = ", ".join(outbox.left)
            say(f"left in {path}, because dumpstream did not make them: {names}")


def _left_text(directory: Path | None) -> str:
    """Return what is left to upload, and the command that goes on."""
    paths = find_outboxes(directory or state_directory())
    if not paths:
        return "nothing is left"
    objects = count_text(sum(measure_objects(path)[0] for path in paths), "object")
    return f"left: {count_text(len(paths), 'capture')}, {objects}; go on with: {upload_command(directory)}"


def _summary(result: Reconciliation) -> str:
    text = (
        f"{result.destination}: uploaded {count_text(result.objects, 'object')}, {size_text(result.bytes)}, "
        f"and {count_text(result.lines, 'line')} of the journal of {count_text(result.files, 'file')}"
    )
    if result.deleted_packs:
        text += f"; deleted {count_text(result.deleted_packs, 'pack')} that the run had not finished"
    return text
