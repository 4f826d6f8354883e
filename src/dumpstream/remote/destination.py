"""RemoteDestination: the prefix in a store that a capture writes to, prepared and described."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path

from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError, DestinationInUseError, ObjectMissingError, StoreError
from dumpstream.archive.deletion import SINK_FOLDERS, inside, members_of, parts_of_rows, series_of
from dumpstream.archive.job import IS_CAPTURE, JOB, LONGEST_JOB, NEEDS_HOST, NOT_A_JOB, job_text, marks_job
from dumpstream.archive.manifest import MANIFEST, Manifest, parse_manifest
from dumpstream.archive.manifestwriter import ManifestWriter, refuse_both
from dumpstream.archive.rows import JOURNAL, Outcome, read_rows
from dumpstream.objectstore.patience import Patience, ask
from dumpstream.objectstore.store import Store
from dumpstream.remote.mirror import Mirror
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.segments import SEGMENTS, SegmentJournal, is_segment, last_segment, read_journal
from dumpstream.remote.storelock import STORE_LOCK, StoreLock, find_lock
from dumpstream.remote.uploader import retry_time
from dumpstream.remote.writeahead import WriteAheadJournal, open_remote_journal
from dumpstream.system.durable import Fsync
from dumpstream.system.location import Prefix

_OURS = (MANIFEST, STORE_LOCK, JOURNAL)
_PROBE_S = 10.0


class RemoteDestination(ManifestWriter):
    """A capture in a store, written by this process; its manifest goes to *outbox* first.

    If it is *inside* a prefix that this process holds for several captures, nothing is there yet: *lock* is
    taken only when the run begins, and the store need not answer then if *outbox* has room.
    """

    path: Prefix

    def __init__(
        self, path: Prefix, outbox: Outbox, lock: StoreLock, *, patience: Patience, inside: bool = False
    ) -> None:
        super().__init__()
        self.path = path
        self.lock = lock
        self._outbox = outbox
        self._inside = inside
        self._store = Store(path, retry_s=_PROBE_S, lock=lock, patience=patience)
        self._folders: set[str] = set()
        self._mirror: Mirror | None = None

    def prepare(self, *, append: bool = False, force: bool = False, of_processes: bool = False) -> None:
        """Find out what is there, once the lock is held.

        Raises:
            DestinationError: it cannot take a capture; the message says why and what to do.
            NotACaptureError: it holds a capture of a newer version, or something like one.
        """
        refuse_both(append=append, force=force)
        if not self._inside:
            with _explained(self.path):
                self._look(append=append, force=force, of_processes=of_processes)

    @property
    def empty(self) -> bool:
        """Whether no files will be there when the run begins."""
        return not self.manifest.runs

    @property
    def work_directory(self) -> Path:
        return self._outbox.path

    @property
    def waiting(self) -> bool:
        return self._mirror is not None and self._mirror.waiting

    def end_run(self, outcome: Outcome) -> None:
        """Record how the run that began last ended; if the store is away, `dumpstream upload` does."""
        try:
            super().end_run(outcome)
        except DestinationError:
            self._outbox.needed = True
            raise

    async def finish_run(self, outcome: Outcome) -> None:
        try:
            await ask(partial(self.end_run, outcome), self._store.patience)
        except StoreError as exc:
            self._outbox.needed = True
            raise DestinationError(self.path, f"has not got its manifest: {exc}") from None

    def begin_processes(self) -> None:
        super().begin_processes()
        self._outbox.needed = True
        self._mirror = Mirror(self._store, MANIFEST)

    def _end_processes(self) -> None:
        if self._mirror is not None:
            self._write()
            try:
                self._outbox.needed = not self._mirror.stop()
            except StoreError as exc:
                raise DestinationError(
                    self.path,
                    f"has not got its manifest ({exc}); then run: dumpstream upload {self._outbox.path}",
                ) from None

    @asynccontextmanager
    async def open_journal(self, fsync: Fsync) -> AsyncIterator[WriteAheadJournal]:
        """Open the journal of the run; when the block is left, the store has all of it that it can."""
        with _explained(self.path):
            last = 0 if self._inside else await run_sync(lambda: last_segment(self._store))
        segments = SegmentJournal(self._store, last=last)
        async with open_remote_journal(self._outbox, self.path, segments, fsync) as journal:
            yield journal

    def close(self) -> None:
        self.lock.left_behind = self._outbox.needed

    def _look(self, *, append: bool, force: bool, of_processes: bool) -> None:
        keys = {entry.key for entry, _ in zip(self._store.entries(), range(1000), strict=False)}
        try:
            earlier = parse_manifest(self.path, self._store.get(MANIFEST))
        except ObjectMissingError:
            if any(key not in _OURS and not key.startswith(".") for key in keys):
                if _is_job(self._store):
                    raise DestinationError(self.path, NEEDS_HOST) from None
                raise DestinationError(
                    self.path, "is not empty and holds no capture; choose another prefix"
                ) from None
            return
        self._accept(earlier, append=append, force=force, of_processes=of_processes)
        if of_processes:
            self._folders, _ = self._store.children()

    def _begin(self) -> None:
        text = self._outbox.keep_manifest(self.manifest)
        with _explained(self.path):
            if (replaced := self._take_replaced()) is not None:
                self._delete_capture(replaced)
            try:
                if self._inside:
                    self.lock.take()  # if the store is away, the first upload takes it
                self._store.write(MANIFEST, text)
            except StoreError as exc:
                if not (self._inside and exc.away and self._outbox.quota.capacity):
                    raise

    def _write(self) -> None:
        text = self._outbox.keep_manifest(self.manifest)
        if self._mirror is not None:
            self._mirror.update(text)
        elif not self._outbox.needed:
            with _explained(self.path):
                self._store.write(MANIFEST, text)

    def _is_taken(self, name: str) -> bool:
        return name in self._folders

    def _delete_capture(self, manifest: Manifest) -> None:
        """Delete what the journals name; every object goes before the journal that names it."""
        members = [f"{directory}/" for directory in members_of(manifest)]
        for root in members:
            self._refuse_writer(root)
        for root in ("", *members):
            self._refuse_others(root)
        for root in members:
            self._delete_data(root)
            for key in (MANIFEST, STORE_LOCK):
                self._store.delete(f"{root}{key}")
        self._delete_data("")

    def _refuse_others(self, root: str) -> None:
        """Raise `DestinationError` if another capture is among the objects of the capture below *root*."""
        for folder in SINK_FOLDERS:
            for entry in self._store.entries(f"{root}{folder}"):
                above, _, name = entry.key.rpartition("/")
                if name == MANIFEST:
                    raise DestinationError(
                        self.path,
                        f"has another capture inside, in {above}/; move it elsewhere, or choose another",
                    )
                if name == STORE_LOCK:
                    self._refuse_writer(above)

    def _refuse_writer(self, below: str) -> None:
        prefix = self.path / below
        if (writer := find_lock(Store(prefix, retry_s=_PROBE_S))) is not None:
            raise DestinationInUseError(prefix, writer.pid, writer.host)

    def _delete_data(self, root: str) -> None:
        series: set[str] = set()

        def delete_parts(lines: Iterator[bytes]) -> None:
            for path in parts_of_rows(read_rows(lines), series):
                if (components := inside(path)) is not None and components[-1] != STORE_LOCK:
                    self._store.delete(f"{root}{'/'.join(components)}")

        read_journal(Store(self.path / root, retry_s=_PROBE_S), delete_parts)
        for folder in (*SINK_FOLDERS, SEGMENTS):
            for entry in self._store.entries(f"{root}{folder}"):
                key = entry.key.removeprefix(root)
                if is_segment(key) or series_of(key) in series:
                    self._store.delete(entry.key)
                else:
                    self.remains.add(entry.key)
        self._store.delete(f"{root}{JOURNAL}")


def join_store_job(path: Prefix) -> None:
    """Mark *path* as a job if nothing is there; blocks. The mark stays if no host begins.

    Raises:
        DestinationError: it holds something else, or cannot be used.
        NotACaptureError: a newer version has marked it.
    """
    with _explained(path):
        store = Store(path, retry_s=_PROBE_S)
        store.reach(_PROBE_S)
        if _is_job(store):
            return
        found = {entry.key for entry, _ in zip(store.entries(), range(1000), strict=False)}
        if any(not key.startswith(".") for key in found) and not _is_job(store):
            raise DestinationError(path, IS_CAPTURE if MANIFEST in found else NOT_A_JOB)
        store.create(JOB, job_text())


def _is_job(store: Store) -> bool:
    try:
        return marks_job(store.prefix, store.get(JOB, LONGEST_JOB))
    except ObjectMissingError:
        return False


@asynccontextmanager
async def open_remote_destination(
    path: Prefix,
    outbox: Outbox,
    *,
    patience: Patience,
    held: Sequence[StoreLock] = (),
    append: bool = False,
    force: bool = False,
    of_processes: bool = False,
) -> AsyncIterator[RemoteDestination]:
    """Hold the prefix *path* for a capture while the block runs; its local part is in *outbox*.

    If one of *held*, the locks that this process has, covers *path*, nothing is there yet. The other options
    are those of `Destination.open`.

    Raises:
        DestinationInUseError: another capture is writing there.
        DestinationError: it cannot take a capture; the message says why and what to do.
        NotACaptureError: it holds a capture of a newer version, or something like one.
    """
    inside = any(lock.covers(path) for lock in held)
    with _explained(path):
        lock = await run_sync(lambda: StoreLock(path, retry_s=retry_time(outbox), patience=patience))
    await run_sync(outbox.add_lock, lock)
    async with lock.held():
        with _explained(path):
            if not inside:
                await ask(lock.take)
            destination = await run_sync(
                lambda: RemoteDestination(path, outbox, lock, patience=patience, inside=inside)
            )
        await ask(partial(destination.prepare, append=append, force=force, of_processes=of_processes))
        with closing(destination):
            yield destination


@contextmanager
def _explained(path: Prefix) -> Iterator[None]:
    """Turn a `StoreError` of the block into a `DestinationError` about *path*."""
    try:
        yield
    except StoreError as exc:
        problem = str(exc).removeprefix(f"cannot reach {path}: ")
        own = problem.removeprefix(f"{path} ")
        raise DestinationError(path, f"cannot be used: {problem}" if own == problem else own) from None
