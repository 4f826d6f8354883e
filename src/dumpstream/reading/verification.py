"""Verification: all that the journal of a capture names, read again and compared."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, fields
from itertools import islice

from dumpstream._errors import PartError, StoreError
from dumpstream._native import read_header
from dumpstream.archive.manifest import PROFILE, Process
from dumpstream.archive.place import Listed
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.format.verdict import Header, HeaderReader, Verdict, judge
from dumpstream.reading.collection import Collection, HostCaptures, Member
from dumpstream.reading.filelist import Slice
from dumpstream.reading.problem import (
    Kind,
    Problem,
    problem_of_member,
    problem_of_row,
    problems_of_capture,
    still_running,
    waiting_at,
)
from dumpstream.reading.smallfiles import read_small_parts
from dumpstream.reading.stored import State, StoredCapture
from dumpstream.reading.storedfile import is_readable, misfit, parts_of
from dumpstream.remote.outboxes import find_waiting, spills_of
from dumpstream.system.batches import run_batches
from dumpstream.system.location import is_url
from dumpstream.system.paths import MOST, PathSet, PathTable

_LONGEST_HEADER = 16 << 20
_BATCH_ROWS = 256
_PARTS_AT_ONCE = 1024


@dataclass(slots=True)
class Verification:
    """The result."""

    state: State
    files: int = 0
    rows: int = 0  #: of the journal that were compared so far,
    row_bytes: int = 0  #: and the bytes of which they tell
    parts: int = 0  #: those that were read again
    bytes: int = 0  #: their original bytes
    found_parts: int = 0  #: those that object stores have with the right size, and that were not read
    skipped_parts: int = 0  #: those in sinks that cannot be read back,
    unread_parts: int = 0  #: and of them those of files that no other sink has to be read
    not_stored: int = 0  #: files whose bytes were not to be stored
    unstored_files: int = 0  #: those whose bytes were to be stored, and that no sink has kept
    problems: list[Problem] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)  #: harmless files of unfinished writes

    @property
    def whole(self) -> bool:
        """Whether everything is there and as it was."""
        return not self.problems

    def add(self, other: Verification) -> None:
        """Add what came out for other captures, which follow; the state stays."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problems += other.problems
        self.leftovers += other.leftovers


#: What is counted.
NUMBERS = tuple(it.name for it in fields(Verification) if it.type == "int")


def verify(
    captures: StoredCapture | Collection,
    *,
    deep: bool = False,
    workers: int | None = None,
    progress: Callable[[Verification], None] | None = None,
) -> Verification:
    """Read every stored file of *captures* again; in a collection, look also for files of no capture.

    Args:
        captures: a capture, or those of several processes.
        deep: read also what is in object stores; otherwise these are asked what they have, and only what is
            missing there or has another size or entity tag is read.
        workers: threads; by default as many as there are cores, and more if they wait for a store.
        progress: called now and then with what is known so far.

    Raises:
        StoreError: the store that a capture is in refuses, or does not answer.
    """
    result = Verification(State.FINISHED)
    verifier = _Verifier(result, progress, deep=deep, workers=workers)
    if isinstance(captures, StoredCapture):
        result.state = captures.state
        verifier.verify(captures, "")
        return result
    states = []
    for member in captures.members():
        verifier.verify_member(member)
        states += [] if member.capture is None else [member.capture.state]
    result.state = captures.state(states)
    for host in roots_of(captures):
        verifier.verify_root(host)
    result.problems += strangers_of(captures)
    return result


def verify_member(
    member: Member, *, deep: bool = False, workers: int | None = None, within: Slice | None = None
) -> Verification:
    """Do as `verify` with one capture of several; its state is FINISHED if there is no capture.

    All slices together, in order, come to what comes out for the whole capture.
    """
    result = Verification(State.FINISHED if member.capture is None else member.capture.state)
    _Verifier(result, None, deep=deep, workers=workers, within=within).verify_member(member)
    return result


def verify_root(host: HostCaptures) -> Verification:
    """Return what is wrong in the directory of the processes' captures, outside of these."""
    result = Verification(State.FINISHED)
    _Verifier(result, None, deep=False, workers=None).verify_root(host)
    return result


def roots_of(collection: Collection) -> list[HostCaptures]:
    """Return the hosts in whose directories files of no capture are looked for: all processes are wanted."""
    lists = ((host, host.processes) for host in collection.hosts)
    return [host for host, asked in lists if asked is not None and len(asked) == len(host.known)]


def strangers_of(collection: Collection) -> list[Problem]:
    """Return which files of a job are no host's, unless only some of its hosts are wanted."""
    job = collection.job
    if job is None or len(collection.hosts) != len(job.hosts):
        return []
    return [Problem(Kind.EXTRA, name, "is in no capture; it was put there by hand") for name in job.others]


