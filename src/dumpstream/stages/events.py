"""Events: what the reassembler asks of whoever runs it, to be done in the order of the list."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from dumpstream.chunk import Chunk
    from dumpstream.format.verdict import Verdict
    from dumpstream.stages.assembly import File
    from dumpstream.stages.overlap import Stretch


class Part:
    """Bytes of a file without a hole: its beginning, or a stretch behind a gap."""

    __slots__ = ("file", "offset", "size")

    def __init__(self, file: File, offset: int) -> None:
        self.file = file
        self.offset = offset  #: 0 for the beginning, more behind a gap
        self.size = 0  #: how many bytes it has, those still to be recalled included


class Held:
    """The identity of bytes that wait; compares by identity, so it can be a key."""

    __slots__ = ("file", "length", "offset", "order", "stretch", "until")

    def __init__(self, file: File, length: int) -> None:
        self.file = file
        self.length = length
        self.offset = -1  #: where they go in the file; -1 until the callback they wait for is finished
        self.order = 0  #: which of two overlapping pieces came first: the lower
        self.stretch: Stretch | None = None  #: what they go into, once recalled
        self.until = 0  #: where the next piece of that stretch starts


class Whole(NamedTuple):
    """A file that came in exactly one chunk."""

    chunk: Chunk
    verdict: Verdict


class Piece(NamedTuple):
    """The next bytes of a part, valid as long as the batch or the restored buffer they come from."""

    part: Part
    data: Buffer


class Hold(NamedTuple):
    """Bytes that must wait; to be copied before the batch is released."""

    held: Held
    data: Buffer


class Recall(NamedTuple):
    """Bytes that have waited long enough; to be given to `Reassembler.restore` before going on."""

    held: Held


class End(NamedTuple):
    """Nothing more will come of this file; what it says of itself is final."""

    file: File


Event = Whole | Piece | Hold | Recall | End
