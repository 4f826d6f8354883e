"""Recovery: stores what a collector that died left in the files of its rings."""

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from anyio.to_thread import run_sync
from xxhash import xxh3_64_hexdigest

from dumpstream._errors import DestinationError, DumpstreamError, NotACaptureError, RingError
from dumpstream._native import SharedRing, read_header
from dumpstream.archive.deletion import names_in, parts_of_rows, series_of
from dumpstream.archive.destination import absolute
from dumpstream.archive.job import is_job
from dumpstream.archive.manifest import PACKS, Configured, Process, read_manifest
from dumpstream.archive.manifestwriter import ManifestWriter
from dumpstream.archive.place import DirectoryPlace
from dumpstream.archive.rows import FILTERED, JOURNAL, BeginRow, EndRow, FileRow, Row, read_journal
from dumpstream.capture import open_request
from dumpstream.chunk import APPEND, Batch, Chunk, Loss
from dumpstream.outside.collectorrequest import sink_below
from dumpstream.outside.process import CapturedProcess
from dumpstream.run.preparation import check_sink, held_destination
from dumpstream.run.request import DEFAULT_SINKS, Request
from dumpstream.sharedsource import SharedSource
from dumpstream.sinks.resources import Resources
from dumpstream.source import RingStatistics
from dumpstream.stages.options import StageOptions
from dumpstream.system.cancellation import finish_in_thread, isolated
from dumpstream.system.location import Prefix, as_location
from dumpstream.system.nofollow import opened_directory, opened_root
from dumpstream.system.removal import remove_file

#: The cause of a loss: the dead collector may have read the beginning of a file.
_CAUSE = "collector_died"
_ENDING = "not known: its collector died first"
_NO_HEADER = 2
_RING = re.compile(r"\d+-[0-9a-f]{8}\.ring", re.ASCII)

#: By file in the journal: lengths, and checksums; instead of a checksum, why the file was not stored.
_Stored = dict[str, set[tuple[int, str | None]]]


async def recover(
    directory: str | os.PathLike[str] | Prefix, *, sinks: Sequence[str] | None = None
) -> list[CapturedProcess]:
    """Store what is left in the rings of the captures in *directory*, and return their processes.

    Each process gets a further run, after the one that was cut off. A process that still runs loses its
    ring, and counts what it cannot deliver. Rings in memory died with their collector.

    Args:
        directory: the directory that the collector wrote to.
        sinks: where files go; pass the sinks of the collector.

    Raises:
        NotACaptureError: *directory* does not hold a capture.
        DestinationError: it is being written, or it is in an object store.
    """
    where = as_location(directory)
    if isinstance(where, Prefix):
        raise DestinationError(
            where, "is in an object store, and rings are recovered into directories; run: dumpstream upload"
        )
    path = await run_sync(absolute, where)
    for sink in sinks or ():
        check_sink(sink, path)
    if await run_sync(is_job, path):
        raise DestinationError(path, "is a job of several hosts; name the directory of the one that died")
    manifest = await run_sync(read_manifest, path)  # raises if it is not a capture
    if manifest.runs:
        raise DestinationError(
            path, "is the capture of one process; name the directory above it that the collector wrote"
        )
    stages = StageOptions.divide({}, directory=path)
    request = Request(destination=path, stages=stages, append=True, of_processes=True)
    async with isolated(held_destination(request, Resources())) as (destination, _):
        return [
            await _recover(destination, record, path, sinks or DEFAULT_SINKS)
            for record in destination.manifest.processes
            if record.ring is not None or record.ended is None
        ]


async def _recover(
    destination: ManifestWriter, record: Process, path: Path, sinks: Sequence[str]
) -> CapturedProcess:
    process = CapturedProcess(record)
    if record.directory:
        try:
            place = await run_sync(DirectoryPlace(path).member, record.directory)
            await _recover_into(process, place, sinks)
        except DumpstreamError as exc:
            process.fail(str(exc))
    if record.ring is not None and not await run_sync(os.path.lexists, record.ring):
        record.ring = None
    await run_sync(destination.end_process, record, record.ending or _ENDING)
    return process


async def _recover_into(process: CapturedProcess, place: DirectoryPlace, sinks: Sequence[str]) -> None:
    ring = process.record.ring
    if ring is None and not await run_sync(_was_cut_off, place):
        return
    packs = await run_sync(_unnamed_packs, place)
    if ring is None:
        process.fail("its ring was in memory, and died with its collector")
    else:
        await _store(process, place, Path(ring), sinks)
    if packs:
        await run_sync(_delete_packs, process, place, packs)
    if ring is not None:
        await run_sync(_delete_ring, Path(ring))


async def _store(process: CapturedProcess, place: DirectoryPlace, file: Path, sinks: Sequence[str]) -> None:
    path = place.path
    ring = await run_sync(_open_ring, file)
    try:
        source = RecoveredSource(ring, await run_sync(_stored_files, place))
        only = await run_sync(_only_before, path)
        request = Request(
            destination=path,
            stages=StageOptions.divide({"only": only}, directory=path, with_ring=False),
            sinks=[sink_below(sink, process.record.directory) for sink in sinks],
            source=source,
            prefix=f"{process.record.directory}/",
            append=True,
        )
        before = await run_sync(_configured_before, path)
        async with isolated(open_request(request, Resources())) as process.capture:
            await process.capture.configure(before)
    finally:
        await finish_in_thread(ring.close)


def _configured_before(path: Path) -> list[Configured]:
    """Return the configurations of the run that was cut off: the rest was dumped by them, too."""
    with suppress(NotACaptureError):
        return [it for run in read_manifest(path).runs[-1:] for it in run.configured]
    return []


