"""Store: the objects below a prefix, with the traps of obstore kept inside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from typing_extensions import Buffer

from dumpstream._errors import ObjectMissingError, StoreError
from dumpstream.objectstore.client import RETRY_S, make_client
from dumpstream.objectstore.cycle import Cycle
from dumpstream.objectstore.failure import (
    explain_failure,
    explained,
    is_beyond_the_end,
    is_unanswered,
    is_unsupported,
)
from dumpstream.objectstore.patience import GRACE_S, Patience
from dumpstream.objectstore.requests import Requests
from dumpstream.system.location import GIVEN, Prefix

#: The size of a part of a large object; S3 takes 10,000 of them, so objects of up to 78 GiB.
PART_BYTES = 8 << 20
#: The parts of one object that are uploaded at once.
PARTS_IN_FLIGHT = 4
#: An empty object that is written and deleted to find out whether the store allows both.
PROBE = ".dumpstream-probe"

#: The schemes of stores with the S3 API.
_S3_SCHEMES = {"s3", "obs"}
_LISTED_AT_ONCE = 1000
#: The most bytes of an object that is read as a whole; a store that sends more would take all memory.
_LARGEST_GOT = 64 << 20
_LARGEST_FETCHED = 64 << 10


class Entry(NamedTuple):
    """An object, as the store describes it."""

    key: str  #: relative to the store's prefix
    bytes: int
    etag: str | None
    modified: datetime
    version: str | None = None  #: of a store that counts them


class WriteLock(Protocol):
    """A lock that must be held when something is written, such as a `StoreLock`."""

    def writing(self) -> AbstractContextManager[None]:
        """Let a thread write in the block; raises `StoreError` if the lock is not held."""

    async def confirm(self) -> None:
        """Return when the lock is surely held; raises `StoreError` if it is not."""

    def check_lost(self) -> None:
        """Raise `StoreError` if another capture has taken the lock."""


class Store:
    """The objects below *prefix*; keys are relative to it.

    Methods that are not async block: call them from a worker thread. The async ones are for asyncio alone.
    Their requests go on even if the caller is cancelled; `aclose` waits for them.

    Args:
        prefix: where the objects are.
        retry_s: how long a request is tried again before the store counts as away.
        lock: must be held when something is written.
        patience: how long the async methods wait for a store that does not answer.
        client: of the same bucket, to share its connections; by default a new one.

    Every method raises `StoreError`, whose `away` tells whether a later try may succeed.
    """

    def __init__(
        self,
        prefix: Prefix,
        *,
        retry_s: float = RETRY_S,
        lock: WriteLock | None = None,
        patience: Patience | None = None,
        client: Any = None,
    ) -> None:
        self.prefix = prefix
        self.patience = Patience() if patience is None else patience
        self.requests = Requests(prefix, self.patience)  #: of the async methods
        self._lock = lock
        self._client = make_client(prefix, retry_s) if client is None else client
        self._obstore: Any = import_module("obstore")
        self._abandoned = False
        #: Whether writes may have conditions, as far as is known; OBS may ignore them without a word.
        self.has_conditions = prefix.scheme != "obs"

    def below(self, prefix: Prefix) -> Store:
        """Return the objects below *prefix*, in the same bucket, for reading with the same connections."""
        return Store(prefix, patience=self.patience, client=self._client)

    def reach(self, within_s: float) -> None:
        """Return as soon as the store answers, whatever it answers.

        Raises:
            StoreError: it has not answered within so many seconds.
        """
        if self.prefix.scheme == GIVEN:
            return
        client = make_client(self.prefix, within_s / 2, within_s)
        try:
            self._obstore.head(client, self._path(PROBE))
        except Exception as exc:  # noqa: BLE001 - obstore has many
            if is_unanswered(exc):
                raise explain_failure(exc, "reach", self.prefix, "") from None

    def get(self, key: str, most: int = _LARGEST_GOT) -> bytes:
        """Return the whole object *key*, which has no more than *most* bytes."""
        with self._explained("read", key):
            return self._collect(key, self._obstore.get(self._client, self._path(key)), most)

    def read(self, key: str) -> Iterator[bytes]:
        """Yield the object *key*, a few MiB at a time."""
        with self._explained("read", key):
            for piece in self._obstore.get(self._client, self._path(key)).stream(min_chunk_size=1 << 20):
                yield bytes(piece)

    def get_range(self, key: str, start: int, length: int) -> tuple[Entry, bytes]:
        """Return the entry of the object *key*, and *length* bytes from *start* on, with one request.

        There are fewer bytes if the object ends before.
        """
        with self._explained("read", key):
            path = self._path(key)
            try:
                found = self._obstore.get(self._client, path, options={"range": (start, start + length)})
                return self._entry(found.meta), self._collect(key, found, length)
            except Exception as exc:
                if not is_beyond_the_end(exc):
                    raise
            return self._entry(self._obstore.head(self._client, path)), b""

    def head(self, key: str) -> Entry:
        """Return the entry of the object *key*."""
        with self._explained("look for", key):
            return self._entry(self._obstore.head(self._client, self._path(key)))

    def entries(self, below: str = "") -> Iterator[Entry]:
        """Yield every object whose key begins with the components *below*, in any order."""
        with self._explained("list", below):
            last: str | None = None
            cycle = Cycle()
            while True:
                count, after = 0, last
                for meta in self._listed(below, after):
                    path = str(meta["path"])
                    if after is not None and path <= after:
                        raise StoreError(
                            f"cannot list {self.prefix / below}: the store lists only some objects; "
                            "capture with --pack, which makes fewer, or into another store"
                        )
                    if cycle.is_closed_by(path):
                        raise StoreError(
                            f"cannot list {self.prefix / below}: the store lists the same objects again; "
                            "check the endpoint"
                        )
                    count, last = count + 1, max(last or "", path)
                    yield self._entry(meta)
                # Some stores with S3's API do not say how a list goes on, and obstore takes it for whole.
                if self.prefix.scheme not in _S3_SCHEMES or count == 0 or count % _LISTED_AT_ONCE:
                    return

    def children(self) -> tuple[set[str], set[str]]:
        """Return the first components of all keys that have further ones, and the keys that have not."""
        with self._explained("list", ""):
            listed = self._obstore.list_with_delimiter(self._client, self._path("") or None)
            folders = {str(path).rstrip("/").rpartition("/")[2] for path in listed["common_prefixes"]}
            keys = {self._entry(meta).key for meta in listed["objects"]}
            found = len(folders) + len(keys)
            if self.prefix.scheme in _S3_SCHEMES and found and not found % _LISTED_AT_ONCE:
                self._add_further(folders, keys)
            return folders, keys

    def _add_further(self, folders: set[str], keys: set[str]) -> None:
        """Add what is behind the last of them, one by one: as in `entries`, the store may not have said."""
        last = ""
        while last != (last := max(*(f"{folder}/" for folder in folders), *keys, "")):
            after = self._path(f"{last[:-1]}0" if last.endswith("/") else last)  # 0 comes behind the slash
            first = next(iter(self._listed("", after)), None)
            if first is None:
                return
            folder, slash, _ = self._entry(first).key.partition("/")
            (folders if slash else keys).add(folder)

    def write(self, key: str, data: bytes) -> str | None:
        """Store a small object, in place of what is there; return its entity tag."""
        with self._writing(key):
            return _tag(self._obstore.put(self._client, self._path(key), data, use_multipart=False))

    def create(self, key: str, data: bytes) -> bool:
        """Store a small object unless the key is taken; return whether it was free.

        A store without conditional writes replaces an object that appears between the look and the write.
        """
        with self._writing(key):
            return self._put_if("create", key, data)

    def replace(self, entry: Entry, data: bytes) -> bool:
        """Store a small object in place of *entry*; return False if another object is there by now.

        A store without conditional writes replaces that, too.
        """
        known = {"e_tag": entry.etag, "version": entry.version}
        condition = {name: value for name, value in known.items() if value is not None}
        with self._writing(entry.key):
            return self._put_if(condition, entry.key, data)

    def delete(self, key: str) -> None:
        """Delete the object *key*, if it is there."""
        with self._writing(key, "delete"), suppress(FileNotFoundError):
            self._obstore.delete(self._client, self._path(key))

    def probe(self) -> None:
        """Find out whether the store can be read and written."""
        next(self.entries(), None)
        self.write(PROBE, b"")
        with suppress(StoreError):  # credentials that may not delete leave an empty object
            self.delete(PROBE)

    async def fetch(self, key: str) -> bytes:
        """Return the whole object *key*, a short one."""

        async def get() -> bytes:
            found = await self._obstore.get_async(self._client, self._path(key))
            data = bytearray()
            async for piece in found.stream(min_chunk_size=_LARGEST_FETCHED):
                data += piece
                self._check_size(key, len(data), _LARGEST_FETCHED)
            return bytes(data)

        return await self.requests.run("read", key, get)

    async def put(self, key: str, data: Buffer) -> str | None:
        """Store an object with one request, in place of what is there; return its entity tag."""

        async def put() -> str | None:
            await self._confirm_lock()
            path = self._path(key)
            return _tag(await self._obstore.put_async(self._client, path, data, use_multipart=False))

        return await self.requests.run("write", key, put)

    async def upload(self, key: str, pieces: AsyncIterator[Buffer]) -> str | None:
        """Store an object of any size while *pieces* come; return its entity tag.

        The object appears when *pieces* end. If they raise, the store keeps nothing of it.
        """

        async def put() -> str | None:
            await self._confirm_lock()
            try:
                stored = await self._obstore.put_async(
                    self._client,
                    self._path(key),
                    self._confirmed(pieces),
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_IN_FLIGHT,
                )
            except Exception:
                if self._lock is not None:  # obstore does not pass on why the pieces ended
                    self._lock.check_lost()
                raise
            return _tag(stored)

        return await self.requests.run("write", key, put)

    def abandon(self) -> None:
        """Take back uploads that still need pieces, and wait only a few seconds for a silent store."""
        self._abandoned = True
        self.patience.limit(GRACE_S)

    async def aclose(self) -> None:
        """Wait for all requests, as long as the patience allows."""
        await self.requests.aclose()

    def _put_if(self, mode: str | dict[str, str], key: str, data: bytes) -> bool:
        """Store a small object under the condition *mode* of obstore; return whether that was met."""
        errors = self._obstore.exceptions
        if self.has_conditions:
            try:
                self._try_put_if(mode, self._path(key), data)
            except (errors.AlreadyExistsError, errors.PreconditionError):
                return False
            except Exception as exc:
                if not is_unsupported(exc):
                    raise
                self.has_conditions = False
            else:
                return True
        if mode == "create":
            with suppress(ObjectMissingError):
                self.head(key)
                return False
        self._obstore.put(self._client, self._path(key), data, use_multipart=False)
        return True

    def _try_put_if(self, mode: str | dict[str, str], path: str, data: bytes) -> None:
        try:
            # Not repeated: a store without conditional writes may refuse as if the failure would pass.
            self._obstore.put(make_client(self.prefix, 0), path, data, mode=mode)
        except Exception as exc:
            if not explain_failure(exc, "write", self.prefix, path).away:
                raise
            self._obstore.put(self._client, path, data, mode=mode)

    def _collect(self, key: str, found: Any, most: int) -> bytes:
        """Return the bytes that the store sends; whatever it says beforehand, it may send others."""
        pieces, size = [], 0
        for piece in found.stream(min_chunk_size=most or 1):
            pieces.append(piece)
            size += len(piece)
            self._check_size(key, size, most)
        return b"".join(pieces)

    def _check_size(self, key: str, size: int, most: int) -> None:
        if size > most:
            raise StoreError(
                f"cannot read {self.prefix / key}: the store sends more than the {most} bytes expected; "
                "check the endpoint, or restore the object from a copy"
            )

    def _listed(self, below: str, after: str | None) -> Iterator[Any]:
        path = self._path(below) or None
        for page in self._obstore.list(self._client, path, offset=after, chunk_size=_LISTED_AT_ONCE):
            yield from page

    @contextmanager
    def _writing(self, key: str, what: str = "write") -> Iterator[None]:
        with nullcontext() if self._lock is None else self._lock.writing(), self._explained(what, key):
            yield

    async def _confirm_lock(self) -> None:
        if self._lock is not None:
            await self._lock.confirm()

    async def _confirmed(self, pieces: AsyncIterator[Buffer]) -> AsyncIterator[Buffer]:
        """Yield *pieces* as long as the lock is held, and end only if it is."""
        async for piece in pieces:
            self.requests.note_answer()  # obstore wants more because something has arrived
            if self._abandoned:
                raise StoreError(f"an upload to {self.prefix} was given up; upload again", away=True)
            await self._confirm_lock()
            yield piece
        await self._confirm_lock()

    def _path(self, key: str) -> str:
        return f"{self.prefix.key}/{key}".strip("/")

    def _entry(self, meta: Any) -> Entry:
        root = f"{self.prefix.key}/" if self.prefix.key else ""
        key = str(meta["path"]).removeprefix(root)
        return Entry(key, int(meta["size"]), meta["e_tag"], meta["last_modified"], meta["version"])

    def _explained(self, what: str, key: str) -> AbstractContextManager[None]:
        return explained(what, self.prefix, key)


def _tag(result: Any) -> str | None:
    tag = result["e_tag"]
    return None if tag is None else str(tag)
