"""Objects that lie in an outbox: read in parts, and uploaded to their store."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager

from anyio.to_thread import run_sync

from dumpstream._errors import SinkError, StoreError
from dumpstream.objectstore.store import PART_BYTES, Store
from dumpstream.remote.outbox import Outbox


async def upload_from(outbox: Outbox, store: Store, key: str, size: int) -> None:
    """Upload the object *key* of *size* bytes from *outbox* to *store*, and remove it from *outbox*.

    Raises:
        StoreError: the store does not take it.
        OSError: it cannot be read.
    """
    url = str(store.prefix / key)
    if size <= PART_BYTES:
        await store.put(key, await run_sync(outbox.read_object, url, size))
    else:
        await _upload_parts(outbox, store, key, size)
    await run_sync(outbox.discard, url)


async def _upload_parts(outbox: Outbox, store: Store, key: str, size: int) -> None:
    failure: OSError | None = None

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal failure
        try:
            async for piece in read_pieces(outbox, str(store.prefix / key), size):
                yield piece
        except OSError as exc:
            failure = exc
            raise

    try:
        await store.upload(key, pieces())
    except StoreError:
        if failure is not None:
            raise failure from None
        raise


async def read_pieces(
    outbox: Outbox, url: str, size: int, *, whole: bool = True
) -> AsyncGenerator[bytes, None]:
    """Yield the first *size* bytes of the object *url* in *outbox*, a part at a time.

    The file is open as long as the pieces are wanted: a store goes on even if its caller is cancelled.
    """
    with await run_sync(lambda: outbox.open_object(url, whole=whole)) as file:
        position = 0
        while position < size and (piece := await run_sync(os.pread, file.fileno(), PART_BYTES, position)):
            position += len(piece)
            yield piece


@contextmanager
def explained_spill() -> Iterator[None]:
    """Turn an `OSError` of the block, which came from the disk of the spill, into a `SinkError`."""
    try:
        yield
    except OSError as exc:
        reason = exc.strerror or type(exc).__name__
        problem = f"the spill cannot be used: {reason}; free some space or choose another --spill"
        raise SinkError(problem) from None
