"""Stored captures, read back: their files, their state, and the original bytes."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any

import xxhash

from dumpstream._errors import NotACaptureError, PartError
from dumpstream.archive.journalfile import JournalFile
from dumpstream.archive.manifest import Manifest
from dumpstream.archive.place import RESTORE, DirectoryPlace, Opened, Place, WritingProcess, open_file
from dumpstream.archive.rows import LossRow, Outcome, StoredPart
from dumpstream.archive.totals import Totals
from dumpstream.codec.blocks import DecodingError
from dumpstream.codec.decoding import original_of_file
from dumpstream.reading.filelist import FileList
from dumpstream.reading.index import open_index
from dumpstream.reading.indexbuilder import origin_of
from dumpstream.reading.storedfile import is_readable, misfit
from dumpstream.remote.place import Buckets, StorePlace
from dumpstream.system.location import Prefix, as_location, is_url


class State(StrEnum):
    """Whether a capture is finished."""

    RUNNING = "running"  #: a process is writing it now
    INTERRUPTED = "interrupted"  #: a run was stopped before it could finish its journal
    FINISHED = "finished"


def open_place(path: str | os.PathLike[str] | Prefix | Any) -> Place:
    """Return the place that *path* stands for, without reading anything; raises `StoreError`."""
    location = as_location(path)
    return DirectoryPlace(location) if isinstance(location, Path) else StorePlace(location)


class PartReader:
    """Reads the parts that a capture at *place* has stored, there or elsewhere."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @property
    def path(self) -> Path | Prefix:
        return self.place.path

    def read_part(self, part: StoredPart) -> Generator[memoryview, None, None]:
        """Yield the original bytes of *part*, block by block; a block is valid until the next is asked for.

        Raises:
            PartError: it is missing, or is not what was stored; also raised after the last block, when the
                checksum is known.
        """
        if part.path is None or not is_readable(part):
            raise PartError(
                part.path or part.sink, f"was stored by the sink {part.sink}, which cannot be read back"
            )
        digest = xxhash.xxh3_64()
        size = 0
        with self._open_part(part.path, part) as file, _decompressed(part.path):
            for block in original_of_file(file, part.path, part.bytes):
                size += len(block)
                if size > part.bytes:
                    break
                digest.update(block)
                yield block
        if size != part.bytes:
            more = "more" if size > part.bytes else "fewer"
            raise PartError(part.path, f"holds {more} than the {part.bytes} bytes stored; {RESTORE}")
        if part.xxh3 is not None and digest.hexdigest() != part.xxh3:
            raise PartError(part.path, f"does not match its checksum; {RESTORE}")

    def open_stored(self, path: str, start: int = 0, length: int | None = None) -> Opened:
        """Open the stored file that a row has at *path*, inside the capture or elsewhere.

        With a *start* or a *length* only that range is opened, and the file cannot seek.

        Raises:
            PartError: it is missing, or cannot be opened.
            StoreError: it is in a store that refuses or does not answer.
        """
        if path.startswith("/"):
            return open_file(Path(path), start, length)
        place = self.buckets if is_url(path) else self.place
        parts = PurePosixPath(path).parts
        if ".." in parts or not parts:
            raise PartError(path, "leads outside the capture; the journal is not to be trusted")
        return place.open(path, start, length)

    @cached_property
    def buckets(self) -> Buckets:
        """The objects at URLs that the journal names."""
        return Buckets(self.path)

    @contextmanager
    def _open_part(self, path: str, part: StoredPart) -> Iterator[IO[bytes]]:
        file, size = self.open_stored(path, part.start or 0, part.stored_bytes)
        with file:
            if problem := misfit(part, size):
                raise PartError(path, problem)
            yield file


