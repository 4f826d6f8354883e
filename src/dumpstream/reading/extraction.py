"""Extraction: the original bytes of a capture's files, written below a directory of the user's."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from dumpstream._errors import PartError
from dumpstream.archive.destination import explained, make_directory
from dumpstream.names import clean_name, hashed_name
from dumpstream.reading.outputs import publish, refuse_existing
from dumpstream.reading.stored import parts_of
from dumpstream.system.nofollow import open_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dumpstream.archive.rows import FileRow
    from dumpstream.reading.outputs import Target
    from dumpstream.reading.stored import StoredCapture, StoredFile

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def choose_targets(files: Iterable[StoredFile]) -> dict[str, Target]:
    """Return where each of *files* goes, by name: different names never share a path.

    A name that is another's directory, or is cleaned to the path of an earlier one, gets a hashed path.
    """
    targets: dict[str, Target] = {}
    taken: set[Target] = set()
    directories: set[Target] = set()
    for file in files:
        target = clean_name(file.name)
        above = {target[:depth] for depth in range(1, len(target))}
        if target in taken or target in directories or not above.isdisjoint(taken):
            target, above = (hashed_name(file.name),), set()
        targets[file.name] = target
        taken.add(target)
        directories |= above
    return targets


class Extractor:
    """Writes files of captures below *out*, which is made if missing, and nowhere else.

    Args:
        out: where they go; may be a symbolic link, but none inside it is followed.
        sparse: place what is behind a gap at its offset; otherwise only what is before the gap is written.
        replace: whether a file that is already there may be replaced.

    Raises:
        DestinationError: *out* cannot be used.
    """

    def __init__(self, out: Path, *, sparse: bool = False, replace: bool = False) -> None:
        self._out, self._sparse, self._replace = out, sparse, replace
        with explained(out):
            self._root = make_directory(out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def refuse_existing(self, targets: Iterable[Target]) -> None:
        """Raise `DestinationError` if one of *targets* is there already and may not be replaced."""
        if not self._replace:
            for target in targets:
                refuse_existing(self._out.joinpath(*target))

    def extract(self, capture: StoredCapture, file: StoredFile, target: Target) -> int:
        """Write *file* of *capture* to *target*, whole or not at all; return how many bytes it has there.

        Raises:
            PartError: something of it is missing, damaged, or in no sink that can be read back.
            DestinationError: it cannot be written.
        """
        path = self._out.joinpath(*target)
        if not file.parts:
            raise PartError(file.name, "has nothing stored")
        with explained(path):
            directory = open_directory(self._root, target[:-1], create=True)
            try:
                return self._write(capture, file, path, directory)
            finally:
                os.close(directory)

    def _write(self, capture: StoredCapture, file: StoredFile, path: Path, directory: int) -> int:
        temporary = f".{secrets.token_hex(8)}.extracting"
        fd = os.open(temporary, _NEW, 0o600, dir_fd=directory)
        try:
            with os.fdopen(fd, "wb", buffering=0):
                end = 0
                with _plausible(file):
                    for row in file.rows:
                        end = self._write_row(capture, row, fd, end)
                    os.ftruncate(fd, end)
            publish(directory, temporary, path, replace=self._replace)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            raise
        return end

    def _write_row(self, capture: StoredCapture, row: FileRow, fd: int, base: int) -> int:
        """Write what *row* has from *base* on, and return where it ends."""
        end = base
        for part in parts_of(row):
            if part.offset and not self._sparse:
                break
            position = base + part.offset
            for block in capture.read_part(part):
                position += _write_all(fd, block, position)
            end = max(end, position)
        if self._sparse:
            end = max([end, *(base + until for _, until in row.missing)])
        return end


def _write_all(fd: int, block: memoryview, position: int) -> int:
    written = 0
    while written < len(block):
        written += os.pwrite(fd, block[written:], position + written)
    return written


@contextmanager
def _plausible(file: StoredFile) -> Iterator[None]:
    try:
        yield
    except (OSError, OverflowError) as exc:
        if isinstance(exc, OSError) and exc.errno != errno.EFBIG:
            raise
        raise PartError(
            file.name, "has offsets that no file can have; the journal is not to be trusted"
        ) from exc
