"""LargeUpload: an object that is uploaded in parts, and kept on the disk until the store has it."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

import anyio
from typing_extensions import Buffer

from dumpstream._errors import FileRefusedError, SinkError, StoreError
from dumpstream.custody import Custody
from dumpstream.objectstore.multipart import MultipartUpload
from dumpstream.objectstore.store import Store
from dumpstream.remote.backlog import Backlog
from dumpstream.remote.outbox import SPILL_FULL
from dumpstream.remote.spilled import explained_spill, read_pieces
from dumpstream.source import OnFull


class Uploaded(NamedTuple):
    """What became of an object."""

    etag: str | None
    custody: Custody | None  #: if it waits in the outbox


class LargeUpload:
    """An object that goes to *store* and, if *backlog* has an outbox, to the disk as well.

    Only so is it safe if the store goes away in its middle.
    """

    def __init__(self, store: Store, backlog: Backlog, key: str) -> None:
        self._store, self._backlog, self._key = store, backlog, key
        self._upload = None if backlog.away else MultipartUpload(store, key)
        self._on_disk = backlog.has_outbox
        self._size = 0  # of what is on the disk

    async def send(self, pieces: Sequence[Buffer]) -> None:
        """Take *pieces*, which must not change any more.

        Raises:
            SinkError: neither the store nor the disk takes them.
        """
        if self._on_disk:
            await self._send_to_disk(pieces, sum(memoryview(piece).nbytes for piece in pieces))
        if self._upload is not None:
            try:
                for piece in pieces:
                    await self._upload.send(piece)
            except StoreError as exc:
                self._give_up_upload(exc)

    async def finish(self) -> Uploaded:
        """Make the object appear, now or when the store is back.

        Raises:
            SinkError: it never will.
        """
        if self._upload is not None:
            try:
                etag = await self._upload.finish()
            except StoreError as exc:
                self._give_up_upload(exc)
            else:
                await self._discard()
                return Uploaded(etag, None)
        return Uploaded(None, await self._backlog.keep(self._key, self._size))

    async def abort(self) -> None:
        """Leave nothing of the object."""
        if self._upload is not None:
            await self._upload.abort()
        await self._discard()

    async def _send_to_disk(self, pieces: Sequence[Buffer], size: int) -> None:
        backlog = self._backlog
        if self._upload is not None and backlog.outbox.quota.free < size:
            await self._discard()  # the store answers, and is enough
            return
        while not await backlog.reserve(size, self._key):
            if await self._begin_again():
                return
        new = not self._size
        self._size += size
        await backlog.append(self._key, pieces, new=new)

    async def _begin_again(self) -> bool:
        """Send the store, which is back, what the full disk has; return whether it took that."""
        upload = MultipartUpload(self._store, self._key)
        try:
            if self._size:
                await self._resend(upload)
        except StoreError as exc:
            self._backlog.note(exc)
            return False
        except BaseException:
            with anyio.CancelScope(shield=True):
                await upload.abort()
            raise
        self._upload = upload
        await self._discard()
        return True

    async def _resend(self, upload: MultipartUpload) -> None:
        outbox, url = self._backlog.outbox, self._backlog.url(self._key)
        with explained_spill():
            async with aclosing(read_pieces(outbox, url, self._size, whole=False)) as pieces:
                async for piece in pieces:
                    await upload.send(piece)

    def _give_up_upload(self, exc: StoreError) -> None:
        """Go on with the disk alone.

        Raises:
            SinkError: the disk does not have all of the object.
        """
        self._upload = None
        self._backlog.note(exc)
        if not self._on_disk:
            problem = f"{exc}; the spill was too full to keep what had been sent"
            if self._backlog.outbox.on_full is OnFull.DROP:
                raise FileRefusedError(problem, cause=SPILL_FULL) from None
            raise SinkError(problem) from None

    async def _discard(self) -> None:
        if self._on_disk:
            self._on_disk = False
            if self._size:
                await self._backlog.discard(self._key, self._size)
                self._size = 0
