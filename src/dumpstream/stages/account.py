"""Account: what is known of a file, and its verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dumpstream.format.text import TextFilter
from dumpstream.format.verdict import NO_HEADER, Header, HeaderReader, Verdict, judge
from dumpstream.stages.events import Part

#: The cause of losses of a file of which too many pieces wait.
TOO_MANY_PIECES = "too_many_pieces"
#: The cause that a file has in the journal if it was closed to make room for others.
TOO_MANY_OPEN = "too_many_open"


@dataclass(slots=True, eq=False)
class Account:
    """What has come of a file and what has not; final when the `End` of the file is reached."""

    name: str
    prefix: Part = field(init=False)  #: what there is before the first gap
    chunks: int = field(default=0, init=False)  #: callbacks, not records
    cause: str | None = field(default=None, init=False)  #: of its first loss
    #: Why its text may lack its end, although its latest chunk was marked last.
    cut_off: str | None = field(default=None, init=False)
    lost_bytes: int = field(default=0, init=False)
    refusing: bool = field(default=False, init=False)  #: whether all else is lost: too many pieces wait
    refused: int = field(default=0, init=False)  #: callbacks of which bytes were refused
    refused_bytes: int = field(default=0, init=False)  #: of the lost ones, those that came and were refused
    surplus: bool = field(default=False, init=False)  #: whether it was closed to make room for others
    duplicates: int = field(default=0, init=False)  #: chunks dropped because the same bytes had come before
    #: Bytes that came and are in no part: repeated ones, and what `TextFilter` takes out.
    dropped_bytes: int = field(default=0, init=False)
    missing: Sequence[tuple[int, int]] = field(default=(), init=False)  #: ranges that never came
    overlapped: bool = field(default=False, init=False)  #: whether a range came again with other bytes
    #: Whether the last chunk has come; for text, whether the latest was marked last.
    closed: bool = field(default=False, init=False)
    _behind: list[Part] | None = field(default=None, init=False)  #: the parts behind gaps, once it has ended
    _cut: bool = field(default=False, init=False)  #: whether a callback was given up before its final record
    _text: TextFilter | None = field(default=None, init=False)
    _reader: HeaderReader | None = field(default=None, init=False)
    _header: Header = field(default=NO_HEADER, init=False)

    @property
    def header_row(self) -> bytes | None:
        """The header row of statistics text, once it is known."""
        return None if self._text is None else self._text.header_row

    @property
    def parts(self) -> list[Part]:
        """What there is of the file, in order."""
        return [self.prefix, *(self._behind or ())]

    @property
    def step(self) -> int | None:
        """The step that was marked before its first chunk came, if its name has none."""
        return self.prefix.step

    @property
    def bytes(self) -> int:
        """The bytes of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def text(self) -> bool:
        """Whether this is statistics text."""
        return self._text is not None

    @property
    def verdict(self) -> Verdict:
        """The verdict so far."""
        if self.cause is not None:
            return Verdict.LOST
        if self.missing:
            return Verdict.GAP
        if self.overlapped:
            return Verdict.OVERLAP
        closed = self.closed and not self._cut
        if self._text is not None:
            return Verdict.COMPLETE if closed and self.cut_off is None else Verdict.NEVER_CLOSED
        header = self._header if self._reader is None else self._reader.header
        return judge(self.prefix.size, header, closed=closed)

    @property
    def reason(self) -> str | None:
        """Why it is not whole, as far as that is known: the cause in its line."""
        if self.cause is None and self.surplus and not self.verdict.whole:
            return TOO_MANY_OPEN
        return self.cause or self.cut_off

    def refuse(self, size: int) -> None:
        """Lose *size* bytes, and from now on all that still comes."""
        self.refusing = True
        self.cause = self.cause or TOO_MANY_PIECES
        self.lost_bytes += size
        self.refused_bytes += size
