"""Verification: everything a capture says it has, read again and compared."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from dumpstream._errors import PartError
from dumpstream.lock import LOCK
from dumpstream.manifest import MANIFEST, PROFILE, TEMPORARY
from dumpstream.rows import JOURNAL, Outcome
from dumpstream.sinks._tree import is_temporary
from dumpstream.stored import State, is_readable
from dumpstream.text import TEXT_SUFFIX
from dumpstream.verdict import HeaderReader, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator
    from pathlib import Path

    from dumpstream.collection import Collection, Member
    from dumpstream.rows import FileRow, StoredPart
    from dumpstream.stored import StoredCapture

_BATCH_ROWS = 64
_BATCH_BYTES = 4 << 20
_LONGEST_HEADER = 16 << 20

_MEANING = {
    Verdict.LOST: "bytes of it were lost",
    Verdict.GAP: "ranges of it never came; `extract --sparse` places what is behind them",
    Verdict.OVERLAP: "a range of it came twice, with different bytes; the first are kept",
    Verdict.NEVER_CLOSED: "its last chunk never came, and its header does not vouch for its length",
    Verdict.SHORT: "it has fewer bytes than its header promises",
    Verdict.LONG: "it has more bytes than its header promises",
}


class Kind(StrEnum):
    """What is wrong."""

    RUNNING = "running"  #: more is to come
    INTERRUPTED = "interrupted"  #: the journal has no end
    REFUSED = "refused"  #: a process was not captured
    FAILED = "failed"  #: a run ended early
    JOURNAL = "journal"  #: lines that cannot be read
    LOSS = "loss"  #: chunks that were lost
    VERDICT = "verdict"  #: a file that is not whole
    MISSING = "missing"  #: a stored file that is not there
    DAMAGED = "damaged"  #: a stored file that is not what was stored
    EXTRA = "extra"  #: a file that the journal does not know


class Problem(NamedTuple):
    """One reason why not everything is whole."""

    kind: Kind
    subject: str  #: the name of a file, or a path in the capture
    detail: str

    def below(self, prefix: str) -> Problem:
        """Return it as a problem of one of several captures."""
        return self._replace(subject=prefix + self.subject)


@dataclass(slots=True)
class Verification:
    """What came out."""

    state: State
    files: int = 0
    parts: int = 0  #: read again
    bytes: int = 0  #: original bytes among them
    skipped_parts: int = 0  #: in sinks that cannot be read back
    problems: list[Problem] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)  #: what unfinished writes left; harmless

    @property
    def whole(self) -> bool:
        """Whether everything is there and as it was."""
        return not self.problems


def verify(
    capture: StoredCapture,
    *,
    workers: int | None = None,
    progress: Callable[[Verification], None] | None = None,
) -> Verification:
    """Read every stored file of *capture* again, on *workers* threads (as many as there are cores).

    *progress* is called now and then with what is known so far.
    """
    result = Verification(capture.state)
    _verify_member(capture, "", result, workers, progress)
    return result


def verify_collection(
    collection: Collection,
    *,
    workers: int | None = None,
    progress: Callable[[Verification], None] | None = None,
) -> Verification:
    """Do as `verify` with every member of *collection*, and look for what belongs to none of them."""
    result = Verification(State.FINISHED)
    states = []
    for member in collection.members():
        if member.capture is None:
            result.problems.append(_absence(member))
        else:
            states.append(member.capture.state)
            _verify_member(member.capture, member.prefix, result, workers, progress)
    result.state = collection.state(states)
    if collection.processes is not None and len(collection.processes) == len(collection.manifest.processes):
        _verify_root(collection, result)
    return result


def _absence(member: Member) -> Problem:
    process = member.process
    assert process is not None
    kind = Kind.INTERRUPTED if process.directory else Kind.REFUSED
    subject = process.directory or f"process {process.pid}"
    return Problem(kind, subject, member.problem or "has no capture")


def _verify_member(
    capture: StoredCapture,
    prefix: str,
    result: Verification,
    workers: int | None,
    progress: Callable[[Verification], None] | None,
) -> None:
    """Add what comes out for *capture* to *result*, under names with the *prefix*."""
    result.files += len(capture.files)
    result.problems += _problems_of_capture(capture, prefix)
    rows = (row for file in capture.files for row in file.rows)
    stop = threading.Event()
    executor = ThreadPoolExecutor(workers or os.cpu_count())
    try:
        for batch in executor.map(lambda rows: _check_rows(capture, rows, stop), _batches(rows)):
            result.parts += batch.parts
            result.bytes += batch.bytes
            result.skipped_parts += batch.skipped_parts
            result.problems += [problem.below(prefix) for problem in batch.problems]
            if progress is not None:
                progress(result)
    finally:
        stop.set()
        executor.shutdown(cancel_futures=True)
    # While the capture runs there always are some: files being written, and rows that are about to be.
    if not capture.running:
        known = {part.path for file in capture.files for row in file.rows for part in row.stored}
        profiles = {PROFILE} if capture.manifest.profiled else ()
        _find_unknown(capture.path, prefix, {*known, MANIFEST, JOURNAL, LOCK}, result, without=profiles)


def _verify_root(collection: Collection, result: Verification) -> None:
    """Add what is wrong with the directory that the captures of the processes are in."""
    if collection.pid is not None:
        detail = f"process {collection.pid} is still capturing; verify again when it ends"
        result.problems.append(Problem(Kind.RUNNING, str(collection.path), detail))
        return
    own = {process.directory for process in collection.manifest.processes}
    _find_unknown(collection.path, "", {MANIFEST, LOCK}, result, without=own)


def _batches(rows: Iterable[FileRow]) -> Iterator[list[FileRow]]:
    """Yield *rows* in batches worth a hand-over to a thread: many small files, or few large ones."""
    batch: list[FileRow] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += row.bytes
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _problems_of_capture(capture: StoredCapture, prefix: str) -> Iterator[Problem]:
    subject = str(capture.path)
    if capture.running:
        yield Problem(
            Kind.RUNNING, subject, f"process {capture.pid} is still capturing; verify again when it ends"
        )
    if capture.interrupted:
        yield Problem(
            Kind.INTERRUPTED,
            subject,
            "a run was stopped before its end; what it had not finished is not there",
        )
    for run, outcome in capture.outcomes.items():
        if outcome not in {None, Outcome.FINISHED}:
            yield Problem(
                Kind.FAILED, subject, f"run {run} ended early ({outcome}); what came later is not there"
            )
    if capture.unreadable_lines:
        count, first = len(capture.unreadable_lines), capture.unreadable_lines[0]
        detail = f"{count} unreadable lines, the first is line {first}; restore a copy"
        yield Problem(Kind.JOURNAL, prefix + JOURNAL, detail)
    for loss in capture.losses:
        detail = (
            f"{loss.chunks} chunks, {loss.bytes} bytes were lost; files known to miss some are marked lost"
        )
        yield Problem(Kind.LOSS, prefix + loss.cause, detail)


def _check_rows(capture: StoredCapture, rows: list[FileRow], stop: threading.Event) -> Verification:
    result = Verification(capture.state)
    for row in rows:
        if not row.verdict.whole:
            result.problems.append(Problem(Kind.VERDICT, row.name, _explain(row)))
        for part in row.stored:
            if stop.is_set():
                return result
            if is_readable(part):
                _check_part(capture, row, part, result, stop)
            else:
                result.skipped_parts += 1
    return result


def _explain(row: FileRow) -> str:
    detail = f"{row.verdict}: {_MEANING[row.verdict]}"
    if row.lost_bytes:
        detail += f"; {row.lost_bytes} bytes"
    if row.cause is not None:
        detail += f" ({row.cause})"
    return detail


def _check_part(
    capture: StoredCapture, row: FileRow, part: StoredPart, result: Verification, stop: threading.Event
) -> None:
    header = HeaderReader(_LONGEST_HEADER)
    position = 0
    try:
        for block in capture.read_part(part):
            if stop.is_set():
                return
            if not header.settled:
                header.add(position, block)
            position += len(block)
    except PartError as exc:
        kind = Kind.MISSING if exc.missing else Kind.DAMAGED
        result.problems.append(Problem(kind, row.name, str(exc)))
        return
    result.parts += 1
    result.bytes += position
    if not row.verdict.whole or row.name.endswith(TEXT_SUFFIX):
        return
    verdict = judge(position, header.header)
    if position != row.bytes:
        detail = f"{part.path} holds {position} of the {row.bytes} bytes in the journal"
        result.problems.append(Problem(Kind.DAMAGED, row.name, detail))
    elif not verdict.whole or (row.verdict is Verdict.COMPLETE and verdict is not Verdict.COMPLETE):
        detail = f"{part.path} is {verdict} by its header, and {row.verdict} in the journal"
        result.problems.append(Problem(Kind.DAMAGED, row.name, detail))


def _find_unknown(
    root: Path, prefix: str, known: set[str | None], result: Verification, without: Container[str] = ()
) -> None:
    """Look for files that no row names."""
    for path in _walk(root, without):
        name = path.rpartition("/")[2]
        if path == TEMPORARY or is_temporary(name):
            result.leftovers.append(prefix + path)
        elif path not in known:
            detail = (
                "is not in the journal; it was finished just before an interruption, or put there by hand"
            )
            result.problems.append(Problem(Kind.EXTRA, prefix + path, detail))


def _walk(root: Path, without: Container[str]) -> Iterator[str]:
    """Yield the path of everything below *root* that is no directory, without following links."""
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(root / prefix) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = f"{prefix}{entry.name}"
                if not entry.is_dir(follow_symlinks=False):
                    yield path
                elif path not in without:
                    pending.append(f"{path}/")