def _only_before(path: Path) -> list[str]:
    """Return the patterns of the files that the run which was cut off was to store."""
    found: list[object] = []
    with suppress(NotACaptureError):
        for run in read_manifest(path).runs[-1:]:
            given = run.options.get("only")
            found = given if isinstance(given, list) else []
    return [pattern for pattern in found if isinstance(pattern, str) and pattern]


def _open_ring(file: Path) -> SharedRing:
    """Open the ring in *file*, which a manifest names and which is deleted when it is empty."""
    if not _RING.fullmatch(file.name):
        raise RingError(f"{file} is not called as a collector calls its rings, and is left alone")
    try:
        return SharedRing.recover(str(file))
    except FileNotFoundError as exc:
        raise RingError(f"the ring's file {file} is gone, and what was in it is lost") from exc
    except OSError as exc:
        raise RingError(
            f"the ring's file {file} cannot be read ({exc.strerror}); what was in it is lost, delete it"
        ) from exc


def _read_rows(place: DirectoryPlace) -> Iterator[Row]:
    """Yield the rows of the journal in *place*, if there is one; raises `NotACaptureError`."""
    try:
        yield from read_journal(place.path / JOURNAL)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise NotACaptureError(place.path, f"cannot be read: {JOURNAL}: {exc.strerror}") from exc


def _delete_ring(file: Path) -> None:
    with suppress(FileNotFoundError), opened_root(file.parent) as directory:
        remove_file(file.name, directory)


def _stored_files(place: DirectoryPlace) -> _Stored:
    """Return the finished files of the latest run of the capture in *place*."""
    stored: _Stored = {}
    for row in _read_rows(place):
        if isinstance(row, BeginRow):
            stored.clear()
        elif isinstance(row, FileRow):
            checksum = row.stored[0].xxh3 if len(row.stored) == 1 else None
            checksum = row.not_stored or checksum
            stored.setdefault(row.name, set()).add((row.bytes, checksum))
    return stored


def _delete_packs(process: CapturedProcess, place: DirectoryPlace, names: Sequence[str]) -> None:
    """Delete the packs *names*, which the collector had stored, but not recorded, before it died."""
    with opened_root(place.path) as root, opened_directory(root, [PACKS]) as packs:
        for name in names:
            remove_file(name, packs)
    note = f"deleted packs that its collector had not recorded: {', '.join(names)}"
    process.record.problem = "; ".join(filter(None, (process.record.problem, note)))


def _unnamed_packs(place: DirectoryPlace) -> list[str]:
    """Return the packs that the latest run of the capture in *place* stored and no line of its journal names.

    They are called like others of that run; if the journal names none, the run died before the first. If the
    capture has a spill, return none: lines that wait there may name them.
    """
    names: set[str] = set()
    with suppress(FileNotFoundError), opened_root(place.path) as root:
        names = names_in(PACKS, root)
    unnamed = {name: made for name in names if (made := series_of(f"{PACKS}/{name}")) is not None}
    runs = place.read_manifest().runs if unnamed else []
    if not runs or any(run.options.get("spill") is not None for run in runs):
        return []
    series: set[str] = set()
    for row in _read_rows(place):
        if isinstance(row, BeginRow):
            series.clear()
        for path in parts_of_rows([row], series):
            unnamed.pop(path.removeprefix(f"{PACKS}/"), None)
    in_vain = bool(runs[-1].options.get("pack")) and not series
    return sorted(name for name, made in unnamed.items() if made in series or in_vain)


def _was_cut_off(place: DirectoryPlace) -> bool:
    """Whether the latest run of the capture in *place* was cut off, perhaps before its first line."""
    last = deque((row for row in _read_rows(place) if isinstance(row, BeginRow | EndRow)), maxlen=1)
    return not last or isinstance(last[0], BeginRow)


class RecoveredSource(SharedSource):
    """Reads what is left in *ring*, except for files that the dead collector had *stored*.

    The dead collector may have read the beginnings of files, which are lost. A file that may lack its
    beginning, or whose name was stored with other bytes, is counted as lost, and the rest of it is kept.
    """

    def __init__(self, ring: SharedRing, stored: Mapping[str, set[tuple[int, str | None]]]) -> None:
        super().__init__(ring)
        self.cut_off = _CAUSE
        self._stored = stored
        self._seen: set[str] = set()
        self._doubtful = 0

    def statistics(self) -> RingStatistics:
        """Return the ring's counters, and how many files may lack their beginning."""
        statistics = super().statistics()
        doubtful = {_CAUSE: (self._doubtful, 0)} if self._doubtful else {}
        return statistics._replace(losses={**statistics.losses, **doubtful})

    def _lease(self) -> Batch | None:
        batch = super()._lease()
        if batch is not None:
            batch.chunks = [chunk for chunk in batch.chunks if not self._is_repeated(chunk, batch.losses)]
        return batch

    def _is_repeated(self, chunk: Chunk, losses: list[Loss]) -> bool:
        name = chunk.name
        if name in self._seen:
            return False
        stored = self._stored.get(name)
        whole = chunk.is_last and chunk.offset <= 0 and not chunk.more
        if stored is not None and whole:
            checksums = {FILTERED, xxh3_64_hexdigest(chunk)}
            if not stored.isdisjoint((len(chunk), checksum) for checksum in checksums):
                return True
        self._seen.add(name)
        if stored is not None or (chunk.offset == APPEND and read_header(chunk)[0] == _NO_HEADER):
            self._doubtful += 1
            losses.append(Loss(name, _CAUSE, 0, ended=False))
        return False
