"""ObjectReader: an object as a file, read by range requests."""

import os
from io import RawIOBase

from typing_extensions import Buffer

from dumpstream._errors import PartError
from dumpstream.objectstore.store import Store

#: What the first request asks for: enough for a header, or a small file.
FIRST_BYTES = 1 << 20
#: What further requests ask for; the memory that a reader takes.
BLOCK_BYTES = 4 << 20


class ObjectReader(RawIOBase):
    """Reads *length* bytes of an object from *start* on, or everything up to its end.

    Making one sends the first request, which tells how large the object is.

    Raises:
        ObjectMissingError: there is no such object.
        StoreError: the store refuses, or does not answer; also from reading.
        PartError: only from reading: the object was replaced meanwhile.
    """

    def __init__(self, store: Store, key: str, start: int = 0, length: int | None = None) -> None:
        self._store, self._key, self._start = store, key, start
        first = FIRST_BYTES if length is None else min(length, FIRST_BYTES)
        self.entry, self._block = store.get_range(key, start, first)  #: the object's
        self._block_at = 0
        rest = max(self.entry.bytes - start, 0)
        self._length = rest if length is None else min(length, rest)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def readinto(self, buffer: Buffer, /) -> int:
        if self._position >= self._length:
            return 0
        if not self._block_at <= self._position < self._block_at + len(self._block):
            self._fetch()
        offset = self._position - self._block_at
        room = memoryview(buffer).cast("B")
        data = memoryview(self._block)[offset : offset + len(room)]
        room[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _fetch(self) -> None:
        length = min(BLOCK_BYTES, self._length - self._position)
        self._block = b""  # freed before the next block takes memory
        entry, block = self._store.get_range(self._key, self._start + self._position, length)
        if entry != self.entry or len(block) != length:
            raise PartError(str(self._store.prefix / self._key), "changed while it was read; read it again")
        self._block, self._block_at = block, self._position
