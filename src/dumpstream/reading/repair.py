"""Repair: what a killed run left in a capture without a line of the journal is removed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError, NotACaptureError
from dumpstream.archive.destination import absolute
from dumpstream.archive.manifest import MANIFEST, PROFILE, Manifest
from dumpstream.archive.place import Listed, Place
from dumpstream.archive.rows import BeginRow, EndRow, FileRow, Outcome, UnreadableRow
from dumpstream.archive.storednames import is_file_path, pack_token
from dumpstream.objectstore.patience import ask
from dumpstream.objectstore.store import Store
from dumpstream.reading.collection import Collection
from dumpstream.reading.removal import Removal, removing
from dumpstream.reading.stored import open_place
from dumpstream.remote.outboxes import find_waiting, spills_of, upload_command
from dumpstream.remote.segments import last_segment, merged_through
from dumpstream.remote.storelock import STORE_LOCK
from dumpstream.system.location import Prefix
from dumpstream.system.lock import LOCK, shared_folders
from dumpstream.system.paths import PathSet

_MARKS = {MANIFEST, LOCK, STORE_LOCK}


async def repair(
    location: Path | Prefix,
    removed: Callable[[str], None],
    *,
    outbox_lost: bool = False,
    hosts: Iterable[str] = (),
) -> None:
    """Remove dump files and packs that no line of the journal names, and drafts.

    Only files are removed that have a name as dumpstream gives it, and dump files and packs only if a run was
    interrupted. What is in another capture further inside stays, and so does what is in a folder to which the
    sink of another capture has written. The captures of several processes, and of several hosts, are repaired
    one by one.

    Args:
        location: of the capture, or of those of several processes, or of a job.
        removed: called, in another thread, with the path of each file that is gone.
        outbox_lost: remove also finished files whose lines may wait in an outbox on another machine.
        hosts: only these of a job; by default all.

    Raises:
        NotACaptureError: there is no capture.
        DestinationError: it is being written, or its journal does not name everything that it stored.
        StoreError: the store refuses, or does not answer.
        DumpstreamError: there is none of the *hosts*.
    """
    place = await run_sync(open_place, location)
    captures = await ask(partial(Collection.open, location, hosts=hosts))
    if captures.job is not None:
        for host in captures.hosts:
            if host.manifest is not None:
                below = partial(_below, removed, str(host.name))
                await repair(host.place.path, below, outbox_lost=outbox_lost)
        return
    async with removing(place) as removal:
        repairer = _Repairer(place, removal, removed, outbox_lost=outbox_lost)
        manifest = await ask(place.read_manifest)
        if manifest.runs:
            await ask(partial(repairer.repair_capture, manifest))
            return
        if any(process.ring is not None for process in manifest.processes):
            raise DestinationError(place.path, "has files to recover; run first: dumpstream recover")
        directories = {process.directory for process in manifest.processes}
        await ask(partial(repairer.repair_root, directories))
        for directory in sorted(filter(None, directories)):
            with suppress(NotACaptureError):  # the process had no capture yet
                await repair(
                    await run_sync(_member, place, directory),
                    partial(_below, removed, directory),
                    outbox_lost=outbox_lost,
                )


def _member(place: Place, directory: str) -> Path | Prefix:
    return place.member(directory).path


def _below(removed: Callable[[str], None], directory: str, path: str) -> None:
    removed(f"{directory}/{path}")


class _Repairer:
    """Repairs what is at *place*, with its *removal*. Every call blocks."""

    def __init__(
        self, place: Place, removal: Removal, removed: Callable[[str], None], *, outbox_lost: bool
    ) -> None:
        self._place, self._removal, self._removed = place, removal, removed
        self._outbox_lost = outbox_lost

    def repair_capture(self, manifest: Manifest) -> None:
        """Remove what no line of the capture's journal names."""
        place = self._place
        profiles = {PROFILE} if manifest.profiled else set[str]()
        with PathSet() as named:
            journal = _read(place, named)
            unnamed = _outside_others([it for it in place.list(profiles) if it.path not in named])
        extra: list[str] = []
        if any(run.run not in journal.finished for run in manifest.runs):
            ours = [it.path for it in unnamed if is_file_path(it.path) or pack_token(it.path)]
            extra = _outside_shared(place.path, ours)
        if extra:
            _refuse_waiting(place.path, manifest, journal, outbox_lost=self._outbox_lost)
        self._remove([it.path for it in unnamed if it.leftover] + extra)

    def repair_root(self, directories: Container[str]) -> None:
        """Remove drafts, except in the *directories* of processes; nothing else is ever stored there."""
        listed = _outside_others([*self._place.list(without=directories)])
        self._remove([it.path for it in listed if it.leftover])

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self._removal.remove(path):
                self._removed(path)


def _outside_others(listed: Sequence[Listed]) -> list[Listed]:
    """Return those of *listed* that are not in another capture, which has a manifest or a lock."""
    marked = (it.path.rpartition("/") for it in listed)
    others = tuple({f"{folder}/" for folder, _, name in marked if folder and name in _MARKS})
    return [it for it in listed if not it.path.startswith(others)]


def _outside_shared(location: Path | Prefix, paths: Iterable[str]) -> list[str]:
    """Return those of *paths* that no sink of another capture can have stored."""
    shared = set[PurePosixPath]() if isinstance(location, Prefix) else shared_folders(location)
    return [path for path in paths if shared.isdisjoint(PurePosixPath(path).parents)]


@dataclass(slots=True)
class _Journal:
    """What the journal of a capture says."""

    begun: set[int] = field(default_factory=set)  #: the runs that have a first line
    finished: set[int] = field(default_factory=set)  #: the runs that came to their proper end


def _read(place: Place, named: PathSet) -> _Journal:
    """Return what the journal at *place* says, and add the paths of everything that it names to *named*.

    Raises:
        DestinationError: some lines cannot be read, which may name any of the files.
    """
    location = place.path
    base = f"{absolute(location) if isinstance(location, Path) else location}/"
    journal = _Journal()
    for row in place.open_journal().rows():
        if isinstance(row, FileRow):
            for part in row.stored:
                if part.path is not None:
                    named.add(str(PurePosixPath(part.path.removeprefix(base))))
        elif isinstance(row, BeginRow):
            journal.begun.add(row.run)
        elif isinstance(row, EndRow) and row.outcome is Outcome.FINISHED:
            journal.finished.add(row.run)
        elif isinstance(row, UnreadableRow) and not row.torn:
            problem = f"has a journal whose line {row.line} cannot be read; restore it from a copy first"
            raise DestinationError(location, problem)
    return journal


def _refuse_waiting(
    location: Path | Prefix, manifest: Manifest, journal: _Journal, *, outbox_lost: bool
) -> None:
    """Raise `DestinationError` if lines that may name any of the files wait, or may wait, in an outbox."""
    if (found := find_waiting(location, manifest)) is not None:
        outbox, directory = found
        raise DestinationError(
            location, f"has lines that wait in {outbox}; first run: {upload_command(directory)}"
        )
    if isinstance(location, Prefix):
        store = Store(location)
        unmerged = last_segment(store) > merged_through(store)
        unknown = unmerged or any(run.run not in journal.begun for run in manifest.runs)
    else:
        unknown = any(not spill.exists() for spill in spills_of(manifest))
    if unknown and not outbox_lost:
        raise DestinationError(
            location,
            "may have lines that wait where it was captured; run there first: dumpstream upload "
            "(or add --outbox-lost if its local directory is gone)",
        )
