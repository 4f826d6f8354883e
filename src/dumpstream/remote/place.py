"""StorePlace: a capture in an object store, read where it is."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from io import BufferedReader
from os.path import commonpath, dirname
from pathlib import Path
from threading import Lock
from typing import IO

from dumpstream._errors import NotACaptureError, ObjectMissingError, PartError, StoreError
from dumpstream.archive.job import JOB, LONGEST_JOB, marks_job
from dumpstream.archive.journalfile import JournalFile
from dumpstream.archive.manifest import LARGEST_BYTES, MANIFEST, Manifest, parse_manifest
from dumpstream.archive.place import RESTORE, JobEntries, Listed, Opened, WritingProcess
from dumpstream.archive.pulse import Pulse
from dumpstream.archive.rows import JOURNAL
from dumpstream.objectstore.reader import ObjectReader
from dumpstream.objectstore.store import PROBE, Store
from dumpstream.remote.segments import SEGMENTS, journal_version, read_journal
from dumpstream.remote.storelock import STORE_LOCK, find_lock
from dumpstream.system.cache import open_cached
from dumpstream.system.location import SCHEMES, Prefix
from dumpstream.system.lock import LOCK as DIRECTORY_LOCK

# The last is there if a directory was copied to the store.
_OURS = {MANIFEST, JOURNAL, STORE_LOCK, DIRECTORY_LOCK}
_RETRY_S = 15.0  # the caller may be a person at a terminal
#: What a bucket or a container can be called.
_BUCKET = re.compile(r"\$?[\w.-]+", re.ASCII)
#: The first request is answered within so many seconds, or the store cannot be reached.
_REACH_S = 3.5


class StorePlace:
    """The capture below a prefix."""

    def __init__(self, prefix: Prefix, *, store: Store | None = None, reached: bool = False) -> None:
        self.path = prefix
        self._store = Store(prefix, retry_s=_RETRY_S) if store is None else store
        self._reached = reached

    def read_manifest(self) -> Manifest:
        self._reach()
        try:
            _, data = self._store.get_range(MANIFEST, 0, LARGEST_BYTES)
        except ObjectMissingError:
            problem = f"holds no capture (no {MANIFEST}); name a prefix that `dumpstream capture --out` wrote"
            raise NotACaptureError(self.path, problem) from None
        return parse_manifest(self.path, data)

    def find_writer(self) -> WritingProcess | None:
        self._reach()
        return find_lock(self._store)

    def open_journal(self) -> JournalFile:
        # A store that the caller made may have the name and the entity tags of another.
        version = journal_version(self._store) if self.path.scheme in SCHEMES else None
        if version is None:
            return read_journal(self._store, JournalFile.copy)
        return JournalFile(open_cached(str(self.path), version, self._write_journal))

    def read_pulse(self) -> Pulse | None:
        return None  # a store is not written to every second

    def open(self, path: str, start: int, length: int | None) -> Opened:
        return _open(self._store, path, path, start, length)

    def list(self, without: Container[str] = ()) -> Iterator[Listed]:
        for entry in self._store.entries():
            top = entry.key.partition("/")[0]
            if entry.key not in _OURS and top != SEGMENTS and top not in without:
                yield Listed(entry.key, entry.bytes, entry.etag, leftover=entry.key == PROBE)

    def _write_journal(self, file: IO[bytes]) -> None:
        def write(lines: Iterator[bytes]) -> None:
            file.seek(0)  # the lines may begin again
            file.truncate()
            file.writelines(lines)

        read_journal(self._store, write)

    def list_job(self) -> JobEntries | None:
        self._reach()
        try:
            if not marks_job(self.path, self._store.get(JOB, LONGEST_JOB)):
                return None
        except ObjectMissingError:
            return None
        folders, keys = self._store.children()
        return JobEntries.of(folders, keys)

    def member(self, directory: str) -> StorePlace:
        # Thousands of captures below one place are read with the connections of that place.
        path = self.path / directory
        return StorePlace(path, store=self._store.below(path), reached=self._reached)

    def _reach(self) -> None:
        """Raise `StoreError` soon if the store cannot be reached, so that a person does not wait in vain."""
        if not self._reached:
            self._store.reach(_REACH_S)
            self._reached = True


class Buckets:
    """The objects that a journal names by URL; each bucket is connected to once.

    A journal must not choose where requests go, which are signed with the user's credentials. So the endpoint
    and other options come from the environment, or from the location *like* that the user named, if that is
    in a store of the same kind.
    """

    def __init__(self, like: Path | Prefix) -> None:
        self._like = like
        self._stores: dict[Prefix, Store | StoreError] = {}
        self._connecting = Lock()

    def open(self, url: str, start: int, length: int | None) -> Opened:
        """Open the object at *url*, as a `Place` does."""
        prefix = self._locate(url)
        return _open(self._connect(prefix), prefix.key, url, start, length)

    def list(self, urls: Iterable[str]) -> Iterator[Listed]:
        """Yield the objects in the folders of *urls*; their paths are URLs."""
        keys: dict[Prefix, list[str]] = {}
        for url in urls:
            prefix = self._locate(url)
            keys.setdefault(replace(prefix, key=""), []).append(prefix.key)
        for bucket, of_bucket in keys.items():
            for entry in self._connect(bucket).entries(commonpath(map(dirname, of_bucket))):
                yield Listed(f"{bucket}/{entry.key}", entry.bytes, entry.etag)

    def _locate(self, url: str) -> Prefix:
        prefix = Prefix.of_object(url)
        if not _BUCKET.fullmatch(prefix.bucket):  # it may be part of the host that requests go to
            raise StoreError(f"{url} names no bucket; the journal is not to be trusted")
        if isinstance(self._like, Prefix) and self._like.scheme == prefix.scheme:
            return replace(prefix, options=self._like.options)
        return prefix

    def _connect(self, prefix: Prefix) -> Store:
        bucket = replace(prefix, key="")
        with self._connecting:
            if bucket not in self._stores:
                self._stores[bucket] = store = Store(bucket, retry_s=_RETRY_S)
                try:
                    store.reach(_REACH_S)
                except StoreError as exc:
                    self._stores[bucket] = exc
            found = self._stores[bucket]
        if isinstance(found, StoreError):
            raise StoreError(str(found), away=found.away)
        return found


def _open(store: Store, key: str, path: str, start: int, length: int | None) -> Opened:
    try:
        reader = ObjectReader(store, key, start, length)
    except ObjectMissingError:
        raise PartError(path, f"is missing; {RESTORE}", missing=True) from None
    return Opened(BufferedReader(reader), reader.entry.bytes)
