"""Assembly: the chunks of one file put in order."""

from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

from typing_extensions import Buffer
from xxhash import xxh3_64_intdigest

from dumpstream.chunk import APPEND, Chunk
from dumpstream.format.text import TEXT_SUFFIX, TextFilter, strip_nul
from dumpstream.format.verdict import NO_HEADER, Header, HeaderReader, Verdict, judge
from dumpstream.stages.events import End, Event, Held, Hold, Part, Piece
from dumpstream.stages.overlap import HeldPieces, Merge

_Bytes = Chunk | memoryview | bytes


class _Record(NamedTuple):
    """A record of an append callback that waits for another callback to be finished."""

    held: Held | None  #: None if it brought no bytes
    more: bool
    is_last: bool


#: The records that wait, by the sequence of their callback, in the order of arrival.
Waiting = dict[int, list[_Record]]


@dataclass(slots=True, eq=False)
class File:
    """One occurrence of a name, from its first chunk to its end."""

    name: str
    touched: float  #: when its latest chunk came
    _max_digests: int
    max_header_bytes: InitVar[int]
    first_row: InitVar[bytes | None]  #: header row of an earlier text file of the same name
    prefix: Part = field(init=False)
    parts: list[Part] = field(init=False)
    chunks: int = 0  #: callbacks, not records
    cause: str | None = None  #: of its first loss
    cut_off: str | None = None  #: why its text may lack its end, although its latest chunk was marked last
    lost_bytes: int = 0
    duplicates: int = 0  #: chunks dropped because the same bytes had come before
    dropped_bytes: int = 0  #: came, but are in no part: repeated bytes, and what `TextFilter` takes out
    missing: list[tuple[int, int]] = field(default_factory=list)  #: ranges that never came; set by `close`
    overlapped: bool = False  #: whether a range came again with other bytes
    closed: bool = False  #: whether the last chunk has come; for text, whether the latest was marked last
    plain: bool = False  #: whether a chunk in append mode, unless it is the last, is just passed on
    _text: TextFilter | None = None
    _reader: HeaderReader | None = None
    _header: Header = NO_HEADER
    _digests: set[tuple[int, int, int]] = field(default_factory=set)
    _held: HeldPieces = field(default_factory=HeldPieces)
    _known_end: int = 0  #: where the last chunk said that the file ends
    _callback: int | None = None  #: the append callback whose further records follow
    _waiting: Waiting = field(default_factory=dict)
    _cut: bool = False  #: whether a callback was given up before its final record

    def __post_init__(self, max_header_bytes: int, first_row: bytes | None) -> None:
        self.prefix = Part(self, 0)
        self.parts = [self.prefix]
        if self.name.endswith(TEXT_SUFFIX):
            self._text = TextFilter(first_row)
        else:
            self._reader = HeaderReader(max_header_bytes)

    @property
    def header_row(self) -> bytes | None:
        """The header row of statistics text, once it is known."""
        return None if self._text is None else self._text.header_row

    @property
    def bytes(self) -> int:
        """The bytes of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def text(self) -> bool:
        """Whether this is statistics text."""
        return self._text is not None

    @property
    def complete(self) -> bool:
        """Whether the last chunk and everything before it has come."""
        return (
            self.closed
            and self._text is None
            and self._callback is None
            and self.prefix.size >= self._known_end
        )

    @property
    def unfinished(self) -> bool:
        """Whether further records of a callback are to come."""
        return self._callback is not None

    @property
    def verdict(self) -> Verdict:
        """The verdict so far; final when the `End` of the file is reached."""
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

    def add(self, chunk: Chunk, events: list[Event]) -> None:
        """Take in *chunk*. The caller closes the file if it is `complete` then."""
        offset = chunk.offset
        if offset == APPEND:
            self._add_in_turn(chunk, events)
        else:
            data = chunk if self._text is None else strip_nul(chunk)
            length = len(data)
            self.dropped_bytes += len(chunk) - length
            repeated = length > 0 and self._place(offset, data, events)
            if not chunk.more:
                self.duplicates += repeated
                self._finish_callback(offset + length, is_last=chunk.is_last)
        self.plain = not (
            self._held.pieces
            or self.closed
            or self._callback is not None
            or self._reader is not None
            or self._text is not None
        )

    def pass_on(self, part: Part, position: int, data: Buffer, events: list[Event]) -> None:
        """Pass *data*, the bytes at *position*, on as the next piece of *part*."""
        if self._reader is not None:
            self._reader.add(position, data)
            if self._reader.settled:
                self._header = self._reader.header
                self._reader = None
        events.append(Piece(part, data))

    def give_up_callback(self, events: list[Event]) -> None:
        """Expect no further record of the unfinished callback; append the records that waited for it."""
        if self._callback is not None:
            self._callback = None
            self._cut = True
            self._append_waiting(events)

    def take_over(self, waiting: Waiting, events: list[Event]) -> None:
        """Begin with the records that waited behind the last chunk of the name's previous file."""
        self._waiting = waiting
        for records in waiting.values():
            for record in records:
                if record.held is not None:
                    record.held.file = self
        self._append_waiting(events)

    def close(self, events: list[Event]) -> Waiting:
        """End the file: what lies behind gaps becomes parts. Return the records that still wait."""
        end = self.prefix.size
        while self._held.pieces:
            start = self._held.pieces[0].offset
            self.missing.append((end, start))
            part = Part(self, start)
            self.parts.append(part)
            end = self._held.recall(Merge(part, start), start, events)
            part.size = end - start
        if end < self._known_end:
            self.missing.append((end, self._known_end))
        events.append(End(self))
        return self._waiting

    def _add_in_turn(self, chunk: Chunk, events: list[Event]) -> None:
        """Append *chunk*, or let it wait if another callback is unfinished."""
        data: _Bytes = chunk
        if self._text is not None:
            data = self._text.text_of(chunk)
            self.dropped_bytes += len(chunk) - len(data)
        sequence, more, is_last = chunk.sequence, chunk.more, chunk.is_last
        if self._callback is not None and self._callback != sequence:
            held = None
            if len(data):
                held = Held(self, len(data))
                events.append(Hold(held, data))
            self._waiting.setdefault(sequence, []).append(_Record(held, more, is_last))
            return
        if len(data):
            end = self._end_of_bytes()
            if end == self.prefix.size:
                self._extend_prefix(data, events)
            else:
                self._hold(end, data, events)
        self._finish_record(sequence, more=more, is_last=is_last)
        if self._waiting:
            self._append_waiting(events)

    def _append_waiting(self, events: list[Event]) -> None:
        """Append the records that wait, one callback after the other, until a callback is unfinished."""
        for sequence in list(self._waiting):
            if self._callback is not None or self.complete:
                return
            for record in self._waiting.pop(sequence):
                if record.held is not None:
                    self._append_held(record.held, events)
                self._finish_record(sequence, more=record.more, is_last=record.is_last)

    def _append_held(self, held: Held, events: list[Event]) -> None:
        end = self._end_of_bytes()
        self._held.add(held, end)
        if end == self.prefix.size:
            self.prefix.size = self._held.recall(Merge(self.prefix, end), end, events)

    def _finish_record(self, sequence: int, *, more: bool, is_last: bool) -> None:
        self._callback = sequence if more else None
        if not more:
            self._finish_callback(self._end_of_bytes(), is_last=is_last)

    def _finish_callback(self, end: int, *, is_last: bool) -> None:
        self.chunks += 1
        if is_last:
            self._known_end = max(self._known_end, end)
            self._held.reach = max(self._held.reach, end)
        if is_last or self._text is not None:
            self.closed = is_last

    def _place(self, offset: int, data: Chunk | memoryview, events: list[Event]) -> bool:
        """Put *data*, which is not empty, at *offset*; return whether the same was put there before."""
        length = len(data)
        digest = (offset, length, xxh3_64_intdigest(data))
        if digest in self._digests:
            self.dropped_bytes += length
            return True
        if len(self._digests) < self._max_digests:
            self._digests.add(digest)
        behind = self.prefix.size - offset
        if behind < 0:
            self._hold(offset, data, events)
        elif behind == 0:
            self._extend_prefix(data, events)
        else:
            self.overlapped = True
            self.dropped_bytes += min(behind, length)
            if behind < length:
                self._extend_prefix(memoryview(data)[behind:], events)
        return False

    def _end_of_bytes(self) -> int:
        return max(self.prefix.size, self._held.reach)

    def _hold(self, offset: int, data: _Bytes, events: list[Event]) -> None:
        held = Held(self, len(data))
        self._held.add(held, offset)
        events.append(Hold(held, data))

    def _extend_prefix(self, data: _Bytes, events: list[Event]) -> None:
        start = self.prefix.size
        end = start + len(data)
        held = self._held.pieces
        if not held or held[0].offset > end:
            self.pass_on(self.prefix, start, data, events)
            self.prefix.size = end
            return
        merge = Merge(self.prefix, start)
        events += merge.add(start, data, order=self._held.next_order(), until=held[0].offset)
        self.prefix.size = self._held.recall(merge, end, events)