class StoredCapture(PartReader):
    """A capture as it was when it was opened.

    Its files are read from the journal each time they are asked for, so a capture of millions of files takes
    no more memory than a small one.
    """

    def __init__(
        self, place: Place, manifest: Manifest, *, writer: WritingProcess | None, journal: JournalFile
    ) -> None:
        super().__init__(place)
        self.manifest = manifest
        self.writer = writer  #: the process that is writing it, if any
        #: What changes with every change of the journal.
        self.version = str(origin_of(journal))
        index = open_index(journal, str(place.path))
        self.totals: Totals = index.totals  #: what all lines of the journal come to
        self.files: FileList = FileList(index)  #: in the order in which their names first came
        runs: dict[int, str | None] = dict.fromkeys(run.run for run in manifest.runs)
        #: How each run ended; None if the journal does not say.
        self.outcomes = {
            run: None if outcome is None else Outcome(outcome)
            for run, outcome in (runs | self.totals.outcomes).items()
        }

    @classmethod
    def open(cls, path: str | os.PathLike[str] | Prefix | Any) -> StoredCapture:
        """Read the manifest and the journal of the capture at *path*, also while it is written.

        Args:
            path: a directory, a URL such as ``s3://bucket/run``, or a store of obstore.

        Raises:
            NotACaptureError: there is no capture, or one that this version cannot read.
            StoreError: *path* is a URL that is not valid, or the store refuses or does not answer.
        """
        return cls.read(open_place(path))

    @classmethod
    def read(cls, place: Place) -> StoredCapture:
        """Do as `open` with a *place*."""
        try:
            manifest = place.read_manifest()
        except NotACaptureError:
            if (job := place.list_job()) is None:
                raise
            named = f"; name one, such as {job.hosts[0]}" if job.hosts else ", which have not begun"
            raise NotACaptureError(place.path, f"is a job of several hosts{named}") from None
        if manifest.processes:
            first = manifest.processes[0].directory
            problem = f"holds captures of several processes; name one, such as {first}"
            raise NotACaptureError(place.path, problem)
        if not manifest.runs:
            raise NotACaptureError(place.path, "holds no capture: no run has begun there; capture into it")
        # Before the journal: if the capture ends in between, the journal has all its rows.
        writer = place.find_writer()
        return cls(place, manifest, writer=writer, journal=place.open_journal())

    @property
    def pid(self) -> int | None:
        return None if self.writer is None else self.writer.pid

    @property
    def remote(self) -> bool:
        """Whether reading its files means to wait for an object store."""
        return self.in_store or self.totals.remote

    @property
    def unreadable_lines(self) -> list[int]:
        """The numbers of the first lines of the journal that cannot be read, counted from 1."""
        return self.totals.unreadable_lines

    @property
    def torn(self) -> bool:
        """Whether a process was stopped in the middle of a line of the journal."""
        return self.totals.torn

    @property
    def in_store(self) -> bool:
        """Whether it is itself in an object store."""
        return not isinstance(self.path, Path)

    @property
    def running(self) -> bool:
        """Whether a process is writing it now."""
        return self.writer is not None

    @property
    def interrupted(self) -> bool:
        """Whether a run that is not the one running has no end in the journal."""
        open_runs = {run for run, outcome in self.outcomes.items() if outcome is None}
        if self.running:
            open_runs.discard(max(self.outcomes, default=0))
        return bool(open_runs)

    @property
    def state(self) -> State:
        """Whether it is being written, was interrupted, or is finished."""
        if self.running:
            return State.RUNNING
        return State.INTERRUPTED if self.interrupted else State.FINISHED

    @property
    def losses(self) -> tuple[LossRow, ...]:
        """What all runs lost, one row for each cause, also of files whose names are not known."""
        return tuple(LossRow(cause, *lost) for cause, lost in self.totals.losses.items())


@contextmanager
def _decompressed(path: str) -> Iterator[None]:
    try:
        yield
    except DecodingError as exc:
        raise PartError(path, f"is damaged ({exc}); {RESTORE}") from exc
    except OSError as exc:
        raise PartError(path, f"cannot be read: {exc.strerror}") from exc
