"""A capture, read back: which files it has, in which state it is, and the original bytes."""

from __future__ import annotations

import os
from contextlib import contextmanager
from enum import StrEnum
from io import BufferedReader, RawIOBase
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple

import xxhash
import zstandard

from dumpstream._errors import NotACaptureError, PartError
from dumpstream.lock import lock_holder
from dumpstream.manifest import read_manifest
from dumpstream.nofollow import open_directory, open_regular
from dumpstream.rows import (
    JOURNAL,
    BeginRow,
    EndRow,
    FileRow,
    LossRow,
    MergedRow,
    UnreadableRow,
    read_journal,
)
from dumpstream.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import FileIO

    from typing_extensions import Buffer

    from dumpstream.manifest import Manifest
    from dumpstream.rows import Outcome, Row, StoredPart

_ORDER = list(Verdict)
_READABLE_SINK = "zstd"
_BLOCK_BYTES = 1 << 20
_DAMAGED = "restore it from a copy or capture again"


class State(StrEnum):
    """Whether a capture has all it will ever have."""

    RUNNING = "running"  #: a process is writing it now
    INTERRUPTED = "interrupted"  #: a run was stopped before it could finish its journal
    FINISHED = "finished"


class Loss(NamedTuple):
    """All that was lost to one cause."""

    cause: str
    chunks: int
    bytes: int


class StoredFile:
    """All that came under one name; a name that comes again adds a row."""

    __slots__ = ("name", "rows")

    def __init__(self, name: str, rows: Iterable[FileRow]) -> None:
        self.name = name
        self.rows = tuple(rows)

    @property
    def bytes(self) -> int:
        """The original bytes, over all rows."""
        return sum(row.bytes for row in self.rows)

    @property
    def stored_bytes(self) -> int:
        """What they occupy, in all sinks together."""
        return sum(part.stored_bytes for row in self.rows for part in row.stored)

    @property
    def chunks(self) -> int:
        """The callbacks that brought it."""
        return sum(row.chunks for row in self.rows)

    @property
    def verdict(self) -> Verdict:
        """The worst of its rows' verdicts."""
        return min((row.verdict for row in self.rows), key=_ORDER.index)

    @property
    def cause(self) -> str | None:
        """The cause of the first loss, if any."""
        return next((row.cause for row in self.rows if row.cause is not None), None)

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """The ranges that never came, row by row, each counted from the start of its row."""
        return tuple(range_ for row in self.rows for range_ in row.missing)

    @property
    def parts(self) -> tuple[StoredPart, ...]:
        """Every part once, in order, however many sinks have it; preferably as it can be read back."""
        return tuple(part for row in self.rows for part in parts_of(row))

    @property
    def path(self) -> str | None:
        """Where the first part is, relative to the capture if inside it."""
        return next((part.path for part in self.parts if part.path is not None), None)

    @property
    def readable(self) -> bool:
        """Whether there is something of it to read back, and nothing that cannot be."""
        return bool(self.parts) and all(is_readable(part) for part in self.parts)


