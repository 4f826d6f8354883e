"""Places: where captures are read, in a directory or in an object store, through one interface."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, Protocol

from typing_extensions import Buffer

from dumpstream._errors import NotACaptureError, PartError
from dumpstream.archive.job import JOB, is_job
from dumpstream.archive.journalfile import JournalFile
from dumpstream.archive.manifest import (
    CHANGES,
    MANIFEST,
    TEMPORARY,
    TEMPORARY_CHANGES,
    Manifest,
    read_manifest,
)
from dumpstream.archive.pulse import Pulse, parse_pulse
from dumpstream.archive.rows import JOURNAL
from dumpstream.system.location import Prefix
from dumpstream.system.lock import LOCK, SHARED, lock_holder, read_beside_lock
from dumpstream.system.nofollow import open_regular, opened_directory, opened_root
from dumpstream.system.publishing import is_temporary
from dumpstream.system.walk import Folder, walk

#: The remedy for a part that is not what was stored.
RESTORE = "restore it from a copy or capture again"

_ELSEWHERE = re.compile(r"/|\w+://")
_OURS = {MANIFEST, CHANGES, JOURNAL, LOCK, SHARED}


class WritingProcess(NamedTuple):
    """A process that is writing a capture."""

    pid: int  #: 0 if it is not known
    host: str | None = None  #: None if it is this one, or not known

    def __str__(self) -> str:
        return f"process {self.pid}" if self.host is None else f"process {self.pid} on {self.host}"


class Opened(NamedTuple):
    """A stored file, open for reading."""

    file: IO[bytes]
    size: int  #: of the whole file, also if only a range was asked for


class Listed(NamedTuple):
    """A file of a capture that is neither its manifest, journal or lock, nor the mark of others' sinks."""

    path: str
    size: int | None = None  #: None if the listing does not say
    etag: str | None = None
    leftover: bool = False  #: whether an unfinished write left it


class JobEntries(NamedTuple):
    """What is directly in the place of a job."""

    hosts: Sequence[str]  #: the directories, each of which is a host's
    others: Sequence[str]  #: files that do not belong there

    @classmethod
    def of(cls, directories: Iterable[str], files: Iterable[str]) -> JobEntries:
        """Return those of *directories* and *files* that are not hidden, nor the mark of the job."""
        hosts = sorted(it for it in directories if not it.startswith("."))
        return cls(hosts, sorted(it for it in files if not it.startswith(".") and it != JOB))


class Place(Protocol):
    """Where one capture, or the captures of several processes, are read. Every call blocks."""

    @property
    def path(self) -> Path | Prefix:
        """Its location."""

    def read_manifest(self) -> Manifest:
        """Return the manifest; raises `NotACaptureError` if there is none that this version can read."""

    def find_writer(self) -> WritingProcess | None:
        """Return the process that is writing there now, if any."""

    def read_pulse(self) -> Pulse | None:
        """Return how the process that is writing there gets on; None if there is none, or it does not say."""

    def open_journal(self) -> JournalFile:
        """Return the journal, which is empty if no line was ever written; raises `NotACaptureError`."""

    def open(self, path: str, start: int, length: int | None) -> Opened:
        """Open a stored file, or *length* bytes of it from *start* on; raises `PartError`."""

    def list(self, without: Container[str] = ()) -> Iterator[Listed]:
        """Yield the files that are there, except those in the directories *without*."""

    def list_job(self) -> JobEntries | None:
        """Return what the job that is there consists of; None if it is not a job."""

    def member(self, directory: str) -> Place:
        """Return the place of one of several captures; raises `NotACaptureError` if it is a link."""


def is_inside(path: str) -> bool:
    """Whether a row's *path* is relative to the capture."""
    return _ELSEWHERE.match(path) is None


class DirectoryPlace:
    """A directory that is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_manifest(self) -> Manifest:
        return read_manifest(self.path)

    def find_writer(self) -> WritingProcess | None:
        pid = lock_holder(self.path)
        return None if pid is None else WritingProcess(pid)

    def read_pulse(self) -> Pulse | None:
        words = read_beside_lock(self.path)
        return None if words is None else parse_pulse(words)

    def open_journal(self) -> JournalFile:
        try:
            return JournalFile.open(self.path / JOURNAL)
        except FileNotFoundError:  # killed before its first row
            return JournalFile.empty()
        except OSError as exc:
            raise NotACaptureError(self.path, f"cannot be read: {JOURNAL}: {exc.strerror}") from exc

    def open(self, path: str, start: int, length: int | None) -> Opened:
        return _open(path, lambda: self._open_below(PurePosixPath(path)), start, length)

    def list(self, without: Container[str] = ()) -> Iterator[Listed]:
        with opened_root(self.path) as root, closing(walk(root)) as folders:
            for folder in folders:
                if not folder.ended:
                    yield from _listed(folder, without)

    def list_job(self) -> JobEntries | None:
        if not is_job(self.path):
            return None
        try:
            with os.scandir(self.path) as entries:
                found = {it.name: it.is_dir() for it in entries}
        except OSError as exc:
            raise NotACaptureError(self.path, f"cannot be read: {exc.strerror}") from exc
        return JobEntries.of(
            [name for name, is_directory in found.items() if is_directory],
            [name for name, is_directory in found.items() if not is_directory],
        )

    def member(self, directory: str) -> DirectoryPlace:
        path = self.path / directory
        if path.is_symlink():
            raise NotACaptureError(path, "is a symbolic link, and not followed")
        return DirectoryPlace(path)

    def _open_below(self, path: PurePosixPath) -> int:
        with opened_root(self.path) as root, opened_directory(root, path.parts[:-1]) as directory:
            return open_regular(path.name, os.O_RDONLY, dir_fd=directory)


def _listed(folder: Folder, without: Container[str]) -> Iterator[Listed]:
    above = folder.path
    folder.folders = [name for name in folder.folders if f"{above}{name}" not in without]
    for name in folder.files:
        if (path := f"{above}{name}") not in _OURS:
            yield Listed(path, leftover=path in {TEMPORARY, TEMPORARY_CHANGES} or is_temporary(name))


def open_file(path: Path, start: int = 0, length: int | None = None) -> Opened:
    """Open a file anywhere, as `Place.open` does."""
    return _open(str(path), lambda: open_regular(path, os.O_RDONLY), start, length)


def _open(path: str, open_fd: Callable[[], int], start: int, length: int | None) -> Opened:
    try:
        file = os.fdopen(open_fd(), "rb", buffering=0)
    except FileNotFoundError:
        raise PartError(path, f"is missing; {RESTORE}", missing=True) from None
    except OSError as exc:
        raise PartError(path, f"cannot be opened: {exc.strerror}") from exc
    size = os.fstat(file.fileno()).st_size
    if start == 0 and (length is None or length >= size):
        return Opened(file, size)
    return Opened(BufferedReader(_FileRange(file, start, size if length is None else length)), size)


class _FileRange(RawIOBase):
    """A range of *file*, which it closes."""

    def __init__(self, file: FileIO, start: int, length: int) -> None:
        self._file, self._position, self._end = file, start, start + length

    def close(self) -> None:
        self._file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        room = memoryview(buffer)[: self._end - self._position]
        length = os.preadv(self._file.fileno(), [room], self._position)
        self._position += length
        return length
