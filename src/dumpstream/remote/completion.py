"""Completion: the journal and manifest of a capture get what only its outbox has."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from anyio.to_thread import run_sync

from dumpstream._errors import ObjectMissingError
from dumpstream.archive.destination import Destination, explained
from dumpstream.archive.journal import Journal
from dumpstream.archive.manifest import MANIFEST, Manifest, manifest_text, parse_manifest
from dumpstream.archive.rows import EndRow, read_rows
from dumpstream.objectstore.patience import ask
from dumpstream.objectstore.store import Store
from dumpstream.remote.segments import last_segment, merge_segments, read_journal, segment_key
from dumpstream.system.durable import Fsync
from dumpstream.system.nofollow import open_regular

_SEGMENT_LINES = 10_000


async def complete_directory(destination: Destination, lines: Sequence[bytes]) -> int:
    """Add to the journal in *destination* those of *lines* that it lacks; return how many."""
    path = destination.journal_path
    missing = await run_sync(lambda: _missing(lines, journal_lines(path)))
    with explained(destination.path):
        async with Journal.open(path, fsync=Fsync.CAPTURE) as journal:
            for line in missing:
                journal.add(line.decode("ascii"))
    return len(missing)


async def complete_store(store: Store, lines: Sequence[bytes], manifest: Manifest) -> int:
    """Add to the journal in *store* those of *lines* that it lacks, and end the run; return how many."""

    def add_missing() -> tuple[int, int]:
        missing = read_journal(store, partial(_missing, lines))
        number = last_segment(store)
        for start in range(0, len(missing), _SEGMENT_LINES):
            number += 1
            block = missing[start : start + _SEGMENT_LINES]
            store.write(segment_key(number), b"\n".join([*block, b""]))
        return len(missing), number

    def end_run() -> None:
        merged = _merge_manifests(stored_manifest(store), manifest, lines)
        store.write(MANIFEST, manifest_text(merged).encode())

    missing = 0
    if manifest.runs:
        missing, last = await ask(add_missing)
        await merge_segments(store, (), first=last + 1, through=last)
    await ask(end_run)
    return missing


def stored_manifest(store: Store) -> Manifest | None:
    """Return the manifest in *store*; blocks."""
    try:
        return parse_manifest(store.prefix, store.get(MANIFEST))
    except ObjectMissingError:
        return None


def journal_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of the journal at *path*, with their newlines; blocks."""
    with suppress(FileNotFoundError), os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        yield from file


def _missing(lines: Sequence[bytes], there: Iterator[bytes]) -> list[bytes]:
    """Return the *lines* that are not *there*; a line that comes twice must be there twice."""
    counts = Counter(line.removesuffix(b"\n") for line in there)
    missing = []
    for line in lines:
        if counts[line]:
            counts[line] -= 1
        else:
            missing.append(line)
    return missing


def _merge_manifests(there: Manifest | None, kept: Manifest, lines: Sequence[bytes]) -> Manifest:
    """Return the manifest that is *there* with what only the *kept* one and the *lines* tell."""
    if there is not None:
        runs = {run.run: run for run in [*kept.runs, *there.runs]}
        processes = {
            (process.directory, process.pid, str(process.started)): process
            for process in [*there.processes, *kept.processes]
        }
        # If another collector has added processes since, that one says whether it has ended.
        ended = kept.ended if len(processes) == len(kept.processes) else there.ended
        kept = replace(
            there, runs=[runs[run] for run in sorted(runs)], processes=[*processes.values()], ended=ended
        )
    ends = {row.run: row for row in read_rows(lines) if isinstance(row, EndRow)}
    for run in kept.runs:
        if run.run in ends:
            run.ended, run.outcome = ends[run.run].time, str(ends[run.run].outcome)
    return kept
