"""LargeUpload: a large object on its way to a store, and to the disk as long as it is not there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.to_thread import run_sync

from dumpstream._errors import FileRefusedError, SinkError, StoreError
from dumpstream.objectstore.multipart import MultipartUpload
from dumpstream.objectstore.store import PART_BYTES
from dumpstream.remote.outbox import SPILL_FULL
from dumpstream.source import OnFull

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from typing_extensions import Buffer

    from dumpstream.custody import Custody
    from dumpstream.remote.uploader import Uploader


class Uploaded(NamedTuple):
    """What became of an object."""

    etag: str | None
    custody: Custody | None  #: if it waits in the outbox


class LargeUpload:
    """A large object on its way: to the store and, if there is an outbox, to the disk as well.

    Only so is it safe when the store goes away in its middle.
    """

    def __init__(self, uploader: Uploader, key: str) -> None:
        self._uploader, self._key = uploader, key
        self._upload = None if uploader.away else MultipartUpload(uploader.store, key)
        self._on_disk = uploader.has_outbox
        self._size = 0  # of what is on the disk

    async def send(self, pieces: Sequence[Buffer]) -> None:
        """Take *pieces*, which must stay as they are.

        Raises:
            SinkError: the object can be uploaded nowhere.
        """
        size = sum(memoryview(piece).nbytes for piece in pieces)
        if self._on_disk:
            await self._send_to_disk(pieces, size)
        if self._upload is not None:
            try:
                for piece in pieces:
                    await self._upload.send(piece)
            except StoreError as exc:
                await self._give_up_upload(exc)

    async def finish(self) -> Uploaded:
        """Make the object appear, now or when the store is back.

        Raises:
            SinkError: it never will.
        """
        if self._upload is not None:
            try:
                etag = await self._upload.finish()
            except StoreError as exc:
                await self._give_up_upload(exc)
            else:
                await self._discard()
                return Uploaded(etag, None)
        return await self._uploader.keep(self._key, self._size)

    async def abort(self) -> None:
        """Leave nothing of it."""
        if self._upload is not None:
            await self._upload.abort()
        await self._discard()

    async def _send_to_disk(self, pieces: Sequence[Buffer], size: int) -> None:
        uploader = self._uploader
        if self._upload is not None and uploader.outbox.free < size:
            await self._discard()  # the store is there, and will do alone
            return
        while not await uploader.reserve(size, self._key):
            if await self._begin_again():
                return
        url, new = uploader.url(self._key), not self._size
        self._size += size
        try:
            await run_sync(lambda: uploader.outbox.append(url, pieces, new=new))
        except OSError as exc:
            raise spill_error(exc) from None

    async def _begin_again(self) -> bool:
        """Send the store, which is back, what the full disk has; return whether it goes on without that."""
        upload = MultipartUpload(self._uploader.store, self._key)
        try:
            if self._size:
                await self._resend(upload)
        except StoreError as exc:
            self._uploader.note(exc)
            return False
        except BaseException:
            with anyio.CancelScope(shield=True):
                await upload.abort()
            raise
        self._upload = upload
        await self._discard()
        return True

    async def _resend(self, upload: MultipartUpload) -> None:
        url = self._uploader.url(self._key)
        try:
            fd = await run_sync(lambda: self._uploader.outbox.open_object(url, whole=False))
            try:
                async for piece in read_pieces(fd, self._size):
                    await upload.send(piece)
            finally:
                os.close(fd)
        except OSError as exc:
            raise spill_error(exc) from None

    async def _give_up_upload(self, exc: StoreError) -> None:
        """Go on with the disk alone.

        Raises:
            SinkError: the disk does not have all of it.
        """
        self._upload = None
        self._uploader.note(exc)
        if not self._on_disk:
            problem = f"{exc}; the spill was too full to keep what had been sent"
            if self._uploader.outbox.on_full is OnFull.DROP:
                raise FileRefusedError(problem, cause=SPILL_FULL) from None
            raise SinkError(problem) from None

    async def _discard(self) -> None:
        if self._on_disk:
            self._on_disk = False
            if self._size:
                await self._uploader.discard(self._key, self._size)
                self._size = 0


async def read_pieces(fd: int, size: int) -> AsyncIterator[bytes]:
    """Yield the first *size* bytes of the open file *fd*, a part at a time."""
    position = 0
    while position < size and (piece := await run_sync(os.pread, fd, PART_BYTES, position)):
        position += len(piece)
        yield piece


def spill_error(exc: OSError) -> SinkError:
    """Return the error to report for *exc*, which came from the disk that objects wait on."""
    reason = exc.strerror or type(exc).__name__
    return SinkError(f"the spill cannot be used: {reason}; free some space or choose another --spill")
