"""Reconciliation: what a capture left in its outbox, uploaded to where it belongs."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError, DestinationInUseError, ObjectMissingError
from dumpstream.archive.destination import Destination, explained
from dumpstream.archive.journal import Journal
from dumpstream.archive.manifest import MANIFEST, manifest_text, parse_manifest
from dumpstream.archive.place import WritingProcess
from dumpstream.archive.rows import JOURNAL, EndRow, FileRow, UnreadableRow, file_row, read_rows
from dumpstream.objectstore.patience import Patience, ask
from dumpstream.remote.outboxuploader import OutboxUploader
from dumpstream.remote.segments import last_segment, merge_segments, read_journal, segment_key
from dumpstream.remote.storelock import StoreLock
from dumpstream.system.cancellation import finish_in_thread
from dumpstream.system.durable import Fsync
from dumpstream.system.location import Prefix, as_location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dumpstream.archive.manifest import Manifest
    from dumpstream.archive.rows import Row
    from dumpstream.objectstore.store import Store
    from dumpstream.remote.outbox import Outbox

_SEGMENT_LINES = 10_000
_BROUGHT_AT_ONCE = 16


@dataclass(slots=True)
class Reconciliation:
    """What was uploaded."""

    destination: str
    files: int = 0  #: that the run had finished
    objects: int = 0  #: that had been waiting
    bytes: int = 0  #: in those
    lines: int = 0  #: of the journal that the destination did not have
    deleted_packs: int = (
        0  #: that the run had stored and not written down, so that none of their files counts
    )


async def reconcile(
    outbox: Outbox, progress: Callable[[Reconciliation], None] | None = None
) -> Reconciliation:
    """Bring the objects in *outbox* to their stores, and then the lines that name them to the journal.

    May be repeated after any failure, and if it was cancelled: an object is stored under the same key again,
    and a line that is there is not added. A cancelled one ends within seconds, also if a store says nothing.

    Raises:
        StoreError: a store refuses or is away; what was not uploaded stays in the outbox.
        DestinationError: the capture cannot be written: a later run does, or it is another one by now.
    """
    place = as_location(outbox.description["destination"])
    result = Reconciliation(str(place))
    async with AsyncExitStack() as stack:
        if not isinstance(place, Prefix):
            directory = await run_sync(_open_directory, place, outbox)
            stack.push_async_callback(finish_in_thread, directory.close)
            uploader = await _open_uploader(outbox, place, stack)
            lines = await _bring_objects(outbox, uploader, result, progress)
            result.lines = await _complete_local(directory, lines)
            result.deleted_packs = await ask(
                lambda: uploader.delete_packs(lines, lambda: list(_lines_of(place / JOURNAL)))
            )
        elif (manifest := await run_sync(_begun, outbox)) is not None:
            uploader = await _open_uploader(outbox, place, stack)
            store = uploader.store_at(place)
            there = await ask(partial(_stored_manifest, store))
            if there is not None:
                _refuse_other(place, there, manifest, outbox)
            lines = await _bring_objects(outbox, uploader, result, progress)
            result.lines = await _complete_remote(store, lines, manifest)
            result.deleted_packs = await ask(
                lambda: uploader.delete_packs(lines, lambda: read_journal(store, list))
            )
    outbox.needed = False
    return result


def _begun(outbox: Outbox) -> Manifest | None:
    """Return the manifest of a run that has begun to store anything."""
    manifest = outbox.manifest()
    if manifest is None or manifest.processes:
        return manifest
    return manifest if any(True for _ in _journalled(outbox.journal_path)) else None


async def _open_uploader(outbox: Outbox, place: Path | Prefix, stack: AsyncExitStack) -> OutboxUploader:
    """Return what brings the objects of *outbox*, and have the locks of their places until *stack* is left.

    Raises:
        DestinationError: somebody else has one of them.
    """
    locks, patience = [], Patience()
    for url, left in _find_locks(outbox, place).items():
        prefix = Prefix.parse(url)
        lock = await run_sync(partial(StoreLock, prefix, text=left, patience=patience))
        if left is None:
            with suppress(DestinationError):  # the disk is full: whoever goes on if this is killed must wait
                await run_sync(outbox.add_lock, lock)
        await stack.enter_async_context(lock.held())
        try:
            await ask(partial(lock.take, left=left))
        except DestinationInUseError as exc:
            raise _in_use(exc) from None
        locks.append(lock)
    uploader = await run_sync(OutboxUploader, outbox, place, locks, patience)
    stack.push_async_callback(uploader.aclose)
    return uploader


def _find_locks(outbox: Outbox, place: Path | Prefix) -> dict[str, str | None]:
    """Return the places to lock, each with what the lock says of a run that is known to be gone."""
    locks: dict[str, str | None] = {place.url: None} if isinstance(place, Prefix) else {}
    described = outbox.description.get("locks")
    if isinstance(described, dict):
        locks |= {str(url): left if isinstance(left, str) else None for url, left in described.items()}
    return {url: locks[url] for url in sorted(locks)}


async def _bring_objects(
    outbox: Outbox,
    uploader: OutboxUploader,
    result: Reconciliation,
    progress: Callable[[Reconciliation], None] | None,
) -> Sequence[bytes]:
    """Bring the objects, and return the lines of the run, which say where they are."""
    lines = await _settle_paths(outbox, uploader)
    paths: dict[str, None] = {}
    for row in read_rows(lines):
        if isinstance(row, FileRow):
            result.files += 1
            paths |= dict.fromkeys(part.path for part in row.stored if part.path is not None)
    remaining = iter(paths)
    while batch := list(islice(remaining, _BROUGHT_AT_ONCE)):
        sizes = await asyncio.gather(*map(uploader.upload, batch), return_exceptions=True)
        for size in sizes:
            if isinstance(size, BaseException):
                raise size
            if size is not None:
                result.objects += 1
                result.bytes += size
        if progress is not None:
            progress(result)
    return lines


async def _settle_paths(outbox: Outbox, uploader: OutboxUploader) -> Sequence[bytes]:
    """Give objects whose keys are taken by now new ones, and return the lines of the run."""
    journalled = await run_sync(lambda: list(_journalled(outbox.journal_path)))
    rows = [row for _, row in journalled if isinstance(row, FileRow)]
    new_paths = await ask(partial(uploader.find_new_paths, rows))
    if not new_paths:
        return [line for line, _ in journalled]
    lines = [
        _moved(row, new_paths).encode("ascii")
        if isinstance(row, FileRow) and any(part.path in new_paths for part in row.stored)
        else line
        for line, row in journalled
    ]
    urls = {uploader.url(old): uploader.url(new) for old, new in new_paths.items()}
    await run_sync(outbox.move, urls, lines)
    return lines


def _moved(row: FileRow, new_paths: Mapping[str, str]) -> str:
    """Return the line of *row* with its parts at *new_paths*."""
    stored = [part._replace(path=new_paths.get(part.path or "", part.path)) for part in row.stored]
    return file_row(
        row.name,
        row.bytes,
        row.chunks,
        row.verdict,
        stored,
        cause=row.cause,
        lost_bytes=row.lost_bytes,
        missing=row.missing,
        duplicates=row.duplicates,
    )


def _journalled(path: Path) -> Iterator[tuple[bytes, Row]]:
    """Yield the lines that are all there, without their newlines, and what they say."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                row = next(read_rows([line]))
                if not isinstance(row, UnreadableRow):
                    yield line.removesuffix(b"\n"), row


