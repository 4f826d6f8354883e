"""Verification: everything a capture says it has, read again and compared."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from dumpstream._errors import PartError, StoreError
from dumpstream.archive.manifest import PROFILE
from dumpstream.archive.rows import JOURNAL, Outcome
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.format.verdict import HeaderReader, Verdict, judge
from dumpstream.reading.inventory import is_as_stored, take_inventory
from dumpstream.reading.stored import State, is_readable
from dumpstream.system.batches import run_batches
from dumpstream.system.location import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dumpstream.archive.place import Listed
    from dumpstream.archive.rows import FileRow, StoredPart
    from dumpstream.reading.collection import Collection, Member
    from dumpstream.reading.stored import StoredCapture

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
    UNREACHABLE = "unreachable"  #: an object store that refuses or does not answer, so that nothing is known


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
    found_parts: int = 0  #: that are in object stores with the right size, and were not read
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
    deep: bool = False,
    workers: int | None = None,
    progress: Callable[[Verification], None] | None = None,
) -> Verification:
    """Read every stored file of *capture* again.

    Args:
        capture: the capture.
        deep: read what is in object stores, too; otherwise these are asked what they have, and only what is
            missing there or has another size or entity tag is read.
        workers: threads; by default as many as there are cores, and more if they wait for a store.
        progress: called now and then with what is known so far.

    Raises:
        StoreError: the store that the capture is in refuses, or does not answer.
    """
    result = Verification(capture.state)
    _verify_member(capture, "", result, _Manner(deep, workers, progress))
    return result


def verify_collection(
    collection: Collection,
    *,
    deep: bool = False,
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
            _verify_member(member.capture, member.prefix, result, _Manner(deep, workers, progress))
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


class _Manner(NamedTuple):
    """How to verify."""

    deep: bool
    workers: int | None
    progress: Callable[[Verification], None] | None


def _verify_member(capture: StoredCapture, prefix: str, result: Verification, manner: _Manner) -> None:
    """Add what comes out for *capture* to *result*, under names with the *prefix*."""
    result.files += len(capture.files)
    result.problems += _problems_of_capture(capture, prefix)
    rows = (row for file in capture.files for row in file.rows)
    inventory: dict[str, Listed] | None = None
    try:
        inventory = take_inventory(capture)
    except StoreError as exc:
        if capture.in_store:
            raise
        # What the disk has can be verified all the same.
        result.problems.append(Problem(Kind.UNREACHABLE, str(capture.path), str(exc)))
    check = _Check(capture, inventory, deep=manner.deep)
    checked = run_batches(
        check.check_rows,
        rows,
        bytes_of=lambda row: row.bytes,
        workers=manner.workers,
        is_remote=lambda _: capture.remote and manner.deep,
        stop=check.stop,
    )
    with closing(checked):
        for batch in checked:
            result.parts += batch.parts
            result.bytes += batch.bytes
            result.found_parts += batch.found_parts
            result.skipped_parts += batch.skipped_parts
            result.problems += [problem.below(prefix) for problem in batch.problems]
            if manner.progress is not None:
                manner.progress(result)
    # While the capture runs there always are some: files being written, and rows that are about to be.
    if not capture.running:
        known = {part.path for file in capture.files for row in file.rows for part in row.stored}
        profiles = {PROFILE} if capture.manifest.profiled else ()
        listed = inventory.values() if capture.in_store and inventory else capture.place.list(profiles)
        _find_unknown((it for it in listed if it.path not in known), prefix, result)


def _verify_root(collection: Collection, result: Verification) -> None:
    """Add what is wrong with the directory that the captures of the processes are in."""
    if collection.writer is not None:
        detail = f"{collection.writer} is still capturing; verify again when it ends"
        result.problems.append(Problem(Kind.RUNNING, str(collection.path), detail))
        return
    own = {process.directory for process in collection.manifest.processes}
    _find_unknown(collection.place.list(without=own), "", result)


def _problems_of_capture(capture: StoredCapture, prefix: str) -> Iterator[Problem]:
    subject = str(capture.path)
    if capture.running:
        yield Problem(
            Kind.RUNNING, subject, f"{capture.writer} is still capturing; verify again when it ends"
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


def _explain(row: FileRow) -> str:
    detail = f"{row.verdict}: {_MEANING[row.verdict]}"
    if row.lost_bytes:
        detail += f"; {row.lost_bytes} bytes"
    if row.cause is not None:
        detail += f" ({row.cause})"
    return detail


class _Check:
    """Compares rows with what is stored, in several threads.

    Args:
        capture: whose rows they are.
        inventory: what object stores have; None if they cannot be reached, and then nothing is read there.
        deep: whether to read also what the stores have as it was stored.
    """

    def __init__(self, capture: StoredCapture, inventory: Mapping[str, Listed] | None, *, deep: bool) -> None:
        self._capture, self._inventory, self._deep = capture, inventory, deep
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let the threads come to an end."""
        self._stopped.set()

    def check_rows(self, rows: Iterable[FileRow]) -> list[Verification]:
        """Return what comes out for *rows*, as one."""
        result = Verification(self._capture.state)
        for row in rows:
            if not row.verdict.whole:
                result.problems.append(Problem(Kind.VERDICT, row.name, _explain(row)))
            for part in row.stored:
                if self._stopped.is_set():
                    return [result]
                path = part.path or ""
                if not is_readable(part) or (self._inventory is None and is_url(path)):
                    result.skipped_parts += 1
                elif not self._deep and self._inventory and is_as_stored(part, self._inventory.get(path)):
                    result.found_parts += 1
                else:
                    self._check_part(row, part, result)
        return [result]

    def _check_part(self, row: FileRow, part: StoredPart, result: Verification) -> None:
        header = HeaderReader(_LONGEST_HEADER)
        position = 0
        try:
            for block in self._capture.read_part(part):
                if self._stopped.is_set():
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


def _find_unknown(listed: Iterable[Listed], prefix: str, result: Verification) -> None:
    """Add what lies in the capture and no row names."""
    for it in listed:
        if it.leftover:
            result.leftovers.append(prefix + it.path)
        else:
            detail = (
                "is not in the journal; it was finished just before an interruption, or put there by hand"
            )
            result.problems.append(Problem(Kind.EXTRA, prefix + it.path, detail))
