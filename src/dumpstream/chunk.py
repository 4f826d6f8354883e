"""Chunk: what one callback of the ACL dump brought; chunks are read in batches, between losses."""

from typing import NamedTuple, Self

from dumpstream._native import Chunk, Lease

__all__ = ["APPEND", "Batch", "Chunk", "Loss"]

#: The offset of a chunk that goes to the current end of its file.
APPEND = -1


class Loss(NamedTuple):
    """Bytes of a file that the ring refused."""

    name: str
    cause: str
    bytes: int
    ended: bool  #: the file's last chunk was among them


class Batch:
    """Chunks that came together, and the losses that happened before them.

    The bytes of the chunks stay valid until `release`. A view that still exists then keeps the ring space of
    the whole batch.
    """

    __slots__ = ("_lease", "chunks", "losses")

    def __init__(self, chunks: list[Chunk], losses: list[Loss], lease: Lease | None = None) -> None:
        self.chunks = chunks
        self.losses = losses
        self._lease = lease

    def release(self) -> None:
        """Give the ring space back. Calling it again does nothing."""
        if self._lease is not None:
            self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