def _missing(lines: Sequence[bytes], there: Iterator[bytes]) -> list[bytes]:
    """Return the *lines* that are not *there*, as often as they are not."""
    counts = Counter(there)
    missing = []
    for line in lines:
        if counts[line]:
            counts[line] -= 1
        else:
            missing.append(line)
    return missing


def _refuse_other(place: Path | Prefix, there: Manifest, kept: Manifest, outbox: Outbox) -> None:
    if there.created != kept.created:
        raise DestinationError(
            place, f"holds another capture by now, or none; if this one is not wanted, delete {outbox.path}"
        )


def _stored_manifest(store: Store) -> Manifest | None:
    try:
        return parse_manifest(store.prefix, store.get(MANIFEST))
    except ObjectMissingError:
        return None


async def _complete_remote(store: Store, lines: Sequence[bytes], manifest: Manifest) -> int:
    """Bring *lines* to the journal in *store*, merge it and end the run; return how many were missing."""

    def add_missing() -> int:
        missing = read_journal(store, lambda there: _missing(lines, (it.removesuffix(b"\n") for it in there)))
        number = last_segment(store)
        for start in range(0, len(missing), _SEGMENT_LINES):
            number += 1
            block = missing[start : start + _SEGMENT_LINES]
            store.write(segment_key(number), b"\n".join([*block, b""]))
        return len(missing)

    def end_run() -> None:
        merged = _merge_manifests(_stored_manifest(store), manifest, lines)
        store.write(MANIFEST, manifest_text(merged).encode())

    missing = 0
    if manifest.runs:
        missing = await ask(add_missing)
        last = await ask(partial(last_segment, store))
        await merge_segments(store, (), first=last + 1, through=last)
    await ask(end_run)
    return missing


def _merge_manifests(there: Manifest | None, kept: Manifest, lines: Sequence[bytes]) -> Manifest:
    """Return the manifest that is *there* with what only the one that was *kept*, and its journal, know."""
    if there is not None:
        runs = {run.run: run for run in [*kept.runs, *there.runs]}
        processes = {
            (process.directory, process.pid, process.started): process
            for process in [*there.processes, *kept.processes]
        }
        kept = replace(there, runs=[runs[run] for run in sorted(runs)], processes=[*processes.values()])
    ends = {row.run: row for row in read_rows(lines) if isinstance(row, EndRow)}
    for run in kept.runs:
        if run.run in ends:
            run.ended, run.outcome = ends[run.run].time, str(ends[run.run].outcome)
    return kept


def _open_directory(path: Path, outbox: Outbox) -> Destination:
    """Take the directory *path* of the capture that left *outbox*.

    Raises:
        DestinationError: somebody else writes there, or it is another capture by now.
    """
    try:
        directory = Destination.open(path, append=True)
    except DestinationInUseError as exc:
        raise _in_use(exc) from None
    try:
        if (kept := outbox.manifest()) is not None:
            _refuse_other(path, directory.manifest, kept, outbox)
    except BaseException:
        directory.close()
        raise
    return directory


def _in_use(exc: DestinationInUseError) -> DestinationError:
    holder = WritingProcess(exc.pid, exc.host)
    # In a store, which has no processes, a capture that was killed leaves its lock behind.
    wait = "" if exc.host is None else ", or in two minutes if it was killed"
    return DestinationError(exc.path, f"is being written by {holder}; upload again when that has ended{wait}")


async def _complete_local(place: Destination, lines: Sequence[bytes]) -> int:
    """Bring *lines* to the journal in the directory *place*; return how many were missing."""
    missing = await run_sync(lambda: _missing(lines, _lines_of(place.journal_path)))
    with explained(place.path):
        async with Journal.open(place.journal_path, fsync=Fsync.CAPTURE) as journal:
            for line in missing:
                journal.add(line.decode("ascii"))
    return len(missing)


def _lines_of(path: Path) -> Iterator[bytes]:
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            yield line.removesuffix(b"\n")
