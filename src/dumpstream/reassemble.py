"""Chunks in, files in order out. Does no I/O, never waits, and gets the time from its caller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import Buffer

from dumpstream._native import read_header
from dumpstream.chunk import APPEND, Chunk, Loss
from dumpstream.format.opname import parse_name
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.format.verdict import WHOLE_HEADER, Verdict, judge
from dumpstream.stages.assembly import File
from dumpstream.stages.events import End, Event, Held, Hold, Part, Piece, Recall, Whole
from dumpstream.stages.openfiles import OpenFiles

#: Ended files of statistics text whose header rows are remembered.
_MAX_HEADER_ROWS = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ReassemblyOptions:
    """When a file is given up, and how much is remembered of open ones."""

    idle_timeout: float | None = 660.0  #: seconds; longer than the runtime tries to send a chunk
    text_idle_timeout: float | None = 10.0  #: seconds; for statistics text, which has no last chunk
    max_digests: int = 1024  #: chunks with offsets, per open file, that are recognised if they come again
    max_header_bytes: int = 1 << 20  #: of a header that comes in several chunks; a larger one is not read
    max_pieces: int = 1024  #: of an open file, that wait behind a gap; what comes beyond them is lost
    max_open_files: int = 1 << 14  #: one more closes the file that has been idle longest
    max_open_bytes: int = 64 << 20  #: memory that open files take besides their bytes; more closes files too

    def __post_init__(self) -> None:
        for name in ("idle_timeout", "text_idle_timeout"):
            timeout = getattr(self, name)
            if timeout is not None and not timeout >= 0:  # also refuses NaN
                raise ValueError(f"{name} must be at least 0 seconds, or None for no limit, not {timeout}")
        for name in ("max_digests", "max_header_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, not {getattr(self, name)}")
        for name in ("max_pieces", "max_open_files", "max_open_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class AssembledFile:
    """A file that `assemble` has put together."""

    name: str
    verdict: Verdict
    #: Each run of contiguous bytes, behind where it begins in the file; several only if the file has gaps.
    parts: tuple[tuple[int, bytes], ...]

    @property
    def data(self) -> bytes:
        """The bytes of the file, up to its first gap."""
        return self.parts[0][1]


def assemble(
    chunks: Iterable[Chunk | Loss], options: ReassemblyOptions | None = None
) -> Iterator[AssembledFile]:
    """Yield every file as soon as its last chunk has come, and the others when *chunks* end.

    The files that are open and those that have been yielded last are in memory. For files larger than that,
    use a `Reassembler`, which passes their pieces on. Chunks may be released once the next one is asked for.

    Args:
        chunks: of any number of files, interleaved; a `Loss` among them marks its file as lost.
        options: how much is remembered of open files. The timeouts have no effect.

    Raises:
        TypeError: an item is neither a chunk nor a loss.
    """
    reassembler = Reassembler(options)
    joiner = _Joiner(reassembler)
    for chunk in chunks:
        if isinstance(chunk, Chunk):
            yield from joiner.join(reassembler.feed([chunk], 0.0))
        elif isinstance(chunk, Loss):
            name, cause, size, ended = chunk
            yield from joiner.join(reassembler.lose(name, cause, size, ended=ended, now=0.0))
        else:
            raise TypeError(f"assemble() takes chunks and losses one by one, not {chunk!r:.80}")
    yield from joiner.join(reassembler.finish())


class _Joiner:
    """Handles the events of *reassembler* in memory."""

    def __init__(self, reassembler: Reassembler) -> None:
        self._reassembler = reassembler
        self._pieces: dict[Part, bytearray] = {}
        self._held: dict[Held, bytes] = {}

    def join(self, events: Iterable[Event]) -> Iterator[AssembledFile]:
        """Yield the files that end with *events*."""
        for event in events:
            match event:
                case Whole(chunk, verdict):
                    yield AssembledFile(chunk.name, verdict, ((0, bytes(chunk)),))
                case Piece(part, data):
                    self._pieces.setdefault(part, bytearray()).extend(memoryview(data))
                case Hold(held, data):
                    self._held[held] = bytes(data)
                case Recall(held):
                    yield from self.join(self._reassembler.restore(held, self._held.pop(held)))
                case End(file):
                    parts = [(part.offset, bytes(self._pieces.pop(part, b""))) for part in file.parts]
                    yield AssembledFile(file.name, file.verdict, tuple(parts))


class Reassembler:
    """Puts the chunks of interleaved files in order.

    Every method returns events, some as they are asked for. The caller handles them in order, and all of them
    before the next call; only a `Recall` it answers at once, by `restore`.
    """

    def __init__(self, options: ReassemblyOptions | None = None) -> None:
        self._options = options or ReassemblyOptions()
        self._open = OpenFiles(
            most=self._options.max_open_files,
            most_bytes=self._options.max_open_bytes,
            timeout=self._options.idle_timeout,
            text_timeout=self._options.text_idle_timeout,
        )
        self._header_rows: dict[str, bytes] = {}  #: of ended statistics text, the latest name last
        self._step: int | None = None

    @property
    def open_files(self) -> int:
        """The number of unfinished files."""
        return len(self._open)

    def mark(self, step: int | None) -> None:
        """Let files that begin from now on have *step*, unless their names have one."""
        self._step = step

    def feed(self, chunks: Sequence[Chunk], now: float) -> list[Event]:
        """Take in a batch of chunks. Its bytes must stay valid until all events are handled."""
        events: list[Event] = []
        emit = events.append
        files = self._open.dumps
        # A named tuple's own constructor is a Python function and takes twice as long.
        new = tuple.__new__
        complete = Verdict.COMPLETE
        marked = self._step
        for chunk in chunks:
            name = chunk.name
            file = files.get(name)
            if file is None:
                if chunk.is_last and chunk.offset <= 0 and not chunk.more and not name.endswith(TEXT_SUFFIX):
                    length = len(chunk)
                    header = read_header(chunk)
                    # The common case of judge(), without the call.
                    agrees = header[1] == length and header[0] == WHOLE_HEADER
                    verdict = complete if agrees else judge(length, header)
                    step = None if marked is None else _step_of(name, marked)
                    emit(new(Whole, (chunk, verdict, step)))
                    continue
                file = self._find(name, now)
            elif file.plain and chunk.offset == APPEND and not chunk.is_last and not chunk.more:
                length = len(chunk)
                if length:
                    part = file.prefix
                    part.size += length
                    emit(new(Piece, (part, chunk)))
                file.chunks += 1
                if file.touched != now:
                    self._open.touch(file, now)
                continue
            self._open.touch(file, now)
            self._add(chunk, file, events)
        return events

    def restore(self, held: Held, data: Buffer) -> list[Event]:
        """Take back the bytes of a `Recall`; handle the events before those that follow the `Recall`.

        Raises:
            ValueError: *held* is not being recalled, or *data* has another length.
        """
        if held.part is None:
            raise ValueError("these bytes are not being recalled; restore() answers a Recall, once")
        if memoryview(data).nbytes != held.length:
            raise ValueError(f"{memoryview(data).nbytes} bytes restored where {held.length} were held")
        return held.file.restore(held, data)

    def lose(self, name: str, cause: str, size: int, *, ended: bool, now: float) -> list[Event]:
        """Note that *size* bytes of *name* are lost; *ended* if the last chunk is among them."""
        events: list[Event] = []
        file = self._find(name, now)
        self._open.touch(file, now)
        file.cause = file.cause or cause
        file.lost_bytes += size
        file.give_up_callback(events)
        self._settle(file, events, closing=ended and not file.text)
        self._close_surplus(file, events)
        return events

    def expire(self, now: float) -> Iterator[Event]:
        """Close the files that have got nothing for too long, each when the events before it are handled."""
        while (file := self._open.next_idle(now)) is not None:
            events: list[Event] = []
            self._settle(file, events, closing=True)
            yield from events

    def finish(self, cut_off: str | None = None) -> Iterator[Event]:
        """Close every file, because nothing more will come, as `expire` does.

        *cut_off* is why the producer did not end in order, if so: then text may lack its end.
        """
        while (file := self._open.next_open()) is not None:
            if file.text:
                file.cut_off = cut_off
            events: list[Event] = []
            self._settle(file, events, closing=True)
            yield from events

    def _add(self, chunk: Chunk, file: File, events: list[Event]) -> None:
        file.add(chunk, events, self._step)
        ended = file.refusing and chunk.is_last and not chunk.more and not file.text
        if ended or file.complete:
            self._settle(file, events, closing=ended)
        else:
            self._open.weigh(file)
            self._close_surplus(file, events)

    def _find(self, name: str, now: float) -> File:
        """Return the open file *name*; open it if it is not."""
        return self._open.find(name) or self._begin(name, now, self._step)

    def _begin(self, name: str, now: float, step: int | None) -> File:
        """Open the file *name*, of which the first chunk came at *step*."""
        options = self._options
        limits = options.max_pieces, options.max_digests, options.max_header_bytes
        file = File(name, now, *limits, self._header_rows.pop(name, None))
        file.prefix.step = _step_of(name, step)
        self._open.add(file)
        return file

    def _close_surplus(self, latest: File, events: list[Event]) -> None:
        """As long as too many files are open, close the one that has been idle longest, but not *latest*."""
        while (file := self._open.next_surplus(latest)) is not None:
            file.surplus = True
            self._settle(file, events, closing=True)

    def _settle(self, file: File, events: list[Event], *, closing: bool = False) -> None:
        """End *file* if it is complete or *closing*; likewise the file that begins behind its last chunk."""
        while closing or file.complete:
            while closing and file.unfinished:
                file.give_up_callback(events)
            waiting = file.close(events)
            self._open.remove(file)
            self._keep_header_row(file)
            if not waiting:
                return
            first = next(iter(waiting.values()))[0]
            file = self._begin(file.name, file.touched, first.step)
            file.take_over(waiting, events)

    def _keep_header_row(self, file: File) -> None:
        """Remember the header row of *file*, so that a later file of the same name does not repeat it."""
        if file.header_row is not None:
            self._header_rows[file.name] = file.header_row
            if len(self._header_rows) > _MAX_HEADER_ROWS:
                del self._header_rows[next(iter(self._header_rows))]


def _step_of(name: str, marked: int | None) -> int | None:
    """Return the step that was *marked*, unless *name* has one itself."""
    return None if marked is None or parse_name(name).iteration is not None else marked
