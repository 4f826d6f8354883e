"""Events: what the reassembler asks its caller to do, in the order of the list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import Buffer

from dumpstream.chunk import Chunk
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from dumpstream.stages.assembly import File


@dataclass(slots=True, eq=False)
class Part:
    """Contiguous bytes of a file: its beginning, or what lies behind a gap."""

    name: str  #: of its file
    offset: int  #: 0 for the beginning, more behind a gap
    size: int = 0  #: in bytes, with those that are still to be recalled
    step: int | None = None  #: that was marked before its file began, if the name of the file has none


@dataclass(slots=True, eq=False)
class Held:
    """Stands for bytes that wait; compares by identity, so it can be a key."""

    file: File
    length: int
    offset: int = -1  #: where they go in the file; -1 until the callback they wait for is finished
    part: Part | None = None  #: the part that they continue, once recalled
    first: Held | None = None  #: the piece that came before in the same place, which these bytes only repeat
    repeats: list[Held] | None = None  #: what came again in the place of this piece
    data: Buffer | None = None  #: the recalled bytes, until all that repeats them is compared

    @property
    def end(self) -> int:
        """Where they end in the file."""
        return self.offset + self.length


class Whole(NamedTuple):
    """A file that came in exactly one chunk."""

    chunk: Chunk
    verdict: Verdict
    step: int | None = None  #: that was marked before the chunk came, if its name has none


class Piece(NamedTuple):
    """The next bytes of a part, valid as long as the batch or the restored buffer they come from."""

    part: Part
    data: Buffer


class Hold(NamedTuple):
    """Bytes that must wait; the caller copies them before it releases the batch."""

    held: Held
    data: Buffer


class Recall(NamedTuple):
    """Bytes that need not wait any longer; the caller gives them to `Reassembler.restore` at once."""

    held: Held


class End(NamedTuple):
    """Nothing more will come of this file; what it says of itself is final."""

    file: File


Event = Whole | Piece | Hold | Recall | End
