"""Store: the objects below a place, with the traps of obstore kept inside."""

from __future__ import annotations

import asyncio
import atexit
import time
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from dumpstream._errors import ObjectMissingError, StoreError
from dumpstream.objectstore.client import RETRY_S, make_client
from dumpstream.objectstore.failure import CHECK_NETWORK, explain_failure, is_beyond_the_end, is_unsupported
from dumpstream.objectstore.patience import GRACE_S, Patience, Silence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime

    from typing_extensions import Buffer

    from dumpstream.system.location import Prefix

_Result = TypeVar("_Result")

#: The size of a part of a large object; S3 takes 10,000 of them, so objects of up to 78 GiB.
PART_BYTES = 8 << 20
#: The parts of one object that are on their way at once.
PARTS_IN_FLIGHT = 4

_LISTED_AT_ONCE = 1000
#: Written and deleted to find out whether that can be done.
PROBE = ".dumpstream-probe"
# obstore's threads may still hold a result when the last await returns, and abort the process if the
# interpreter has gone by the time they let go of it.
_EXIT_S = 0.1


class Entry(NamedTuple):
    """An object, as the store describes it."""

    key: str  #: relative to the store's place
    bytes: int
    etag: str | None
    modified: datetime
    version: str | None = None  #: of a store that counts them


class WriteLock(Protocol):
    """What must be held when something is written; `remote.storelock.Lock` is one."""

    def writing(self) -> AbstractContextManager[None]:
        """Let a thread write something in the block; raises `StoreError` if the lock is not held."""

    async def confirm(self) -> None:
        """Return when the lock is surely held; raises `StoreError` if it is not."""

    def check_lost(self) -> None:
        """Raise `StoreError` if another capture has taken the lock."""


