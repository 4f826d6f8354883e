"""MultipartUpload: an object that is uploaded in parts while its bytes still come."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress

from typing_extensions import Buffer

from dumpstream._errors import StoreError
from dumpstream.objectstore.store import PART_BYTES, Store

#: What may wait here, so that the next pieces are compressed while the last are sent.
_WAITING_BYTES = 2 * PART_BYTES


class _AbortedError(Exception):
    """Ends the pieces; obstore takes the upload back then."""


class MultipartUpload:
    """Uploads the object *key* to *store*. A few pieces wait here, besides the parts on their way."""

    def __init__(self, store: Store, key: str) -> None:
        self._pieces: deque[memoryview] = deque()
        self._waiting = 0  # bytes in the pieces
        self._ended = False
        self._aborted = False
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(store.upload(key, self._generate()))
        self._task.add_done_callback(self._on_done)

    async def send(self, data: Buffer) -> None:
        """Take *data*, which must not change any more, as soon as there is room for it.

        Raises:
            StoreError: the upload has failed.
        """
        view = memoryview(data)
        while self._waiting >= _WAITING_BYTES and not self._task.done():
            await self._changed.wait()
        if self._task.done():
            self._task.result()
            raise StoreError("the store ended an upload before its last byte; capture again")
        self._pieces.append(view)
        self._waiting += view.nbytes
        self._notify()

    async def finish(self) -> str | None:
        """Wait until the store has the object, and return its entity tag.

        Raises:
            StoreError: the upload has failed.
        """
        self._ended = True
        self._notify()
        await asyncio.wait([self._task])
        return self._task.result()

    async def abort(self) -> None:
        """Wait until the store has deleted the parts."""
        self._aborted = True
        self._pieces.clear()
        self._notify()
        await asyncio.wait([self._task])
        with suppress(StoreError):
            self._task.result()

    async def _generate(self) -> AsyncIterator[memoryview]:
        while True:
            if self._aborted:
                raise _AbortedError
            if self._pieces:
                piece = self._pieces.popleft()
                self._waiting -= piece.nbytes
                self._notify()
                yield piece
            elif self._ended:
                return
            else:
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _on_done(self, task: asyncio.Task[str | None]) -> None:
        self._aborted = True  # obstore may still ask for more pieces
        self._pieces.clear()
        self._notify()
        if not task.cancelled():
            task.exception()
