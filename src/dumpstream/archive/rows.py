r"""Rows: the lines of a journal, written and read.

Lines are ASCII. A name or path with bytes that are not UTF-8 is text with surrogate escapes, which JSON shows
as ``\udcXX`` and which are read back exactly.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quote
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

from dumpstream.archive.alertrow import AlertRow
from dumpstream.format.verdict import Verdict
from dumpstream.system.nofollow import open_regular

#: The journal's name in the directory of a capture.
JOURNAL = "journal.jsonl"

#: Why the bytes of a file were not stored: the capture stores only the files that its options choose.
FILTERED = "filtered"

_LARGEST = 1 << 62  # more bytes than any file has; the sum of two still fits the system's offsets


class Outcome(StrEnum):
    """How a run of the pipeline ended."""

    FINISHED = "finished"  #: everything that came was drained
    FAILED = "failed"  #: an error ended it early
    CANCELLED = "cancelled"  #: the caller ended it early


class StoredPart(NamedTuple):
    """A contiguous run of a file's bytes, as one sink stored it."""

    sink: str
    path: str | None  #: relative to the capture if inside it; None if there is nothing to open
    offset: int  #: where the bytes belong; not 0 only behind a gap
    bytes: int
    stored_bytes: int
    xxh3: str | None
    start: int | None = None  #: where in the pack at *path* the bytes begin; None if it is not a pack
    etag: str | None = None  #: the entity tag that an object store gave


class BeginRow(NamedTuple):
    """A run began."""

    run: int
    time: str

    def to_line(self) -> str:
        return _line("begin", self)


class FileRow(NamedTuple):
    """A file was finished; a name that comes again later gets a row of its own."""

    name: str
    bytes: int
    chunks: int
    verdict: Verdict
    stored: Sequence[StoredPart]
    cause: str | None = None  #: of the first loss, or why text may lack its end
    lost_bytes: int = 0
    missing: Sequence[tuple[int, int]] = ()  #: start and end of the ranges that never came
    duplicates: int = 0
    not_stored: str | None = None  #: why no sink was to store its bytes: `FILTERED`; such a file is not lost
    step: int | None = None  #: that the program had marked when it began; None if its name has one

    def to_line(self) -> str:
        """Return the line, formatted by hand: `json.dumps` takes three times as long, and files are many."""
        name, size, chunks, verdict, stored, cause, lost_bytes, missing, duplicates, not_stored, step = self
        parts = ",".join([_part_text(part) for part in stored])
        more = ""
        if cause is not None:
            more = f',"cause":{quote(cause)}'
        if lost_bytes:
            more += f',"lost_bytes":{lost_bytes}'
        if missing:
            ranges = ",".join([f"[{start},{end}]" for start, end in missing])
            more += f',"missing":[{ranges}]'
        if duplicates:
            more += f',"duplicates":{duplicates}'
        if not_stored is not None:
            more += f',"not_stored":{quote(not_stored)}'
        if step is not None:
            more += f',"step":{step}'
        return (
            f'{{"type":"file","name":{quote(name)},"bytes":{size},"chunks":{chunks},'
            f'"verdict":"{verdict}","stored":[{parts}]{more}}}'
        )


class LossRow(NamedTuple):
    """All that a run lost to one cause."""

    cause: str
    chunks: int
    bytes: int

    def to_line(self) -> str:
        return _line("loss", self)


class MergedRow(NamedTuple):
    """The journal of an object store holds all segments up to the one of this number."""

    through: int

    def to_line(self) -> str:
        return _line("merged", self)


class EndRow(NamedTuple):
    """A run ended; all its rows are before this one."""

    run: int
    time: str
    outcome: Outcome
    report: Mapping[str, Any]

    def to_line(self) -> str:
        return _line("end", self)


class UnreadableRow(NamedTuple):
    """A line that cannot be read."""

    line: int  #: counted from 1
    torn: bool  #: whether a process was stopped while it wrote the line, or is still writing it


