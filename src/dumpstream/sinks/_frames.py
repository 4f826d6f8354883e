"""Frames: pieces of a file, arranged into blocks that are compressed each by itself."""

from collections.abc import Iterable
from typing import TypeAlias

from typing_extensions import Buffer

Block: TypeAlias = list[memoryview]

#: Smaller pieces share a frame: smaller frames cost both ratio and speed.
SMALL_BYTES = 256 << 10
# Larger pieces are cut into frames of at most this: four windows of level 1, and still in the cache.
_FRAME_BYTES = 2 << 20

NO_BYTES = memoryview(b"")


def view_bytes(data: Buffer) -> memoryview:
    """Return *data* as one row of bytes."""
    view = memoryview(data)
    return view.cast("B") if view.nbytes else NO_BYTES


def cut(pieces: Iterable[memoryview]) -> list[Block]:
    """Arrange *pieces* into blocks, each of which becomes a frame."""
    blocks: list[Block] = []
    room = 0  # in the last block, for more small pieces
    for piece in pieces:
        size = len(piece)
        if size >= SMALL_BYTES:
            step = -(-size // -(-size // _FRAME_BYTES))
            blocks += [[piece[start : start + step]] for start in range(0, size, step)]
            room = 0
        elif size:
            if room <= 0:
                blocks.append([])
                room = SMALL_BYTES
            blocks[-1].append(piece)
            room -= size
    return blocks
