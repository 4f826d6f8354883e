"""Chunk: what one callback of the ACL dump brought; chunks are read in batches, between losses."""

from operator import index
from typing import NamedTuple, Self

from dumpstream._native import Chunk, Lease

__all__ = ["APPEND", "MAX_STEP", "Batch", "Chunk", "Loss", "checked_step"]

#: The largest step that can be marked.
MAX_STEP = 10**18 - 1

#: The offset of a chunk that goes to the current end of its file.
APPEND = -1


class Loss(NamedTuple):
    """Bytes of a file that the ring refused."""

    name: str
    cause: str
    bytes: int
    ended: bool  #: the file's last chunk was among them


def checked_step(step: int) -> int:
    """Return *step* if a program can mark it.

    Raises:
        ValueError: it is negative, or has more than 18 digits.
        TypeError: it is not a whole number.
    """
    number = index(step)
    if not 0 <= number <= MAX_STEP:
        raise ValueError(f"a step must be from 0 to {MAX_STEP}, not {number}")
    return number


class Batch:
    """Chunks that came together, and the losses that happened before them.

    The bytes of the chunks stay valid until `release`. A view that still exists then keeps the ring space of
    the whole batch.

    Args:
        chunks: that came together.
        losses: that happened before them.
        lease: the hold on their bytes.
        step: the step that the program was at when the chunks came, if it had marked one.

    Raises:
        ValueError: *step* cannot be one.
    """

    __slots__ = ("_lease", "chunks", "losses", "step")

    def __init__(
        self,
        chunks: list[Chunk],
        losses: list[Loss],
        lease: Lease | None = None,
        step: int | None = None,
    ) -> None:
        self.chunks = chunks
        self.losses = losses
        self._lease = lease
        self.step = None if step is None else checked_step(step)

    def release(self) -> None:
        """Give the ring space back. Calling it again does nothing."""
        if self._lease is not None:
            self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
