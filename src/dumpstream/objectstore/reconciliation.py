"""Reconciliation: what a capture left in its outbox, brought to where it belongs."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anyio.to_thread import run_sync

from dumpstream._errors import ObjectMissingError, StoreError
from dumpstream.destination import Destination, explained
from dumpstream.journal import Journal
from dumpstream.manifest import MANIFEST, manifest_text, parse_manifest
from dumpstream.objectstore.courier import SHORT_PATIENCE_S, bring_from
from dumpstream.objectstore.lock import LOCK
from dumpstream.objectstore.prefix import GIVEN, Prefix, as_place
from dumpstream.objectstore.segments import last_segment, merge_segments, read_journal, segment_key
from dumpstream.objectstore.store import Store
from dumpstream.rows import EndRow, FileRow, UnreadableRow, read_rows
from dumpstream.sinks import Fsync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dumpstream.manifest import Manifest
    from dumpstream.objectstore.outbox import Outbox
    from dumpstream.rows import Row

_SEGMENT_LINES = 10_000


@dataclass(slots=True)
class Reconciliation:
    """What was brought."""

    destination: str
    files: int = 0  #: that the run had finished
    objects: int = 0  #: that had been waiting
    bytes: int = 0  #: in those
    lines: int = 0  #: of the journal that the destination did not have


async def reconcile(
    outbox: Outbox, progress: Callable[[Reconciliation], None] | None = None
) -> Reconciliation:
    """Bring the objects in *outbox* to their stores, and then the lines that name them to the journal.

    May be repeated after any failure: an object is stored under the same key again, and a line that is there
    is not added.

    Raises:
        StoreError: a store refuses or is away; what was not brought stays in the outbox.
        DestinationError: the capture's own directory cannot be written.
    """
    place = as_place(outbox.description["destination"])
    manifest = await run_sync(outbox.manifest)
    lines = [line for line, _ in _journalled(outbox.journal_path)]
    if not lines and not (manifest and manifest.processes):
        manifest = None  # it had not begun to store anything
    if isinstance(place, Prefix) and manifest is not None:
        await run_sync(_refuse_other, place, manifest, outbox)
    result = Reconciliation(str(place))
    carrier = _Carrier(outbox, place)
    try:
        for _, row in _journalled(outbox.journal_path):
            if isinstance(row, FileRow):
                result.files += 1
                for path in {part.path for part in row.stored if part.path is not None}:
                    size = await carrier.bring(path)
                    if size is not None:
                        result.objects += 1
                        result.bytes += size
                        if progress is not None:
                            progress(result)
        if isinstance(place, Prefix):
            if manifest is not None:
                result.lines = await _complete_remote(await run_sync(_connect, place), lines, manifest)
        else:
            result.lines = await _complete_local(place, lines)
    finally:
        await carrier.aclose()
    outbox.needed = False
    return result


class _Carrier:
    """Knows which store an object in the outbox is for."""

    def __init__(self, outbox: Outbox, place: Path | Prefix) -> None:
        self._outbox = outbox
        self._prefixes = [Prefix.parse(url) for url in _urls(outbox)]
        self._base = f"{place}/" if isinstance(place, Prefix) else ""
        self._stores: dict[Prefix, Store] = {}

    async def bring(self, path: str) -> int | None:
        """Bring what a row has at *path*, if it is waiting; return its size."""
        url = path if "://" in path else f"{self._base}{path}"
        size = await run_sync(self._outbox.size, url)
        if size is None:
            return None
        for prefix in self._prefixes:
            if url.startswith(f"{prefix}/"):
                if prefix not in self._stores:
                    self._stores[prefix] = await run_sync(_connect, prefix)
                await bring_from(self._outbox, self._stores[prefix], url.removeprefix(f"{prefix}/"), size)
                return size
        raise StoreError(f"{url} is for a store that the outbox does not name; upload it by hand")

    async def aclose(self) -> None:
        for store in self._stores.values():
            await store.aclose()


def _connect(prefix: Prefix) -> Store:
    return Store(prefix, patience_s=SHORT_PATIENCE_S)  # somebody waits in front of a terminal


def _urls(outbox: Outbox) -> Sequence[str]:
    urls = [str(url) for url in outbox.description.get("stores", ())]
    if any(url.startswith(f"{GIVEN}:") for url in urls):
        raise StoreError(
            f"{outbox.path} is for a store that was given as an object; give its URL to the capture instead"
        )
    return urls


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


def _refuse_other(place: Prefix, manifest: Manifest, outbox: Outbox) -> None:
    there = _stored_manifest(_connect(place))
    if there is not None and there.created != manifest.created:
        raise StoreError(
            f"{place} holds another capture by now; if this one is not wanted, delete {outbox.path}"
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
        store.delete(LOCK)

    missing = 0
    if manifest.runs:
        missing = await run_sync(add_missing)
        last = await run_sync(last_segment, store)
        await merge_segments(store, (), first=last + 1, through=last)
    await run_sync(end_run)
    await store.aclose()
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


async def _complete_local(path: Path, lines: Sequence[bytes]) -> int:
    """Bring *lines* to the journal in the directory *path*; return how many were missing."""
    place = await run_sync(lambda: Destination.open(path, append=True))
    try:
        missing = await run_sync(lambda: _missing(lines, _lines_of(place.journal_path)))
        with explained(path):
            async with Journal.open(place.journal_path, fsync=Fsync.CAPTURE) as journal:
                for line in missing:
                    journal.add(line.decode("ascii"))
    finally:
        await run_sync(place.close)
    return len(missing)


def _lines_of(path: Path) -> Iterator[bytes]:
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            yield line.removesuffix(b"\n")
