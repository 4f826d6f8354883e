"""Chunks in, files in order out. Does no I/O, never waits, and gets the time from its caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from typing_extensions import Buffer

from dumpstream._native import read_header
from dumpstream.chunk import APPEND, Chunk
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.format.verdict import WHOLE_HEADER, Verdict, judge
from dumpstream.stages.assembly import File
from dumpstream.stages.events import Event, Held, Piece, Whole

#: Ended files of statistics text whose header rows are remembered.
_MAX_HEADER_ROWS = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ReassemblyOptions:
    """When a file is given up, and how much is remembered of an open one."""

    idle_timeout: float | None = 660.0  #: seconds; longer than the runtime tries to send a chunk
    text_idle_timeout: float | None = 10.0  #: seconds; for statistics text, which has no last chunk
    max_digests: int = 1024  #: chunks with offsets, per open file, that are recognised if they come again
    max_header_bytes: int = 1 << 20  #: of a header that comes in several chunks; a larger one is not read

    def __post_init__(self) -> None:
        for name in ("idle_timeout", "text_idle_timeout"):
            timeout = getattr(self, name)
            if timeout is not None and not timeout >= 0:  # also refuses NaN
                raise ValueError(f"{name} must be at least 0 seconds, or None for no limit, not {timeout}")
        for name in ("max_digests", "max_header_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, not {getattr(self, name)}")


class Reassembler:
    """Puts the chunks of interleaved files in order.

    Every method returns events. The caller handles them in order, and all of them before the next call; only
    a `Recall` it answers at once, by `restore`.
    """

    def __init__(self, options: ReassemblyOptions | None = None) -> None:
        self._options = options or ReassemblyOptions()
        self._files = _OpenFiles(self._options.idle_timeout)
        self._texts = _OpenFiles(self._options.text_idle_timeout)
        self._header_rows: dict[str, bytes] = {}  #: of ended statistics text, the latest name last

    @property
    def open_files(self) -> int:
        """The number of unfinished files."""
        return len(self._files.by_name) + len(self._texts.by_name)

    def feed(self, chunks: Sequence[Chunk], now: float) -> list[Event]:
        """Take in a batch of chunks. Its bytes must stay valid until all events are handled."""
        events: list[Event] = []
        emit = events.append
        files = self._files.by_name
        # A named tuple's own constructor is a Python function and takes twice as long.
        new = tuple.__new__
        complete = Verdict.COMPLETE
        for chunk in chunks:
            name = chunk.name
            file = files.get(name)
            if file is None:
                if chunk.is_last and chunk.offset <= 0 and not chunk.more and not name.endswith(TEXT_SUFFIX):
                    length = len(chunk)
                    header = read_header(chunk)
                    # The common case of judge(), without the call.
                    agrees = header[1] == length and header[0] == WHOLE_HEADER
                    emit(new(Whole, (chunk, complete if agrees else judge(length, header))))
                    continue
                file = self._find(name, now)
            elif file.plain and chunk.offset == APPEND and not chunk.is_last and not chunk.more:
                length = len(chunk)
                if length:
                    part = file.prefix
                    part.size += length
                    emit(new(Piece, (part, chunk)))
                file.chunks += 1
                file.touched = now
                continue
            file.touched = now
            file.add(chunk, events)
            if file.complete:
                self._settle(file, events)
        return events

    def restore(self, held: Held, data: Buffer) -> list[Event]:
        """Take back the bytes of a `Recall`; handle the events before those that follow the `Recall`.

        Raises:
            ValueError: *held* is not being recalled, or *data* has another length.
        """
        merge, held.merge = held.merge, None
        if merge is None:
            raise ValueError("these bytes are not being recalled; restore() answers a Recall, once")
        if memoryview(data).nbytes != held.length:
            raise ValueError(f"{memoryview(data).nbytes} bytes restored where {held.length} were held")
        return merge.add(held.offset, data, order=held.order, until=held.until)

    def lose(self, name: str, cause: str, size: int, *, ended: bool, now: float) -> list[Event]:
        """Note that *size* bytes of *name* are lost; *ended* if the last chunk is among them."""
        events: list[Event] = []
        file = self._find(name, now)
        file.touched = now
        file.cause = file.cause or cause
        file.lost_bytes += size
        file.give_up_callback(events)
        self._settle(file, events, closing=ended and not file.text)
        return events

    def expire(self, now: float) -> list[Event]:
        """Close the files that have got nothing for too long."""
        events: list[Event] = []
        for file in self._files.find_idle(now) + self._texts.find_idle(now):
            self._settle(file, events, closing=True)
        return events

    def finish(self, cut_off: str | None = None) -> list[Event]:
        """Close every file, because nothing more will come.

        *cut_off* is why the producer did not end in order, if so: then text may lack its end.
        """
        events: list[Event] = []
        for file in self._texts.by_name.values():
            file.cut_off = cut_off
        for file in [*self._files.by_name.values(), *self._texts.by_name.values()]:
            self._settle(file, events, closing=True)
        return events

    def _find(self, name: str, now: float) -> File:
        """Return the open file *name*; open it if it is not."""
        files = self._files_like(name)
        file = files.by_name.get(name)
        if file is None:
            first_row = self._header_rows.pop(name, None)
            file = File(name, now, self._options.max_digests, self._options.max_header_bytes, first_row)
            files.add(file)
        return file

    def _files_like(self, name: str) -> _OpenFiles:
        return self._texts if name.endswith(TEXT_SUFFIX) else self._files

    def _settle(self, file: File, events: list[Event], *, closing: bool = False) -> None:
        """End *file* if it is complete or *closing*; likewise the file that begins behind its last chunk."""
        while closing or file.complete:
            while closing and file.unfinished:
                file.give_up_callback(events)
            waiting = file.close(events)
            del self._files_like(file.name).by_name[file.name]
            self._keep_header_row(file)
            if not waiting:
                return
            file = self._find(file.name, file.touched)
            file.take_over(waiting, events)

    def _keep_header_row(self, file: File) -> None:
        """Remember the header row of *file*, so that a later file of the same name does not repeat it."""
        if file.header_row is not None:
            self._header_rows[file.name] = file.header_row
            if len(self._header_rows) > _MAX_HEADER_ROWS:
                del self._header_rows[next(iter(self._header_rows))]


class _OpenFiles:
    """The open files with the same time limit.

    Does not look at all files at every call: it looks again when the file that is idle longest may be due,
    but not before a sixteenth of the limit has passed. So a file may be found that much later.
    """

    __slots__ = ("_due", "_timeout", "by_name")

    def __init__(self, timeout: float | None) -> None:
        self.by_name: dict[str, File] = {}
        self._timeout = inf if timeout is None else timeout
        self._due = inf

    def add(self, file: File) -> None:
        """Add a file that was just opened."""
        self.by_name[file.name] = file
        self._due = min(self._due, file.touched + self._timeout)

    def find_idle(self, now: float) -> list[File]:
        """Return the files that have got nothing for too long."""
        if now < self._due:
            return []
        timeout = self._timeout
        files = self.by_name.values()
        idle = [file for file in files if file.touched + timeout <= now]
        oldest = min((file.touched for file in files if file.touched + timeout > now), default=inf)
        self._due = max(oldest + timeout, now + timeout / 16)
        return idle