class Store:
    """The objects below *prefix*; keys are relative to it.

    Methods that are not async block: call them from a worker thread. The others work on asyncio alone, and
    what they have begun goes on to its end even if the caller is cancelled, because a request that is cut
    off may leave an upload behind; `aclose` waits for it.

    Args:
        prefix: the place.
        retry_s: how long a request is tried again before the store counts as away.
        lock: what must be held when something is written.
        patience: how long the async methods wait for a store that does not answer.

    Every method raises `StoreError`, whose `away` tells whether a later try may succeed.
    """

    def __init__(
        self,
        prefix: Prefix,
        *,
        retry_s: float = RETRY_S,
        lock: WriteLock | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.prefix = prefix
        self.patience = Patience() if patience is None else patience
        self.silence = Silence(self.patience)  #: reached when the store has been given up
        self._lock = lock
        self._client = make_client(prefix, retry_s)
        self._obstore: Any = import_module("obstore")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._abandoned = False

    def get(self, key: str) -> bytes:
        """Return the whole object *key*."""
        with self._explained("read", key):
            return bytes(self._obstore.get(self._client, self._path(key)).bytes())

    def read(self, key: str) -> Iterator[bytes]:
        """Yield the object *key*, a few MiB at a time."""
        with self._explained("read", key):
            for piece in self._obstore.get(self._client, self._path(key)).stream(min_chunk_size=1 << 20):
                yield bytes(piece)

    def get_range(self, key: str, start: int, length: int) -> tuple[Entry, bytes]:
        """Return what the store says of the object *key*, and *length* bytes of it from *start* on.

        Takes one request. There are fewer bytes if the object ends before.
        """
        with self._explained("read", key):
            path = self._path(key)
            try:
                found = self._obstore.get(self._client, path, options={"range": (start, start + length)})
                return self._entry(found.meta), bytes(found.bytes())
            except Exception as exc:
                if not is_beyond_the_end(exc):
                    raise
            return self._entry(self._obstore.head(self._client, path)), b""

    def head(self, key: str) -> Entry:
        """Return what the store says of the object *key*."""
        with self._explained("look for", key):
            return self._entry(self._obstore.head(self._client, self._path(key)))

    def entries(self, below: str = "") -> Iterator[Entry]:
        """Yield every object whose key begins with the components *below*, in no order."""
        with self._explained("list", below):
            last: str | None = None
            while True:
                count, after = 0, last
                for meta in self._listed(below, after):
                    path = str(meta["path"])
                    if after is not None and path <= after:
                        raise StoreError(
                            f"cannot list {self.prefix / below}: the store tells only of some objects; "
                            "capture with --pack, which makes fewer, or into another store"
                        )
                    count, last = count + 1, max(last or "", path)
                    yield self._entry(meta)
                # Some that speak S3's API do not say how a list goes on, and obstore takes it for whole.
                if self.prefix.scheme != "s3" or count == 0 or count % _LISTED_AT_ONCE:
                    return

    def folders(self) -> set[str]:
        """Return the first components of all keys that have further ones."""
        with self._explained("list", ""):
            listed = self._obstore.list_with_delimiter(self._client, self._path("") or None)
            return {str(path).rstrip("/").rpartition("/")[2] for path in listed["common_prefixes"]}

    def write(self, key: str, data: bytes) -> str | None:
        """Store a small object, in place of what is there; return its entity tag."""
        with self._writing("write", key):
            return _tag(self._obstore.put(self._client, self._path(key), data, use_multipart=False))

    def create(self, key: str, data: bytes) -> bool:
        """Store a small object unless there is one; return whether there was none.

        A store without conditional writes replaces what came in between a look and the write.
        """
        with self._writing("write", key):
            try:
                self._put_if("create", key, data)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
            except Exception as exc:
                if not is_unsupported(exc):
                    raise
                if self._is_there(key):
                    return False
                self._obstore.put(self._client, self._path(key), data, use_multipart=False)
        return True

    def replace(self, entry: Entry, data: bytes) -> bool:
        """Store a small object in place of *entry*; return whether that was still what is there.

        A store without conditional writes replaces whatever is there.
        """
        known = {"e_tag": entry.etag, "version": entry.version}
        condition = {name: value for name, value in known.items() if value is not None}
        with self._writing("write", entry.key):
            try:
                self._put_if(condition, entry.key, data)
            except self._obstore.exceptions.PreconditionError:
                return False
            except Exception as exc:
                if not is_unsupported(exc):
                    raise
                self._obstore.put(self._client, self._path(entry.key), data, use_multipart=False)
        return True

    def delete(self, key: str) -> None:
        """Remove the object *key*, if it is there."""
        with self._writing("delete", key):
            try:
                self._obstore.delete(self._client, self._path(key))
            except FileNotFoundError:
                return

    def probe(self) -> list[Entry]:
        """Find out whether the store can be read and written; return some of what is at the place."""
        found = list(islice(self.entries(), _LISTED_AT_ONCE))
        self.write(PROBE, b"")
        with suppress(StoreError):  # who may only add, leaves an empty object
            self.delete(PROBE)
        return [entry for entry in found if entry.key != PROBE]

    async def look_for(self, key: str) -> Entry:
        """Return what the store says of the object *key*."""

        async def look() -> Entry:
            return self._entry(await self._obstore.head_async(self._client, self._path(key)))

        return await self._finish("look for", key, look)

    async def fetch(self, key: str) -> bytes:
        """Return the whole object *key*."""

        async def get() -> bytes:
            found = await self._obstore.get_async(self._client, self._path(key))
            return bytes(await found.bytes_async())

        return await self._finish("read", key, get)

    async def put(self, key: str, data: Buffer) -> str | None:
        """Store an object with one request, in place of what is there; return its entity tag."""

        async def put() -> str | None:
            await self._confirm_lock()
            path = self._path(key)
            return _tag(await self._obstore.put_async(self._client, path, data, use_multipart=False))

        return await self._finish("write", key, put)

    async def upload(self, key: str, pieces: AsyncIterator[Buffer]) -> str | None:
        """Store an object of any size while *pieces* come; return its entity tag.

        The object appears when *pieces* end. If they raise, nothing is left of it, in the store either.
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

        return await self._finish("write", key, put)

    def abandon(self) -> None:
        """Take uploads back that still need pieces, and wait no more than seconds for a silent store."""
        self._abandoned = True
        self.patience.limit(GRACE_S)

    async def aclose(self) -> None:
        """Wait for everything that has begun."""
        while self._tasks and not self.silence.reached:
            await self.silence.wait_for(self._tasks)

    async def _finish(self, what: str, key: str, do: Callable[[], Awaitable[_Result]]) -> _Result:
        async def run() -> _Result:
            with self._explained(what, key):
                return await do()

        _linger_at_exit()
        if not self.silence.reached:
            self.silence.begin()
            task = asyncio.get_running_loop().create_task(run())
            self._tasks.add(task)
            task.add_done_callback(self._forget)
            await self.silence.wait_for([task])
            if task.done():
                return task.result()
        raise StoreError(
            f"cannot {what} {self.prefix / key}: the store does not answer; {CHECK_NETWORK}", away=True
        )

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()  # the caller may be gone, and asyncio would complain
            if error is None or not getattr(error, "away", False):
                self.silence.interrupt(pending=bool(self._tasks))

    def _put_if(self, mode: str | dict[str, str], key: str, data: bytes) -> None:
        """Store a small object on a condition, as obstore puts it.

        The first try is made without patience: a store that knows no conditions may say so with a status
        that obstore takes for a failure which passes.
        """
        path = self._path(key)
        try:
            self._obstore.put(make_client(self.prefix, 0), path, data, mode=mode)
        except Exception as exc:
            if not explain_failure(exc, "write", path).away:
                raise
            self._obstore.put(self._client, path, data, mode=mode)

    def _listed(self, below: str, after: str | None) -> Iterator[Any]:
        path = self._path(below) or None
        for page in self._obstore.list(self._client, path, offset=after, chunk_size=_LISTED_AT_ONCE):
            yield from page

    @contextmanager
    def _writing(self, what: str, key: str) -> Iterator[None]:
        with nullcontext() if self._lock is None else self._lock.writing(), self._explained(what, key):
            yield

    async def _confirm_lock(self) -> None:
        if self._lock is not None:
            await self._lock.confirm()

    async def _confirmed(self, pieces: AsyncIterator[Buffer]) -> AsyncIterator[Buffer]:
        """Yield *pieces* as long as the lock is held, and end only if it is."""
        async for piece in pieces:
            self.silence.interrupt(pending=True)  # more is wanted when something has arrived
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

    def _is_there(self, key: str) -> bool:
        try:
            self.head(key)
        except ObjectMissingError:
            return False
        return True

    @contextmanager
    def _explained(self, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as exc:  # noqa: BLE001 - obstore has many, and its pieces may raise anything
            raise explain_failure(exc, what, self.prefix / key) from None


def _tag(result: Any) -> str | None:
    tag = result["e_tag"]
    return None if tag is None else str(tag)


@cache
def _linger_at_exit() -> None:
    atexit.register(time.sleep, _EXIT_S)