Row = BeginRow | FileRow | LossRow | MergedRow | AlertRow | EndRow | UnreadableRow


def timestamp() -> str:
    """Return the time now in the format of the journal and the manifest."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def is_finished_file(line: str) -> bool:
    """Whether *line*, which a function of this module made, is that of a file that was not lost."""
    return line.startswith('{"type":"file"') and '"verdict":"lost"' not in line


def _line(kind: str, row: BeginRow | LossRow | MergedRow | EndRow) -> str:
    return json.dumps({"type": kind, **row._asdict()})


def part_beginning(sink: str, path: str | None) -> str:
    """Return text that is in a line if, and only if, the file has a part of *sink* at *path*."""
    return f'{sink_beginning(sink)}"path":{"null" if path is None else quote(path)},'


def sink_beginning(sink: str) -> str:
    """Return text that is in a line if, and only if, the file has a part of *sink*."""
    return f'{{"sink":{quote(sink)},'


def _part_text(part: StoredPart) -> str:
    sink, path, offset, size, stored_bytes, xxh3, start, etag = part
    text = (
        f'{part_beginning(sink, path)}"offset":{offset},'
        f'"bytes":{size},"stored_bytes":{stored_bytes},"xxh3":{"null" if xxh3 is None else quote(xxh3)}'
    )
    if start is not None:
        text += f',"start":{start}'
    if etag is not None:
        text += f',"etag":{quote(etag)}'
    return text + "}"


def read_journal(path: str | Path, *, dir_fd: int | None = None) -> Iterator[Row]:
    """Yield the rows of the journal at *path*, from *dir_fd* on, also while it is being written.

    A line that cannot be read becomes an `UnreadableRow` and the next lines are read as usual.

    Raises:
        OSError: *path* cannot be opened, or is a symbolic link.
    """
    with os.fdopen(open_regular(path, os.O_RDONLY, dir_fd=dir_fd), "rb") as file:
        yield from read_rows(file)


def read_rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """Yield the rows of *lines*, as `read_journal` does."""
    unreadable: UnreadableRow | None = None
    ended = True
    for number, line in enumerate(lines, 1):
        ended = line.endswith(b"\n")
        row = parse_line(line, number)
        if unreadable is not None:
            # A run that follows a killed one ends the unfinished line.
            yield unreadable._replace(torn=isinstance(row, BeginRow))
            unreadable = None
        if isinstance(row, UnreadableRow):
            unreadable = row
        else:
            yield row
    if unreadable is not None:
        yield unreadable._replace(torn=not ended)


def parse_line(line: bytes, number: int = 0) -> Row:
    """Return the row of *line*; an `UnreadableRow` has its *number*, and is not called torn yet."""
    try:
        if line.isascii() and (common := _common_file(line.decode("ascii"))) is not None:
            return common
        fields = json.loads(line)
        return _ROWS[fields["type"]](fields)
    # RecursionError: a line of a hundred thousand brackets.
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return UnreadableRow(number, torn=False)


# Lines of files without a loss, as `FileRow.to_line` writes them, with nothing that JSON escapes: nearly all
# of a journal, and read in a third of the time.
_PLAIN, _WHOLE = r'"([^"\\\0-\x1f]*)"', "(0|[1-9][0-9]{0,17})"
_PART = (
    rf'{{"sink":{_PLAIN},"path":{_PLAIN},"offset":{_WHOLE},"bytes":{_WHOLE},"stored_bytes":{_WHOLE},'
    rf'"xxh3":(?:{_PLAIN}|null)(?:,"start":{_WHOLE})?}}'
)
_COMMON_FILE = re.compile(
    rf'{{"type":"file","name":{_PLAIN},"bytes":{_WHOLE},"chunks":{_WHOLE},"verdict":"(\w+)","stored":\[{_PART}'
)
_COMMON_PART = re.compile(f",{_PART}")
_NO_LOSS = (None, 0, (), 0)  # the cause of a `FileRow` in such a line, and what follows it
_COMMON_END = re.compile(rf'\](?:,"not_stored":"({FILTERED})")?(?:,"step":{_WHOLE})?}}\n')
_VERDICTS = {str(verdict): verdict for verdict in Verdict}


def _common_file(line: str) -> FileRow | None:
    """Return the row of a file if *line* is one of the common ones."""
    match = _COMMON_FILE.match(line)
    if match is None:
        return None
    name, size, chunks, verdict, *part = match.groups()
    behind = _parts_behind(line[match.end() :])
    if behind is None:
        return None
    others, not_stored, step = behind
    # A named tuple's own constructor is a Python function and takes three times as long.
    fields = (name, int(size), int(chunks), _VERDICTS[verdict], (_common_part(part), *others))
    return tuple.__new__(FileRow, (*fields, *_NO_LOSS, not_stored, step))


def _common_part(texts: Sequence[Any]) -> StoredPart:
    sink, path, offset, size, occupied, xxh3, start = texts
    at = None if start is None else int(start)
    fields = (intern(sink), intern(path), int(offset), int(size), int(occupied), xxh3, at, None)
    return tuple.__new__(StoredPart, fields)


@lru_cache(4096)
def _parts_behind(text: str) -> tuple[tuple[StoredPart, ...], str | None, int | None] | None:
    """Return the parts after the first, why the file was not stored, if so, and the step, if it was marked.

    *text* is the end of the line, and often the same for many files.
    """
    parts = []
    position = 0
    while match := _COMMON_PART.match(text, position):
        parts.append(_common_part(match.groups()))
        position = match.end()
    end = _COMMON_END.fullmatch(text, position)
    if end is None:
        return None
    not_stored, step = end.groups()
    return tuple(parts), not_stored, None if step is None else int(step)


def _file(fields: dict[str, Any]) -> FileRow:
    cause, not_stored, step = fields.get("cause"), fields.get("not_stored"), fields.get("step")
    return FileRow(
        _path(fields["name"]),
        _count(fields["bytes"]),
        _count(fields["chunks"]),
        Verdict(fields["verdict"]),
        tuple([_part(part) for part in fields["stored"]]),
        cause if cause is None else _text(cause),
        _count(fields.get("lost_bytes", 0)),
        tuple([(_count(start), _count(end)) for start, end in fields.get("missing", ())]),
        _count(fields.get("duplicates", 0)),
        not_stored if not_stored is None else _text(not_stored),
        step if step is None else _count(step),
    )


def _part(fields: dict[str, Any]) -> StoredPart:
    path, xxh3, start, etag = fields["path"], fields["xxh3"], fields.get("start"), fields.get("etag")
    return StoredPart(
        _text(fields["sink"]),
        path if path is None else _path(path),
        _count(fields["offset"]),
        _count(fields["bytes"]),
        _count(fields["stored_bytes"]),
        xxh3 if xxh3 is None else _text(xxh3),
        start if start is None else _count(start),
        etag if etag is None else _text(etag),
    )


_ROWS: dict[str, Callable[[dict[str, Any]], Row]] = {
    "begin": lambda it: BeginRow(_count(it["run"]), _text(it["time"])),
    "file": _file,
    "loss": lambda it: LossRow(_text(it["cause"]), _count(it["chunks"]), _count(it["bytes"])),
    "merged": lambda it: (
        AlertRow.from_fields(it["alert"]) if "alert" in it else MergedRow(_count(it["through"]))
    ),
    "end": lambda it: EndRow(
        _count(it["run"]), _text(it["time"]), Outcome(it["outcome"]), dict(it["report"])
    ),
}


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(value)
    return value


def _path(value: Any) -> str:
    """Return *value* if the system could take it as a path: it can be encoded and has no NUL."""
    if b"\0" in os.fsencode(_text(value)):
        raise ValueError(value)
    return _text(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ValueError(value)
    return value
