"""StorePlace: a capture at a place in an object store, read in place."""

from __future__ import annotations

from dataclasses import replace
from io import BufferedReader
from os.path import commonpath, dirname
from typing import TYPE_CHECKING

from dumpstream._errors import NotACaptureError, ObjectMissingError, PartError
from dumpstream.archive.manifest import LARGEST_BYTES, MANIFEST, parse_manifest
from dumpstream.archive.place import RESTORE, Listed, Opened, WritingProcess
from dumpstream.archive.rows import JOURNAL, read_rows
from dumpstream.objectstore.reader import ObjectReader
from dumpstream.objectstore.store import PROBE, Store
from dumpstream.remote.segments import SEGMENTS, read_journal
from dumpstream.remote.storelock import STORE_LOCK, find_lock
from dumpstream.system.location import Prefix
from dumpstream.system.lock import LOCK as DIRECTORY_LOCK

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

    from dumpstream.archive.manifest import Manifest
    from dumpstream.archive.rows import Row

# The last is there if somebody has copied a directory to the store.
_OURS = {MANIFEST, JOURNAL, STORE_LOCK, DIRECTORY_LOCK}
_RETRY_S = 15.0  # somebody waits in front of a terminal


class StorePlace:
    """Everything below a prefix."""

    def __init__(self, prefix: Prefix) -> None:
        self.path = prefix
        self._store = Store(prefix, retry_s=_RETRY_S)

    def read_manifest(self) -> Manifest:
        try:
            _, data = self._store.get_range(MANIFEST, 0, LARGEST_BYTES)
        except ObjectMissingError:
            problem = f"holds no capture (no {MANIFEST}); name a place that `dumpstream capture --out` wrote"
            raise NotACaptureError(self.path, problem) from None
        return parse_manifest(self.path, data)

    def find_writer(self) -> WritingProcess | None:
        return find_lock(self._store)

    def read_rows(self) -> list[Row]:
        return read_journal(self._store, lambda lines: list(read_rows(lines)))

    def open(self, path: str, start: int, length: int | None) -> Opened:
        return _open(self._store, path, path, start, length)

    def list(self, without: Container[str] = ()) -> Iterator[Listed]:
        for entry in self._store.entries():
            top = entry.key.partition("/")[0]
            if entry.key not in _OURS and top != SEGMENTS and top not in without:
                yield Listed(entry.key, entry.bytes, entry.etag, leftover=entry.key == PROBE)

    def member(self, directory: str) -> StorePlace:
        return StorePlace(self.path / directory)


class Buckets:
    """The objects that a journal names by URL; each bucket is connected to once.

    A journal has no say in where requests, which show who sends them, go: endpoint and other options come
    from the environment, or from the place *like* that the user named, if that is in a store of this kind.
    """

    def __init__(self, like: Path | Prefix) -> None:
        self._like = like
        self._stores: dict[Prefix, Store] = {}

    def open(self, url: str, start: int, length: int | None) -> Opened:
        """Open what is at *url*, as a `Place` does."""
        place = self._locate(url)
        return _open(self._connect(place), place.key, url, start, length)

    def list(self, urls: Iterable[str]) -> Iterator[Listed]:
        """Yield what is near *urls*, and these themselves if they are there; their paths are URLs."""
        keys: dict[Prefix, list[str]] = {}
        for url in urls:
            place = self._locate(url)
            keys.setdefault(replace(place, key=""), []).append(place.key)
        for bucket, of_bucket in keys.items():
            for entry in self._connect(bucket).entries(commonpath(map(dirname, of_bucket))):
                yield Listed(f"{bucket}/{entry.key}", entry.bytes, entry.etag)

    def _locate(self, url: str) -> Prefix:
        place = Prefix.of_object(url)
        if isinstance(self._like, Prefix) and self._like.scheme == place.scheme:
            return replace(place, options=self._like.options)
        return place

    def _connect(self, place: Prefix) -> Store:
        bucket = replace(place, key="")
        if bucket not in self._stores:
            self._stores[bucket] = Store(bucket, retry_s=_RETRY_S)
        return self._stores[bucket]


def _open(store: Store, key: str, path: str, start: int, length: int | None) -> Opened:
    try:
        reader = ObjectReader(store, key, start, length)
    except ObjectMissingError:
        raise PartError(path, f"is missing; {RESTORE}", missing=True) from None
    return Opened(BufferedReader(reader), reader.entry.bytes)
