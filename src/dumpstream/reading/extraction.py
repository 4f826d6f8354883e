"""Extraction: the original bytes of a capture's files, written below a directory."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby, islice
from typing import NamedTuple

from typing_extensions import Buffer

from dumpstream._errors import PartError
from dumpstream.archive.rows import FileRow
from dumpstream.reading.collection import Member
from dumpstream.reading.outputs import OutputNameError, Outputs
from dumpstream.reading.selection import FEW, Selection
from dumpstream.reading.smallfiles import read_small_files
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile, parts_of
from dumpstream.system.batches import run_batches
from dumpstream.system.publishing import write_all
from dumpstream.system.targets import Target, Targets

_BATCH_FILES = 256


#: Why one file could not be extracted; others can.
ExtractionError = PartError | OutputNameError


class Extracted(NamedTuple):
    """A file of a capture, and where it goes."""

    name: str  #: as `ls` shows it
    file: StoredFile
    capture: StoredCapture
    target: Target


def find_extracted(member: Member, selection: Selection) -> Iterator[Extracted]:
    """Yield the files of *member* that are selected; where one goes does not depend on which others are."""
    if member.capture is None:
        return
    some = [] if selection.everything else [*islice(selection.files(member), FEW + 1)]
    files = member.capture.files
    if selection.everything or len(some) > FEW:
        yield from _placed(member, files, files.names, selection)
        return
    # Names with the same path, or with a path below it, have its last component in common.
    components = {next(filter(_is_kept, reversed(file.name.split("/"))), "") for file in some}
    known = {file.name: file for file in some}
    names = [*files.names_with(components)]
    rivals = (known.get(name) or StoredFile(name, ()) for name in names)
    yield from _placed(member, rivals, lambda: iter(names), selection)


def _is_kept(component: str) -> bool:
    return component not in {"", "."}


def _placed(
    member: Member, files: Iterable[StoredFile], names: Callable[[], Iterator[str]], selection: Selection
) -> Iterator[Extracted]:
    """Yield those of *files*, which have *names*, that are selected."""
    assert member.capture is not None
    targets = Targets(names)
    below = tuple(member.prefix.split("/")[:-1])
    for file in files:
        target = targets.choose(file.name)
        name = member.prefix + file.name
        if selection.selects(name) and file.not_stored is None:
            yield Extracted(name, file, member.capture, (*below, *target))


def extract_files(
    files: Iterable[Extracted], outputs: Outputs, *, sparse: bool = False
) -> Iterator[tuple[Extracted, int | ExtractionError]]:
    """Write *files*, each whole or not at all; yield how many bytes each has there, or why it was left out.

    With *sparse*, what is behind a gap is written at its offset; otherwise only what is before the gap is.

    Raises:
        DestinationError: nothing more can be written.
    """
    return run_batches(
        partial(_extract_batch, outputs=outputs, sparse=sparse),
        files,
        bytes_of=lambda it: it.file.bytes,
        most_items=_BATCH_FILES,
        is_remote=lambda it: it.capture.remote,
    )


def _extract_batch(
    batch: Sequence[Extracted], *, outputs: Outputs, sparse: bool
) -> list[tuple[Extracted, int | ExtractionError]]:
    results: list[tuple[Extracted, int | ExtractionError]] = []
    small = read_small_files([(it.capture, it.file) for it in batch])
    for directory, group in groupby(zip(batch, small, strict=True), key=_directory):
        files, contents = zip(*group, strict=True)
        if directory is None:
            results += [(it, _extract(it, outputs, sparse=sparse)) for it in files]
            continue
        problems = outputs.write(directory, [it.target[-1] for it in files], contents)
        for it, content, problem in zip(files, contents, problems, strict=True):
            results.append((it, memoryview(content).nbytes if problem is None else problem))
    return results


def _directory(extracted: tuple[Extracted, Buffer | None]) -> Target | None:
    """Return where a small file goes, with others that go there."""
    it, content = extracted
    return None if content is None else it.target[:-1]


def _extract(it: Extracted, outputs: Outputs, *, sparse: bool) -> int | ExtractionError:
    if not it.file.parts:
        return PartError(it.file.name, "has nothing stored")
    try:
        with outputs.drafts(it.target) as drafts:
            size = drafts.write("", partial(_write, it.capture, it.file, sparse=sparse))
            drafts.publish()
    except (PartError, OutputNameError) as exc:
        return exc
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
