"""OutboxUploader: uploads the objects that a capture left in its outbox, and replaces no others."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

import anyio
from anyio.to_thread import run_sync

from dumpstream.archive.manifest import FILES, PACKS, STATS
from dumpstream.archive.rows import FileRow, Row, read_rows
from dumpstream.codec import SUFFIXES
from dumpstream.objectstore.keys import Keys
from dumpstream.objectstore.patience import Patience
from dumpstream.objectstore.store import Store
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.spilled import upload_from
from dumpstream.remote.storelock import StoreLock
from dumpstream.remote.uploader import SHORT_RETRY_S
from dumpstream.system.location import Prefix

#: By suffix: where objects are that are named after dump files; packs and Parquet tables are not.
_NAMED_LIKE_FILES = {**dict.fromkeys(SUFFIXES, FILES), ".csv": STATS}
#: Objects that share a number if their names are equal: a prefix, and root and suffix of their keys.
_Series = tuple[Prefix, str, str]


class OutboxUploader:
    """The stores for which objects wait in *outbox*. *locks* are held. Making one blocks."""

    def __init__(self, outbox: Outbox, locks: Sequence[StoreLock], patience: Patience) -> None:
        self._outbox, self._locks = outbox, locks
        self._description = outbox.description
        location = self._description.location
        self._base = f"{location}/" if isinstance(location, Prefix) else ""
        #: By their prefixes: where the capture is, and for which objects wait.
        self.stores = {
            prefix: Store(
                prefix,
                retry_s=SHORT_RETRY_S,
                lock=next((lock for lock in locks if lock.covers(prefix)), None),
                patience=patience,
            )
            for prefix in self._description.touched
        }

    def url(self, path: str) -> str:
        """Return the name in the outbox of the object that a row has at *path*."""
        return path if "://" in path else f"{self._base}{path}"

    async def upload(self, path: str) -> int | None:
        """Upload what a row has at *path*, if it waits; return its size."""
        size = await run_sync(self._outbox.size, self.url(path))
        if size is None:
            return None
        prefix, key = self._description.locate(self.url(path))
        await upload_from(self._outbox, self.stores[prefix], key, size)
        return size

    def find_new_paths(self, rows: Sequence[FileRow]) -> dict[str, str]:
        """Return new paths for objects of *rows* that wait, and whose keys others have by now; blocks.

        A later run that was added to the capture could not know that these keys were to be taken.
        """
        found: dict[str, str] = {}
        for (prefix, root, suffix), of_key in self._find_waiting(rows).items():
            store = self.stores[prefix]
            keys = Keys(root, suffix=suffix, prefix_bytes=len(prefix.key.encode()) + 1)
            taken = set()
            for entry in store.entries(root):
                keys.add(entry.key)
                if entry.key in of_key:
                    taken.add(entry.key)
            for key in of_key:
                keys.add(key)
            for key in taken:
                name, path = of_key[key]
                if not self._is_same(store, key, self.url(path)):
                    found[path] = path.removesuffix(key) + keys.take(name, first=2)
        return found

    def delete_packs(self, lines: Iterable[bytes], read_journal: Callable[[], Iterable[bytes]]) -> int:
        """Delete the packs of the run that neither its *lines* nor the journal name; return how many; blocks.

        The capture was killed after it had stored them, and before it had recorded that.
        """
        found = {}
        for prefix in self._description.prefixes if self._description.packs else ():
            store = self.stores[prefix]
            for entry in store.entries(PACKS):
                if self._description.is_pack(prefix, entry.key):
                    found[f"{prefix}/{entry.key}"] = store, entry.key
        for path in paths_of(read_rows(lines)):
            found.pop(self.url(path), None)
        if found:  # a power cut may have taken lines from the disk
            for path in paths_of(read_rows(read_journal())):
                found.pop(self.url(path), None)
        for store, key in found.values():
            store.delete(key)
        return len(found)

    async def aclose(self) -> None:
        """Wait for all requests.

        If that is cancelled, large uploads are taken back, and a store that does not answer is waited for
        no longer than a few seconds.
        """
        try:
            for store in self.stores.values():
                await store.aclose()
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await self._abandon()
            raise

    async def _abandon(self) -> None:
        for store in self.stores.values():
            store.abandon()
        for prefix, store in self.stores.items():
            await store.aclose()
            for lock in self._locks:
                if store.requests.given_up and lock.covers(prefix):
                    lock.left_behind = True

    def _find_waiting(self, rows: Sequence[FileRow]) -> dict[_Series, dict[str, tuple[str, str]]]:
        """Return names and paths of the objects of *rows* that wait and have the names of files, by key."""
        waiting: dict[_Series, dict[str, tuple[str, str]]] = {}
        for row in rows:
            for path in paths_of([row]):
                suffix = PurePosixPath(path).suffix
                if suffix in _NAMED_LIKE_FILES and self._outbox.size(self.url(path)) is not None:
                    prefix, key = self._description.locate(self.url(path))
                    series = prefix, _NAMED_LIKE_FILES[suffix], suffix
                    waiting.setdefault(series, {})[key] = row.name, path
        return waiting

    def _is_same(self, store: Store, key: str, url: str) -> bool:
        """Whether an earlier upload, which could not record that, has stored the object *url* as *key*."""
        with self._outbox.open_object(url) as file:
            if os.fstat(file.fileno()).st_size != store.head(key).bytes:
                return False
            return all(file.read(len(block)) == block for block in store.read(key))


def paths_of(rows: Iterable[Row]) -> Iterator[str]:
    """Yield where the parts of the files of *rows* are."""
    for row in rows:
        if isinstance(row, FileRow):
            yield from (part.path for part in row.stored if part.path is not None)
