"""Extraction: the original bytes of a capture's files, written below a directory."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from dumpstream._errors import PartError
from dumpstream.archive.rows import FileRow
from dumpstream.reading.outputs import Outputs
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile, parts_of
from dumpstream.system.publishing import write_all
from dumpstream.system.targets import Target


def extract(
    capture: StoredCapture, file: StoredFile, outputs: Outputs, target: Target, *, sparse: bool = False
) -> int:
    """Write *file* of *capture*, whole or not at all; return how many bytes it has where it was written.

    With *sparse*, what is behind a gap is written at its offset; otherwise only what is before the gap is.

    Raises:
        PartError: something of it is missing, damaged, or in a sink that cannot be read back.
        OutputNameError: it cannot be written under its name.
        DestinationError: it cannot be written.
    """
    if not file.parts:
        raise PartError(file.name, "has nothing stored")
    with outputs.drafts(target) as drafts:
        size = drafts.write("", partial(_write, capture, file, sparse=sparse))
        drafts.publish()
    return size


def _write(capture: StoredCapture, file: StoredFile, fd: int, *, sparse: bool) -> int:
    end = 0
    with _plausible(file):
        for row in file.rows:
            end = _write_row(capture, row, fd, end, sparse=sparse)
        os.ftruncate(fd, end)
    return end


def _write_row(capture: StoredCapture, row: FileRow, fd: int, base: int, *, sparse: bool) -> int:
    """Write what *row* has from *base* on, and return where it ends."""
    end = base
    for part in parts_of(row):
        if part.offset and not sparse:
            break
        position = os.lseek(fd, base + part.offset, os.SEEK_SET)
        for block in capture.read_part(part):
            position += write_all(fd, block)
        end = max(end, position)
    if sparse:
        end = max([end, *(base + until for _, until in row.missing)])
    return end


@contextmanager
def _plausible(file: StoredFile) -> Iterator[None]:
    try:
        yield
    except (OSError, OverflowError) as exc:
        if isinstance(exc, OSError) and exc.errno not in {errno.EFBIG, errno.EINVAL}:
            raise
        raise PartError(
            file.name, "has offsets that no file can have; the journal is not to be trusted"
        ) from exc