class _Verifier:
    """Adds what comes out for captures to *result*."""

    def __init__(
        self,
        result: Verification,
        progress: Callable[[Verification], None] | None,
        *,
        deep: bool,
        workers: int | None,
        within: Slice | None = None,
    ) -> None:
        self._result, self._progress = result, progress
        self._deep, self._workers, self._within = deep, workers, within
        self._is_first = within is None or within.number == 1
        self._is_last = within is None or within.number == within.of

    def verify_member(self, member: Member) -> None:
        """Verify the capture of *member*, or say why there is none."""
        if member.capture is None:
            self._result.problems.append(problem_of_member(member))
        else:
            self.verify(member.capture, member.prefix, member.process)

    def verify(self, capture: StoredCapture, prefix: str, process: Process | None = None) -> None:
        """Verify *capture*, whose names get the *prefix*; of several, it is that of *process*."""
        if self._is_first:
            self._result.files += capture.totals.files
            self._result.not_stored += capture.totals.not_stored
            waiting = _find_waiting(capture)
            self._result.problems += problems_of_capture(capture, prefix, process=process, waiting=waiting)
        with PathSet() as known, PathTable() as objects:
            inventory = self._take_inventory(capture, objects)
            self._read_again(capture, inventory, known, prefix)
            # A running capture always has some: files being written, or whose rows are not written yet.
            if self._is_last and not capture.running:
                if not self._is_first:
                    deque(_noting(known, capture.files.rows()), maxlen=0)  # what the other slices have
                profiles = {PROFILE} if capture.manifest.profiled else ()
                listed = (
                    inventory.listed() if capture.in_store and inventory else capture.place.list(profiles)
                )
                self._find_unknown((it for it in listed if it.path not in known), prefix)

    def _take_inventory(self, capture: StoredCapture, objects: PathTable) -> _Inventory | None:
        """Return the inventory of *capture*, kept in *objects*; None if its stores cannot be reached."""
        # Where everything is read again, only those that look for files of no row need a listing.
        if self._deep and not self._is_last and not capture.totals.at_urls:
            return _Inventory(objects)
        try:
            return _Inventory.take(capture, objects)
        except StoreError as exc:
            if capture.in_store:
                raise
            if self._is_first:  # the files on the disk can be verified all the same
                self._result.problems.append(Problem(Kind.UNREACHABLE, str(capture.path), str(exc)))
            return None

    def verify_root(self, host: HostCaptures) -> None:
        """Look for what is wrong in the directory of the processes' captures."""
        if host.writer is not None:
            self._result.problems.append(still_running(str(host.place.path), host.writer))
            return
        own = {process.directory for process in host.known}
        self._find_unknown(host.place.list(without=own), host.below)

    def _read_again(
        self, capture: StoredCapture, inventory: _Inventory | None, known: PathSet, prefix: str
    ) -> None:
        result = self._result
        check = _Check(capture, inventory, deep=self._deep)
        checked = run_batches(
            check.check_rows,
            _noting(known, capture.files.rows(self._within)),
            bytes_of=lambda row: row.bytes,
            most_items=_BATCH_ROWS,
            workers=self._workers,
            is_remote=lambda _: capture.remote and self._deep,
            stop=check.stop,
        )
        with closing(checked):
            for batch in checked:
                batch.problems = [problem.below(prefix) for problem in batch.problems]
                result.add(batch)
                if self._progress is not None:
                    self._progress(result)

    def _find_unknown(self, listed: Iterable[Listed], prefix: str) -> None:
        """Add the files that no row names."""
        detail = (
            "is not in the journal; it was finished just before an interruption (--repair removes it), "
            "or put there by hand"
        )
        for it in listed:
            if it.leftover:
                self._result.leftovers.append(prefix + it.path)
            else:
                self._result.problems.append(Problem(Kind.EXTRA, prefix + it.path, detail))


