"""Assembly: the chunks of one file put in order."""

from dataclasses import InitVar, dataclass, field
from sys import getsizeof
from typing import NamedTuple

from typing_extensions import Buffer
from xxhash import xxh3_64_intdigest

from dumpstream.chunk import APPEND, Chunk
from dumpstream.format.text import TEXT_SUFFIX, TextFilter, strip_nul
from dumpstream.format.verdict import HeaderReader
from dumpstream.stages.account import Account
from dumpstream.stages.events import End, Event, Held, Hold, Part, Piece
from dumpstream.stages.overlap import Bytes, HeldPieces, differs, recall

# What an open file takes besides its name and what waits of it, with what the pipeline and a sink keep; and
# what each piece that waits and each digest takes.
_FILE_BYTES, _PIECE_BYTES, _DIGEST_BYTES = 1536, 1024, 256


class _Record(NamedTuple):
    """A record of an append callback that waits for another callback to be finished."""

    held: Held | None  #: None if it brought no bytes
    more: bool
    is_last: bool
    step: int | None  #: that was marked when it came


#: The records that wait, by the sequence of their callback, in the order of arrival.
Waiting = dict[int, list[_Record]]


@dataclass(slots=True, eq=False)
class File(Account):
    """One occurrence of a name, from its first chunk to its end.

    There may be many thousand open files, and Python's garbage collector looks at every list and set of
    theirs. So a file has only those that it needs.
    """

    touched: float  #: when its latest chunk came
    _max_pieces: int
    _max_digests: int
    max_header_bytes: InitVar[int]
    first_row: InitVar[bytes | None]  #: header row of an earlier text file of the same name
    plain: bool = False  #: whether a chunk in append mode, unless it is the last, is just passed on
    weighed: int = 0  #: the weight that `OpenFiles` has counted
    _digests: set[tuple[int, int, int]] | None = None
    _held: HeldPieces | None = None
    _reach: int = 0  #: the end of the furthest byte that was ever expected behind a gap
    _known_end: int = 0  #: where the last chunk said that the file ends
    _callback: int | None = None  #: the append callback whose further records follow
    _waiting: Waiting = field(default_factory=dict)
    _waiting_count: int = 0  #: of the records in it

    def __post_init__(self, max_header_bytes: int, first_row: bytes | None) -> None:
        self.prefix = Part(self.name, 0)
        if self.name.endswith(TEXT_SUFFIX):
            self._text = TextFilter(first_row)
        else:
            self._reader = HeaderReader(max_header_bytes)

    @property
    def complete(self) -> bool:
        """Whether the last chunk and everything before it has come."""
        ended = self.closed and self._text is None and self._callback is None
        return ended and self.prefix.size >= self._known_end

    @property
    def unfinished(self) -> bool:
        """Whether further records of a callback are to come."""
        return self._callback is not None

    @property
    def weight(self) -> int:
        """How much memory it takes, its bytes apart, which others bound."""
        weight = _FILE_BYTES + getsizeof(self.name) + _DIGEST_BYTES * len(self._digests or ())
        weight += _PIECE_BYTES * self._pieces
        if self._reader is not None:
            weight += len(self._reader.kept)
        return weight if self._text is None else weight + self._text.kept_bytes

    @property
    def full(self) -> bool:
        """Whether as many pieces wait as may."""
        return self._pieces >= self._max_pieces

    @property
    def _pieces(self) -> int:
        return self._waiting_count + (0 if self._held is None else self._held.count)

    def add(self, chunk: Chunk, events: list[Event], step: int | None) -> None:
        """Take in *chunk*, which came at *step*. The caller closes the file if it is `complete` then."""
        if self.refusing:
            self.refuse(len(chunk))
        elif chunk.offset == APPEND:
            self._add_in_turn(chunk, events, step)
        else:
            self._add_at_offset(chunk, events)
        if self.refusing and not chunk.more:
            self.refused += 1
        simple = self._held is None and self._reader is None and self._text is None
        self.plain = simple and not (self.closed or self.refusing or self._callback is not None)

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
            self._waiting_count += len(records)
            for record in records:
                if record.held is not None:
                    record.held.file = self
        self._append_waiting(events)

    def close(self, events: list[Event]) -> Waiting:
        """End the file: what lies behind gaps becomes parts. Return the records that still wait."""
        end = self.prefix.size
        parts, missing = [self.prefix], []
        for held in () if self._held is None else self._held.pieces:
            if held.offset > end:
                missing.append((end, held.offset))
                parts.append(Part(self.name, held.offset, step=self.step))
            end = held.end
            parts[-1].size += held.length
            recall(held, parts[-1], events)
        if end < self._known_end:
            missing.append((end, self._known_end))
        self._held, self._behind, self.missing = None, parts[1:], missing
        events.append(End(self))
        return self._waiting

    def _add_at_offset(self, chunk: Chunk, events: list[Event]) -> None:
        data = chunk if self._text is None else strip_nul(chunk)
        length = len(data)
        self.dropped_bytes += len(chunk) - length
        repeated = length > 0 and self._place(chunk.offset, data, events)
        if not chunk.more:
            self.duplicates += repeated
            self._finish_callback(chunk.offset + length, is_last=chunk.is_last)

    def _add_in_turn(self, chunk: Chunk, events: list[Event], step: int | None) -> None:
        """Append *chunk*, or let it wait if another callback is unfinished."""
        if self._callback is not None and self._callback != chunk.sequence and self.full:
            self.refuse(len(chunk))
            return
        data: Bytes = chunk
        if self._text is not None:
            data = self._text.text_of(chunk)
            self.dropped_bytes += len(chunk) - len(data)
        sequence, more, is_last = chunk.sequence, chunk.more, chunk.is_last
        if self._callback is not None and self._callback != sequence:
            held = None
            if len(data):
                held = Held(self, len(data))
                events.append(Hold(held, data))
            self._waiting.setdefault(sequence, []).append(_Record(held, more, is_last, step))
            self._waiting_count += 1
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
        while self._waiting and self._callback is None and not self.complete:
            sequence = next(iter(self._waiting))
            records = self._waiting.pop(sequence)
            self._waiting_count -= len(records)
            for record in records:
                if record.held is not None:
                    self._append_held(record.held, events)
                self._finish_record(sequence, more=record.more, is_last=record.is_last)

    def _append_held(self, held: Held, events: list[Event]) -> None:
        end = self._end_of_bytes()
        self._holding().add(held, end)
        if end == self.prefix.size:
            self._recall_prefix(end, events)
        else:
            self._reach = held.end

    def _finish_record(self, sequence: int, *, more: bool, is_last: bool) -> None:
        self._callback = sequence if more else None
        if not more:
            self._finish_callback(self._end_of_bytes(), is_last=is_last)

    def _finish_callback(self, end: int, *, is_last: bool) -> None:
        self.chunks += 1
        if is_last:
            self._known_end = max(self._known_end, end)
            self._reach = max(self._reach, end)
        if is_last or self._text is not None:
            self.closed = is_last

    def _place(self, offset: int, data: Chunk | memoryview, events: list[Event]) -> bool:
        """Put *data*, which is not empty, at *offset*; return whether the same was put there before."""
        length = len(data)
        digest = (offset, length, xxh3_64_intdigest(data))
        if self._digests is None:
            self._digests = set()
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
        return max(self.prefix.size, self._reach)

    def _holding(self) -> HeldPieces:
        if self._held is None:
            self._held = HeldPieces(self)
        return self._held

    def _hold(self, offset: int, data: Bytes, events: list[Event]) -> None:
        self._holding().hold(offset, data, events)
        self._reach = max(self._reach, offset + len(data))

    def _extend_prefix(self, data: Bytes, events: list[Event]) -> None:
        start = self.prefix.size
        end = start + len(data)
        held = self._held
        if held is None or not held.pieces or held.pieces[0].offset > end:
            self.pass_on(self.prefix, start, data, events)
            self.prefix.size = end
            return
        view = memoryview(data)
        for at, stop, first in held.divide(start, end):
            piece = view[at - start : stop - start]
            if first is None:
                self.pass_on(self.prefix, at, piece, events)
            else:
                held.repeat(at, piece, first, events)
                recall(first, self.prefix, events)
        self._recall_prefix(end, events)

    def _recall_prefix(self, end: int, events: list[Event]) -> None:
        """Recall what continues the prefix, which reaches to *end*."""
        held_pieces = self._holding()
        for held in held_pieces.take(end):
            if held.part is None:
                recall(held, self.prefix, events)
            end = max(end, held.end)
        self.prefix.size = end
        if not held_pieces.pieces:
            self._held = None

    def restore(self, held: Held, data: Buffer) -> list[Event]:
        """Take back the bytes of *held*, which was recalled: pass them on, or compare them."""
        events: list[Event] = []
        part, held.part = held.part, None
        if held.first is not None:
            self.overlapped = differs(held, data) or self.overlapped
        elif part is not None:
            self.pass_on(part, held.offset, data, events)
            held.data = data if held.repeats else None
        return events
