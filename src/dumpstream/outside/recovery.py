"""Recovery: stores what a collector that died left in the files of its rings."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from anyio.to_thread import run_sync
from xxhash import xxh3_64_hexdigest

from dumpstream._errors import DestinationError, DumpstreamError, NotACaptureError, RingError
from dumpstream._native import SharedRing, read_header
from dumpstream.archive.destination import absolute
from dumpstream.archive.manifest import PACKS, Configured, Process, read_manifest
from dumpstream.archive.manifestwriter import ManifestWriter
from dumpstream.archive.rows import JOURNAL, BeginRow, EndRow, FileRow, Row, read_journal
from dumpstream.capture import open_request
from dumpstream.chunk import APPEND, Batch, Chunk, Loss
from dumpstream.outside.collectorrequest import sink_below
from dumpstream.outside.process import CapturedProcess
from dumpstream.outside.sharedsource import SharedSource
from dumpstream.preparation import held_destination
from dumpstream.request import DEFAULT_SINKS, Request
from dumpstream.sinks.resources import Resources
from dumpstream.source import RingStatistics
from dumpstream.stages.options import StageOptions
from dumpstream.system.cancellation import finish_in_thread, isolated
from dumpstream.system.location import Prefix, as_location

#: The cause of a loss: the dead collector may have read the beginning of a file.
_CAUSE = "collector_died"
_ENDING = "not known: its collector died first"
_NO_HEADER = 2

#: By file in the journal: lengths and checksums.
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
    await run_sync(read_manifest, path)  # raises if it is not a capture
    stages = StageOptions.divide({}, directory=path)
    request = Request(destination=path, stages=stages, append=True, of_processes=True)
    async with isolated(held_destination(request, Resources())) as (destination, _):
        return [
            await _recover(destination, record, path / record.directory, sinks or DEFAULT_SINKS)
            for record in destination.manifest.processes
            if record.ring is not None or record.ended is None
        ]


async def _recover(
    destination: ManifestWriter, record: Process, path: Path, sinks: Sequence[str]
) -> CapturedProcess:
    process = CapturedProcess(record)
    if record.ring is None:
        if record.directory != "" and await run_sync(_was_cut_off, path):
            process.fail("its ring was in memory, and died with its collector")
            await _delete_packs(process, path)
    else:
        file = Path(record.ring)
        try:
            await _store(process, path, file, sinks)
            await _delete_packs(process, path)
            await run_sync(partial(file.unlink, missing_ok=True))
        except DumpstreamError as exc:
            process.fail(str(exc))
        if not await run_sync(file.exists):
            record.ring = None
    await run_sync(destination.end_process, record, record.ending or _ENDING)
    return process


async def _store(process: CapturedProcess, path: Path, file: Path, sinks: Sequence[str]) -> None:
    ring = await run_sync(_open_ring, file)
    try:
        source = RecoveredSource(ring, await run_sync(_stored_files, path))
        request = Request(
            destination=path,
            stages=StageOptions.divide({}, directory=path, with_ring=False),
            sinks=[sink_below(sink, process.record.directory) for sink in sinks],
            source=source,
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


def _open_ring(file: Path) -> SharedRing:
    try:
        return SharedRing.recover(str(file))
    except FileNotFoundError as exc:
        raise RingError(f"the ring's file {file} is gone, and what was in it is lost") from exc
    except OSError as exc:
        raise RingError(
            f"the ring's file {file} cannot be read ({exc.strerror}); what was in it is lost, delete it"
        ) from exc


def _read_rows(path: Path) -> Iterator[Row]:
    with suppress(FileNotFoundError):
        yield from read_journal(path / JOURNAL)


def _stored_files(path: Path) -> _Stored:
    """Return the finished files of the latest run of the capture *path*."""
    stored: _Stored = {}
    for row in _read_rows(path):
        if isinstance(row, BeginRow):
            stored.clear()
        elif isinstance(row, FileRow):
            checksum = row.stored[0].xxh3 if len(row.stored) == 1 else None
            stored.setdefault(row.name, set()).add((row.bytes, checksum))
    return stored


async def _delete_packs(process: CapturedProcess, path: Path) -> None:
    """Delete packs that the collector had stored, but not recorded, before it died."""
    unnamed = await run_sync(_unnamed_packs, path)
    for pack in unnamed:
        await run_sync(pack.unlink)
    if unnamed:
        names = ", ".join(pack.name for pack in unnamed)
        note = f"deleted packs that its collector had not recorded: {names}"
        process.record.problem = "; ".join(filter(None, (process.record.problem, note)))


def _unnamed_packs(path: Path) -> list[Path]:
    """Return the packs in the capture *path* that no line of its journal names.

    If it has a spill, return none: lines that wait there may name them.
    """
    packs = sorted((path / PACKS).glob("*.zip"))
    if not packs or any(run.options.get("spill") is not None for run in read_manifest(path).runs):
        return []
    named = {part.path for row in _read_rows(path) if isinstance(row, FileRow) for part in row.stored}
    return [pack for pack in packs if f"{PACKS}/{pack.name}" not in named]


def _was_cut_off(path: Path) -> bool:
    """Whether the latest run of the capture *path* was cut off, perhaps before its first line."""
    rows = [row for row in _read_rows(path) if isinstance(row, BeginRow | EndRow)]
    return not rows or isinstance(rows[-1], BeginRow)


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
        if not self._doubtful:
            return statistics
        return statistics._replace(losses={**statistics.losses, _CAUSE: (self._doubtful, 0)})

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
        if stored is not None and whole and (len(chunk), xxh3_64_hexdigest(chunk)) in stored:
            return True
        self._seen.add(name)
        if stored is not None or (chunk.offset == APPEND and read_header(chunk)[0] == _NO_HEADER):
            self._doubtful += 1
            losses.append(Loss(name, _CAUSE, 0, ended=False))
        return False
