"""RemoteDestination: a place in a store that a capture writes to, prepared and described."""

from __future__ import annotations

import json
import os
import socket
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync

from dumpstream._errors import DestinationError, DestinationInUseError, ObjectMissingError, StoreError
from dumpstream.destination import next_run
from dumpstream.manifest import FILES, MANIFEST, PACKS, STATS, Manifest, manifest_text, parse_manifest
from dumpstream.objectstore.lock import LOCK, find_lock
from dumpstream.objectstore.segments import SEGMENTS, SegmentJournal, last_segment
from dumpstream.objectstore.store import Store
from dumpstream.objectstore.writeahead import open_remote_journal
from dumpstream.rows import JOURNAL, timestamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from dumpstream.objectstore.outbox import Outbox
    from dumpstream.objectstore.prefix import Prefix
    from dumpstream.objectstore.writeahead import WriteAheadJournal
    from dumpstream.rows import Outcome
    from dumpstream.sinks import Fsync

_LOCK_S = 30.0
_OURS = (MANIFEST, LOCK, JOURNAL)
_BELOW = (FILES, PACKS, STATS, SEGMENTS)
_PROBE_S = 10.0


class RemoteDestination:
    """A capture in a store, written by this process. Everything in it blocks, but for the journal.

    Until a run begins nothing is changed but what `close` takes back.
    """

    def __init__(self, path: Prefix, outbox: Outbox) -> None:
        self.path = path
        self.manifest = Manifest(dumpstream=version("dumpstream"), created=timestamp())
        self._outbox = outbox
        self._store = Store(path, patience_s=_PROBE_S)
        self._replaced = False
        self._locked = False

    @classmethod
    def open(
        cls, path: Prefix, outbox: Outbox, *, append: bool = False, force: bool = False
    ) -> RemoteDestination:
        """Prepare the place *path* for a capture whose local part is in *outbox*, and mark it as taken.

        Raises:
            DestinationInUseError: another capture is writing there.
            DestinationError: it cannot take a capture; the message says why and what to do.
            NotACaptureError: it holds a capture of a newer version, or something like one.
        """
        if append and force:
            raise ValueError("append and force exclude each other: one keeps what is there, one deletes it")
        with _explained(path):
            place = cls(path, outbox)
            try:
                place._prepare(append=append, force=force)
            except BaseException:
                place.close()
                raise
        return place

    @property
    def work_directory(self) -> Path:
        """A local directory for temporary files."""
        return self._outbox.path

    def begin_run(
        self,
        options: Mapping[str, Any],
        *,
        acl_library: str | None = None,
        config: Mapping[str, Any] | None = None,
        profile: Mapping[str, Any] | None = None,
    ) -> int:
        """Delete the capture that was to be, write down that a run begins, and return its number."""
        run = next_run(self.manifest, options, acl_library=acl_library, config=config, profile=profile)
        with _explained(self.path):
            if self._replaced:
                self._replaced = False
                self._delete_capture()
            self.manifest.runs.append(run)
            self._write_manifest()
        self._outbox.describe(run=run.run)
        return run.run

    def end_run(self, outcome: Outcome) -> None:
        """Write down how the run that began last ended; if the store is away, `dumpstream upload` will."""
        run = self.manifest.runs[-1]
        run.ended, run.outcome = timestamp(), str(outcome)
        if self._outbox.needed:
            return
        try:
            with _explained(self.path):
                self._write_manifest()
        except DestinationError:
            self._outbox.needed = True
            raise

    @asynccontextmanager
    async def open_journal(self, fsync: Fsync) -> AsyncIterator[WriteAheadJournal]:
        """Open the journal of the run; the rest of it is in the store when the block is left."""
        with _explained(self.path):
            last = await run_sync(lambda: last_segment(self._store))
        segments = SegmentJournal(
            Store(self.path, patience_s=_PROBE_S), last=last, lock=(LOCK, self._lock_text()), lock_s=_LOCK_S
        )
        async with open_remote_journal(self._outbox, self.path, segments, fsync) as journal:
            yield journal

    def close(self) -> None:
        """Give the place up; a second call does nothing."""
        if self._locked:
            self._locked = False
            if not self._outbox.needed:
                with suppress(StoreError):  # it grows old by itself
                    self._store.delete(LOCK)

    def _prepare(self, *, append: bool, force: bool) -> None:
        keys = {entry.key for entry, _ in zip(self._store.entries(), range(1000), strict=False)}
        self._take_lock()
        try:
            earlier = parse_manifest(self.path, self._store.get(MANIFEST))
        except ObjectMissingError:
            if any(key not in _OURS and not key.startswith(".") for key in keys):
                raise DestinationError(
                    self.path, "is not empty and holds no capture; choose another prefix"
                ) from None
            return
        if append:
            self.manifest = earlier
        elif force:
            self._replaced = True
        elif earlier.runs:
            raise DestinationError(
                self.path,
                "already holds a capture; add a run to it with --append (append=True), "
                "or delete it and start anew with --force (force=True)",
            )

    def _take_lock(self) -> None:
        holder = find_lock(self._store)
        if holder is None:
            self._store.delete(LOCK)
            if self._store.create(LOCK, self._lock_text()):
                self._locked = True
                return
            holder = find_lock(self._store)
        raise DestinationInUseError(self.path, 0 if holder is None else holder.pid)

    def _lock_text(self) -> bytes:
        fields = {"host": socket.gethostname(), "pid": os.getpid(), "time": timestamp()}
        return json.dumps(fields).encode()

    def _write_manifest(self) -> None:
        self._store.write(MANIFEST, manifest_text(self.manifest).encode())

    def _delete_capture(self) -> None:
        for below in _BELOW:
            for entry in self._store.entries(below):
                self._store.delete(entry.key)
        self._store.delete(JOURNAL)


@contextmanager
def _explained(path: Prefix) -> Iterator[None]:
    """Turn a `StoreError` of the block into a `DestinationError` about *path*."""
    try:
        yield
    except StoreError as exc:
        raise DestinationError(path, f"cannot be used: {exc}") from None