class _Check:
    """Compares rows with what is stored, in several threads.

    Args:
        capture: whose rows they are.
        inventory: what object stores have; None if they cannot be reached, so that nothing is read there.
        deep: whether to read also what the stores say is unchanged.
    """

    def __init__(self, capture: StoredCapture, inventory: _Inventory | None, *, deep: bool) -> None:
        self._capture, self._inventory, self._deep = capture, inventory, deep
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let the threads end early."""
        self._stopped.set()

    def check_rows(self, rows: Iterable[FileRow]) -> list[Verification]:
        """Return one result for all *rows*."""
        result = Verification(self._capture.state)
        parts = self._parts_to_read(rows, result)
        while some := list(islice(parts, _PARTS_AT_ONCE)):
            contents = read_small_parts(self._capture, [part for _, part in some])
            for (row, part), content in zip(some, contents, strict=True):
                if self._stopped.is_set():
                    return [result]
                if part is None:
                    result.problems.append(problem_of_row(row))
                elif content is None:
                    self._check_part(row, part, result)
                else:
                    _judge(row, part, memoryview(content).nbytes, read_header(content), result)
        return [result]

    def _parts_to_read(
        self, rows: Iterable[FileRow], result: Verification
    ) -> Iterator[tuple[FileRow, StoredPart | None]]:
        """Yield the parts that have to be read again, and count the others.

        Before those of a row that is not whole, there is None.
        """
        for row in rows:
            result.rows += 1
            result.row_bytes += row.bytes
            if not row.verdict.whole:
                yield row, None
            elif not row.stored and row.not_stored is None:
                result.unstored_files += 1
            skipped = 0
            for part in row.stored:
                path = part.path or ""
                if not self._can_read(part):
                    skipped += 1
                elif not self._deep and self._inventory and _is_as_stored(part, self._inventory.find(path)):
                    result.found_parts += 1
                else:
                    yield row, part
            if skipped:
                result.skipped_parts += skipped
                # Statistics are kept beside the bytes, or instead of bytes that were not to be stored.
                if row.not_stored is None and not all(map(self._can_read, parts_of(row))):
                    result.unread_parts += skipped

    def _can_read(self, part: StoredPart) -> bool:
        return is_readable(part) and not (self._inventory is None and is_url(part.path or ""))

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
        else:
            _judge(row, part, position, header.header, result)


def _noting(known: PathSet, rows: Iterable[FileRow]) -> Iterator[FileRow]:
    """Yield *rows*, and add the paths of their parts to *known*."""
    for row in rows:
        for part in row.stored:
            if part.path is not None:
                known.add(part.path)
        yield row


def _judge(row: FileRow, part: StoredPart, size: int, header: Header, result: Verification) -> None:
    """Add *part* of *row*, which was read and has *size* bytes, to *result*."""
    result.parts += 1
    result.bytes += size
    if not row.verdict.whole or row.name.endswith(TEXT_SUFFIX):
        return
    verdict = judge(size, header)
    if size != row.bytes:
        detail = f"{part.path} holds {size} of the {row.bytes} bytes in the journal"
        result.problems.append(Problem(Kind.DAMAGED, row.name, detail))
    elif not verdict.whole or (row.verdict is Verdict.COMPLETE and verdict is not Verdict.COMPLETE):
        detail = f"{part.path} is {verdict} by its header, and {row.verdict} in the journal"
        result.problems.append(Problem(Kind.DAMAGED, row.name, detail))


def _find_waiting(capture: StoredCapture) -> Problem | None:
    """Return the problem that something of *capture*, which does not run, still waits on this machine."""
    if capture.running or not (capture.in_store or spills_of(capture.manifest)):
        return None
    found = find_waiting(capture.path, capture.manifest)
    return None if found is None else waiting_at(capture.path, found[1])


class _Inventory:
    """The objects of a capture by the path that rows have for them."""

    def __init__(self, objects: PathTable) -> None:
        self._objects = objects

    @classmethod
    def take(cls, capture: StoredCapture, objects: PathTable) -> _Inventory:
        """Return that of *capture*, in *objects*; raises `StoreError`."""
        if capture.in_store:
            objects.add(map(_storable, capture.place.list()))
        if capture.totals.at_urls:
            parts = (part for row in capture.files.rows() for part in row.stored if is_readable(part))
            urls = {part.path for part in parts if part.path is not None and is_url(part.path)}
            objects.add(_storable(it) for it in capture.buckets.list(urls) if it.path in urls)
        return cls(objects)

    def find(self, path: str) -> Listed | None:
        """Return the object at *path*; any thread may ask."""
        row = self._objects.get(path)
        return None if row is None else Listed(*row)

    def listed(self) -> Iterator[Listed]:
        """Yield all objects."""
        return (Listed(*row) for row in self._objects)


def _storable(listed: Listed) -> Listed:
    """Return *listed* with a size that a table takes; a store may say any."""
    return listed if listed.size is None or listed.size <= MOST else listed._replace(size=MOST)


def _is_as_stored(part: StoredPart, listed: Listed | None) -> bool:
    """Whether size and entity tag of *listed* are those of *part*; if not, only reading can tell."""
    if listed is None or listed.size is None or misfit(part, listed.size):
        return False
    return part.etag is None or listed.etag is None or part.etag.strip('"') == listed.etag.strip('"')
