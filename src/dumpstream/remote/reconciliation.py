"""Reconciliation: what a capture left in its outbox, uploaded to where it belongs."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError, DestinationInUseError, StoreError
from dumpstream.archive.destination import Destination
from dumpstream.archive.manifest import Manifest
from dumpstream.archive.place import WritingProcess
from dumpstream.archive.rows import JOURNAL, FileRow, Row, UnreadableRow, read_rows
from dumpstream.objectstore.patience import Patience, ask
from dumpstream.remote.completion import complete_directory, complete_store, journal_lines, stored_manifest
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.outboxes import undone
from dumpstream.remote.outboxuploader import OutboxUploader, paths_of
from dumpstream.remote.segments import read_journal
from dumpstream.remote.storelock import StoreLock
from dumpstream.system.cancellation import finish_in_thread
from dumpstream.system.location import Prefix

_UPLOADED_AT_ONCE = 16

_Journalled = tuple[bytes, Row]


@dataclass(slots=True)
class Reconciliation:
    """What was uploaded."""

    destination: str
    files: int = 0  #: that the run had finished
    objects: int = 0  #: that had been waiting
    bytes: int = 0  #: in those
    lines: int = 0  #: of the journal that the destination did not have
    deleted_packs: int = 0  #: that the run had stored, and had not recorded before it was killed


_Progress = Callable[[Reconciliation], None]


async def reconcile(outbox: Outbox, progress: _Progress = lambda _: None) -> Reconciliation:
    """Upload the objects in *outbox* to their stores, and then complete the journal with their lines.

    May be repeated after a failure or a cancellation: an object is stored under the same key again, and a
    line that is there is not added. Once cancelled it ends within seconds, also if a store does not answer.

    Raises:
        StoreError: a store refuses or is away; what was not uploaded stays in the outbox.
        DestinationError: a later run is writing to the capture, or another capture is there by now.
    """
    description = outbox.description
    if description.needs_object:
        raise StoreError(
            f"{outbox.path} is for a store that was given as an object; give its URL to the capture instead"
        )
    result = Reconciliation(str(description.location))
    try:
        await _upload_outbox(outbox, result, progress)
    except OSError as exc:
        name = f"{exc.filename}: " if exc.filename else ""
        problem = f"cannot be uploaded ({name}{exc.strerror or exc}); correct that, and upload again"
        raise DestinationError(outbox.path, problem) from exc
    outbox.needed = False
    return result


async def _upload_outbox(outbox: Outbox, result: Reconciliation, progress: _Progress) -> None:
    location = outbox.description.location
    async with AsyncExitStack() as stack:
        if not isinstance(location, Prefix):
            directory = await run_sync(_open_directory, location, outbox)
            stack.push_async_callback(finish_in_thread, directory.close)
            uploader = await _open_uploader(outbox, stack)
            lines = await _upload_objects(outbox, uploader, result, progress)
            result.lines = await complete_directory(directory, lines)
            read = partial(journal_lines, location / JOURNAL)
            result.deleted_packs = await ask(lambda: uploader.delete_packs(lines, read))
        elif (manifest := await run_sync(_begun, outbox)) is not None:
            uploader = await _open_uploader(outbox, stack)
            store = uploader.stores[location]
            there = await ask(partial(stored_manifest, store))
            if there is not None:
                _refuse_other(location, there, manifest, outbox)
            lines = await _upload_objects(outbox, uploader, result, progress)
            result.lines = await complete_store(store, lines, manifest)
            result.deleted_packs = await ask(
                lambda: uploader.delete_packs(lines, lambda: read_journal(store, list))
            )


def _begun(outbox: Outbox) -> Manifest | None:
    """Return the manifest of a capture that has stored something, or was about to."""
    manifest = outbox.manifest()
    if manifest is None or manifest.processes:
        return manifest
    return manifest if any(True for _ in _journalled(outbox)) else None


async def _open_uploader(outbox: Outbox, stack: AsyncExitStack) -> OutboxUploader:
    """Return the uploader of *outbox*; *stack* holds the locks that it needs.

    Raises:
        DestinationError: another process holds one of them.
    """
    locks, patience = [], Patience()
    for prefix, left in outbox.description.find_locks().items():
        lock = await run_sync(partial(StoreLock, prefix, text=left, patience=patience))
        if left is None:
            with suppress(DestinationError):  # the disk is full: after a kill the next upload has to wait
                await run_sync(outbox.add_lock, lock)
        await stack.enter_async_context(lock.held())
        try:
            await ask(partial(lock.take, left=left))
        except DestinationInUseError as exc:
            raise _in_use(exc) from None
        locks.append(lock)
    uploader = await run_sync(OutboxUploader, outbox, locks, patience)
    stack.push_async_callback(uploader.aclose)
    return uploader


async def _upload_objects(
    outbox: Outbox, uploader: OutboxUploader, result: Reconciliation, progress: _Progress
) -> Sequence[bytes]:
    """Upload the objects, and return the lines of the run, which say where they are."""
    journalled = await _settle_paths(outbox, uploader)
    rows = [row for _, row in journalled if isinstance(row, FileRow)]
    result.files = len(rows)
    remaining = iter(dict.fromkeys(paths_of(rows)))
    while batch := list(islice(remaining, _UPLOADED_AT_ONCE)):
        sizes = await asyncio.gather(*map(uploader.upload, batch), return_exceptions=True)
        for size in sizes:
            if isinstance(size, BaseException):
                raise size
            if size is not None:
                result.objects += 1
                result.bytes += size
        progress(result)
    return [line for line, _ in journalled]


async def _settle_paths(outbox: Outbox, uploader: OutboxUploader) -> Sequence[_Journalled]:
    """Give new keys to objects whose keys are taken by now, and return the lines and rows of the run."""
    journalled = await run_sync(lambda: list(_journalled(outbox)))
    rows = [row for _, row in journalled if isinstance(row, FileRow)]
    if new_paths := await ask(partial(uploader.find_new_paths, rows)):
        journalled = [_moved(line, row, new_paths) for line, row in journalled]
        urls = {uploader.url(old): uploader.url(new) for old, new in new_paths.items()}
        await run_sync(outbox.move, urls, [line for line, _ in journalled])
    return journalled


def _moved(line: bytes, row: Row, new_paths: Mapping[str, str]) -> _Journalled:
    """Return the line and the row with the parts of the row at *new_paths*."""
    if not isinstance(row, FileRow) or new_paths.keys().isdisjoint(paths_of([row])):
        return line, row
    stored = [part._replace(path=new_paths.get(part.path or "", part.path)) for part in row.stored]
    row = row._replace(stored=stored)
    return row.to_line().encode("ascii"), row


def _journalled(outbox: Outbox) -> Iterator[_Journalled]:
    """Yield the complete lines of the journal in *outbox*, without their newlines, and their rows."""
    for line in outbox.read_journal():
        if line.endswith(b"\n"):
            row = next(read_rows([line]))
            if not isinstance(row, UnreadableRow):
                yield line.removesuffix(b"\n"), row


def _open_directory(path: Path, outbox: Outbox) -> Destination:
    """Take the directory *path* of the capture that left *outbox*.

    Raises:
        DestinationError: another process writes there, or it is another capture by now.
    """
    try:
        directory = Destination.open(path, append=True)
    except DestinationInUseError as exc:
        raise _in_use(exc) from None
    with undone(directory.close):
        if (kept := outbox.manifest()) is not None:
            _refuse_other(path, directory.manifest, kept, outbox)
    return directory


def _refuse_other(location: Path | Prefix, there: Manifest, kept: Manifest, outbox: Outbox) -> None:
    if there.created != kept.created:
        raise DestinationError(
            location,
            f"holds another capture by now, or none; if this one is not wanted, delete {outbox.path}",
        )


def _in_use(exc: DestinationInUseError) -> DestinationError:
    holder = WritingProcess(exc.pid, exc.host)
    # In a store, which has no processes, a capture that was killed leaves its lock behind.
    wait = "" if exc.host is None else ", or in two minutes if it was killed"
    return DestinationError(exc.path, f"is being written by {holder}; upload again when that has ended{wait}")