class StoredCapture:
    """What the directory of a capture says, as of when it was opened."""

    def __init__(self, path: Path, manifest: Manifest, *, pid: int | None, rows: Iterable[Row]) -> None:
        self.path = path
        self.manifest = manifest
        self.pid = pid  #: the process that is writing it, if any
        self.unreadable_lines: list[int] = []  #: journal lines that say nothing
        self.torn = False  #: whether a writer was stopped in the middle of a line
        self.outcomes: dict[int, Outcome | None] = dict.fromkeys(run.run for run in manifest.runs)
        self._losses: dict[str, Loss] = {}
        files: dict[str, list[FileRow]] = {}
        for row in rows:
            if isinstance(row, FileRow):
                files.setdefault(row.name, []).append(row)
            else:
                self._note(row)
        self.files = tuple(StoredFile(name, of_name) for name, of_name in files.items())

    @classmethod
    def open(cls, path: Path) -> StoredCapture:
        """Read the manifest and the journal in the directory *path*, also while a capture writes there.

        Raises:
            NotACaptureError: there is no capture, or one that this version cannot read.
        """
        manifest = read_manifest(path)
        if manifest.processes:
            first = manifest.processes[0].directory
            raise NotACaptureError(path, f"holds captures of several processes; name one, such as {first}")
        if not manifest.runs:
            raise NotACaptureError(path, "holds no capture: no run has begun there; capture into it")
        # Before the journal: a capture that ends in between has then written all its rows.
        pid = lock_holder(path)
        try:
            return cls(path, manifest, pid=pid, rows=read_journal(path / JOURNAL))
        except FileNotFoundError:  # killed before its first row
            return cls(path, manifest, pid=pid, rows=())
        except OSError as exc:
            raise NotACaptureError(path, f"cannot be read: {JOURNAL}: {exc.strerror}") from exc

    @property
    def running(self) -> bool:
        """Whether a process is writing it now."""
        return self.pid is not None

    @property
    def interrupted(self) -> bool:
        """Whether a run that is not the one running has no end in the journal."""
        open_runs = {run for run, outcome in self.outcomes.items() if outcome is None}
        if self.running:
            open_runs.discard(max(self.outcomes, default=0))
        return bool(open_runs)

    @property
    def state(self) -> State:
        """Whether more will come, and whether all that came was finished."""
        if self.running:
            return State.RUNNING
        return State.INTERRUPTED if self.interrupted else State.FINISHED

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What was lost, by cause, whether the files' names are known or not."""
        return tuple(self._losses.values())

    def read_part(self, part: StoredPart) -> Iterator[memoryview]:
        """Yield the original bytes of *part*, block by block; a block is valid until the next is asked for.

        Raises:
            PartError: it is missing, or what is there is not what was stored; also raised after the last
                block, as only then the checksum is known.
        """
        if part.path is None or not is_readable(part):
            raise PartError(
                part.path or part.sink, f"was stored by the sink {part.sink}, which cannot be read back"
            )
        digest = xxhash.xxh3_64()
        size = 0
        with self._open_part(part.path, part) as file, _decompressed(part.path):
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            buffer = memoryview(bytearray(min(_BLOCK_BYTES, part.bytes + 1)))
            while length := reader.readinto(buffer):
                size += length
                if size > part.bytes:
                    break
                digest.update(buffer[:length])
                yield buffer[:length]
        if size != part.bytes:
            more = "more" if size > part.bytes else "fewer"
            raise PartError(part.path, f"holds {more} than the {part.bytes} bytes stored; {_DAMAGED}")
        if part.xxh3 is not None and digest.hexdigest() != part.xxh3:
            raise PartError(part.path, f"does not match its checksum; {_DAMAGED}")

    def open_stored(self, path: str) -> FileIO:
        """Open what a sink left at *path*, as a row has it: below the capture, or anywhere if absolute.

        Raises:
            PartError: it is missing, or cannot be opened.
        """
        try:
            fd = self._open_below(PurePosixPath(path))
        except FileNotFoundError:
            raise PartError(path, f"is missing; {_DAMAGED}", missing=True) from None
        except OSError as exc:
            raise PartError(path, f"cannot be opened: {exc.strerror}") from exc
        return os.fdopen(fd, "rb", buffering=0)

    @contextmanager
    def _open_part(self, path: str, part: StoredPart) -> Iterator[IO[bytes]]:
        with self.open_stored(path) as file:
            size = os.fstat(file.fileno()).st_size
            if part.start is not None:
                if part.start + part.stored_bytes > size:
                    raise PartError(path, f"has only {size} bytes; {_DAMAGED}")
                yield BufferedReader(_Range(file, part.start, part.stored_bytes))
            elif size != part.stored_bytes:
                raise PartError(path, f"has {size} bytes instead of {part.stored_bytes}; {_DAMAGED}")
            else:
                yield file

    def _open_below(self, path: PurePosixPath) -> int:
        """Return a descriptor of what a row names; an absolute path is where the user wanted it."""
        if path.is_absolute():
            return open_regular(Path(path), os.O_RDONLY)
        if ".." in path.parts or not path.name:
            raise PartError(str(path), "leads outside the capture; the journal is not to be trusted")
        root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            directory = open_directory(root, path.parts[:-1])
        finally:
            os.close(root)
        try:
            return open_regular(path.name, os.O_RDONLY, dir_fd=directory)
        finally:
            os.close(directory)

    def _note(self, row: BeginRow | EndRow | LossRow | MergedRow | UnreadableRow) -> None:
        if isinstance(row, BeginRow):
            self.outcomes.setdefault(row.run, None)
        elif isinstance(row, EndRow):
            self.outcomes[row.run] = row.outcome
        elif isinstance(row, LossRow):
            _, chunks, size = self._losses.get(row.cause, Loss(row.cause, 0, 0))
            self._losses[row.cause] = Loss(row.cause, chunks + row.chunks, size + row.bytes)
        elif isinstance(row, MergedRow):
            return
        elif row.torn:
            self.torn = True
        else:
            self.unreadable_lines.append(row.line)


class _Range(RawIOBase):
    """What a pack holds of one file."""

    def __init__(self, file: FileIO, start: int, length: int) -> None:
        self._file, self._position, self._end = file, start, start + length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        room = memoryview(buffer)[: self._end - self._position]
        length = os.preadv(self._file.fileno(), [room], self._position)
        self._position += length
        return length


def parts_of(row: FileRow) -> list[StoredPart]:
    """Return the parts of *row* in file order, each once, from a sink that can be read back if possible."""
    by_offset: dict[int, StoredPart] = {}
    for part in row.stored:
        chosen = by_offset.setdefault(part.offset, part)
        if is_readable(part) and not is_readable(chosen):
            by_offset[part.offset] = part
    return [by_offset[offset] for offset in sorted(by_offset)]


def is_readable(part: StoredPart) -> bool:
    """Whether `StoredCapture.read_part` can give the part's bytes back."""
    return part.sink == _READABLE_SINK and part.path is not None


@contextmanager
def _decompressed(path: str) -> Iterator[None]:
    try:
        yield
    except zstandard.ZstdError as exc:
        raise PartError(path, f"is damaged ({exc}); {_DAMAGED}") from exc
    except OSError as exc:
        raise PartError(path, f"cannot be read: {exc.strerror}") from exc
