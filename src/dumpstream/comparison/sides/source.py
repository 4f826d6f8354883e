"""Sources: where the files of a side are, read for their headers and opened for their elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Protocol

from typing_extensions import Buffer

from dumpstream._errors import DumpFormatError, DumpstreamError, PartError, StoreError
from dumpstream.archive.rows import FileRow, parse_line
from dumpstream.comparison.dumpelements import open_tensor
from dumpstream.comparison.elements import Elements
from dumpstream.comparison.npyelements import open_npy
from dumpstream.comparison.sides.descriptor import Descriptor, descriptors_of, numbers_of
from dumpstream.comparison.sides.entry import Entry
from dumpstream.comparison.sides.npyfile import NPY, describe_npy
from dumpstream.comparison.sides.origin import origin_of_dump, origin_of_npy
from dumpstream.format.header import parse_header
from dumpstream.format.opname import parse_name
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.format.verdict import Verdict
from dumpstream.reading.content import content_of_path
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.inputs import Input
from dumpstream.reading.problem import problem_of_row
from dumpstream.reading.smallfiles import read_small
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile, not_stored_text, parts_of
from dumpstream.statistics.files import begin_file, origin_of
from dumpstream.statistics.table import TensorRow

#: What such a file has is right as far as it goes.
_ENDS_EARLY = {Verdict.SHORT, Verdict.GAP, Verdict.NEVER_CLOSED}


class Source(Protocol):
    """Files that are opened in the same way."""

    def open(self, reference: str, io: str, index: int) -> AbstractContextManager[Elements]:
        """Return what enters the elements of one tensor.

        Entering raises `DumpstreamError`, `OSError` or `ValueError` if they cannot be read.
        """


class PathSource:
    """Files on the disk; a reference is a path."""

    def __init__(self, number: int) -> None:
        self._number = number

    def entries(self, items: Sequence[Input]) -> list[Entry | None]:
        """Return an entry for each of *items*; None for what is not a dump file, and was not named."""
        return [self._entry(item) for item in items]

    def open(self, reference: str, io: str, index: int) -> AbstractContextManager[Elements]:
        if reference.endswith(NPY):
            return open_npy(reference)
        return open_dumped(lambda: DumpFile.open(reference), io, index)

    def _entry(self, item: Input) -> Entry | None:
        assert item.path is not None
        path = str(item.path)
        if path.endswith(NPY):
            return self._npy(item)
        origin = origin_of_dump(item.full_name, item.rank)
        entry = Entry(origin, item.label, self._number, path, None)
        try:
            with closing(content_of_path(item.path)) as content:
                if item.name.endswith(TEXT_SUFFIX):
                    return _with_text(entry, item.full_name, content.read(0, content.length()))
                with DumpFile(content, path) as dump:
                    length = None if content.copies else content.length()
                    return entry._replace(tensors=descriptors_of(dump.header, length, None))
        except DumpFormatError as exc:
            if not item.named and parse_name(item.name).scheme is None:
                return None
            return entry._replace(problem=exc.detail)
        except OSError as exc:
            return entry._replace(problem=f"cannot be read: {exc.strerror}")

    def _npy(self, item: Input) -> Entry:
        origin, io, index = origin_of_npy(item.full_name, item.rank)
        tensor = describe_npy(str(item.path), io, index)
        return Entry(origin, item.label, self._number, str(item.path), None, [tensor])


class CaptureSource:
    """Files of a capture; a reference is a line of its journal, or the name of a file."""

    def __init__(self, number: int, capture: StoredCapture, prefix: str, rank: int | None) -> None:
        self._number, self.capture = number, capture
        self._prefix, self._rank = prefix, rank

    def entries(self, files: Sequence[StoredFile]) -> list[Entry | None]:
        """Return an entry for each of *files*."""
        rows = [file.rows[0] if len(file.rows) == 1 else None for file in files]
        known = [row for row in rows if row is not None]
        data = iter(read_small(self.capture, known) if known else ())
        return [
            self._entry(file, None if row is None else next(data))
            for file, row in zip(files, rows, strict=True)
        ]

    def open(self, reference: str, io: str, index: int) -> AbstractContextManager[Elements]:
        return open_dumped(lambda: DumpFile.open(self.capture, self._file(reference)), io, index)

    def _file(self, reference: str) -> StoredFile:
        if reference.startswith("{"):
            rows = [parse_line(line.encode()) for line in reference.splitlines()]
            found = [row for row in rows if isinstance(row, FileRow)]
            return StoredFile(found[0].name, found)
        file = self.capture.files.find(reference)
        if file is None:
            raise DumpstreamError(f"{reference} is not in the journal any more")
        return file

    def _entry(self, file: StoredFile, data: Buffer | None) -> Entry:
        origin = origin_of_dump(file.name, self._rank, file.step)
        problem = None if file.verdict.whole else problem_of_row(_worst(file)).detail
        reference = "\n".join([row.to_line() for row in file.rows])
        content = _content_of(file) if problem is None else None
        entry = Entry(origin, self._prefix + file.name, self._number, reference, content)
        try:
            if file.not_stored is not None and not file.readable:
                raise PartError(file.name, not_stored_text(file.not_stored))
            if file.name.endswith(TEXT_SUFFIX):
                return _with_text(entry, file.name, self._text(file, data))
            if data is not None:
                view = memoryview(data)
                header, length = parse_header(view, view.nbytes), view.nbytes
            else:
                with DumpFile.open(self.capture, file) as dump:
                    header, length = dump.header, _contiguous_bytes(file)
            trusted = problem is None or file.verdict in _ENDS_EARLY
            return entry._replace(tensors=descriptors_of(header, length, None if trusted else problem))
        except DumpFormatError as exc:
            if data is not None:  # it may be one of version 1
                return self._entry(file, None)
            return entry._replace(problem=problem or exc.detail)
        except StoreError as exc:
            if exc.away:
                raise
            return entry._replace(problem=problem or str(exc))
        except (DumpstreamError, OSError) as exc:
            return entry._replace(problem=problem or str(exc))

    def _text(self, file: StoredFile, data: Buffer | None) -> Buffer:
        if data is not None:
            return data
        return b"".join(bytes(block) for part in file.parts for block in self.capture.read_part(part))


def _worst(file: StoredFile) -> FileRow:
    return next(row for row in file.rows if row.verdict is file.verdict)


def _content_of(file: StoredFile) -> str | None:
    """Return what files with the same bytes have in common; None if the journal has no checksums."""
    parts = file.parts
    if not parts or any(part.xxh3 is None for part in parts):
        return None
    return ",".join([f"{part.bytes}:{part.xxh3}" for part in parts])


def _contiguous_bytes(file: StoredFile) -> int:
    end = 0
    for row in file.rows:
        base = end
        for part in parts_of(row):
            if base + part.offset != end:
                return end
            end += part.bytes
    return end


def _with_text(entry: Entry, name: str, text: Buffer) -> Entry:
    """Return *entry* with what CANN's statistics text says; it has no elements."""
    rows = begin_file(origin_of(name))
    rows.add(memoryview(text))
    found = rows.finish()
    tensors = [described_row(row) for row in found if row.io is not None]
    problem = next((row.problem for row in found if row.problem is not None), None)
    return entry._replace(reference=None, content=None, tensors=tensors, problem=None if tensors else problem)


def described_row(row: TensorRow) -> Descriptor:
    """Return the descriptor of a row of statistics."""
    assert row.io is not None
    return Descriptor(
        row.io,
        row.index or 0,
        row.dtype,
        row.format,
        row.shape,
        row.original_shape,
        row.count,
        row.size,
        None,
        row.hash,
        row.problem,
        numbers_of(row),
    )


@contextmanager
def open_dumped(open_file: Callable[[], DumpFile], io: str, index: int) -> Iterator[Elements]:
    """Enter the elements of a tensor of the dump file that *open_file* opens.

    Raises:
        DumpstreamError: it cannot be read any more.
        ValueError: it cannot be brought to its original shape, or was not dumped.
    """
    with open_file() as dump:
        tensor = next((it for it in dump.tensors if it.io == io and it.index == index), None)
        if tensor is None:
            raise DumpstreamError(f"{dump.source} has no {io} {index} any more; compare again")
        with open_tensor(dump, tensor) as elements:
            yield elements
