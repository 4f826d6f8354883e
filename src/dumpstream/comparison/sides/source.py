"""Sources: where the files of a side are, and how their elements are opened; those on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Protocol

from typing_extensions import Buffer

from dumpstream._errors import DumpFormatError, DumpstreamError
from dumpstream.comparison.dumpelements import open_tensor
from dumpstream.comparison.elements import Elements
from dumpstream.comparison.npyelements import open_npy
from dumpstream.comparison.sides.descriptor import Descriptor, descriptors_of, numbers_of
from dumpstream.comparison.sides.entry import Entry
from dumpstream.comparison.sides.npyfile import NPY, describe_npy
from dumpstream.comparison.sides.origin import origin_of_dump, origin_of_npy
from dumpstream.format.opname import parse_name
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.reading.collection import Member
from dumpstream.reading.content import content_of_path
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.inputs import Input
from dumpstream.reading.stored import StoredCapture
from dumpstream.statistics.files import begin_file, origin_of
from dumpstream.statistics.table import TensorRow


class Source(Protocol):
    """Files that are opened in the same way."""

    def open(self, reference: str, io: str, index: int) -> AbstractContextManager[Elements]:
        """Return what enters the elements of one tensor.

        Entering raises `DumpstreamError`, `OSError` or `ValueError` if they cannot be read.
        """

    def like(self, captures: Mapping[StoredCapture, Member]) -> Source:
        """Return the same for a copy of its capture."""


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

    def like(self, captures: Mapping[StoredCapture, Member]) -> PathSource:  # noqa: ARG002 - has no capture
        return self

    def _entry(self, item: Input) -> Entry | None:
        assert item.path is not None
        path = str(item.path)
        if path.endswith(NPY):
            return self._npy(item)
        origin = origin_of_dump(item.full_name, item.rank)
        entry = Entry(origin, item.label, self._number, path)
        try:
            with closing(content_of_path(item.path)) as content:
                if item.name.endswith(TEXT_SUFFIX):
                    return with_text(entry, item.full_name, content.read(0, content.length()))
                with DumpFile(content, path) as dump:
                    length = None if content.copies else content.length()
                    return entry.describe(descriptors_of(dump.header, length, None))
        except DumpFormatError as exc:
            if not item.named and parse_name(item.name).scheme is None:
                return None
            return entry._replace(problem=exc.detail)
        except OSError as exc:
            return entry._replace(problem=f"cannot be read: {exc.strerror}")

    def _npy(self, item: Input) -> Entry:
        origin, io, index = origin_of_npy(item.full_name, item.rank)
        tensor = describe_npy(str(item.path), io, index)
        return Entry(origin, item.label, self._number, str(item.path)).describe([tensor])


def with_text(entry: Entry, name: str, text: Buffer) -> Entry:
    """Return *entry* with what CANN's statistics text says; it has no elements."""
    rows = begin_file(origin_of(name))
    rows.add(memoryview(text))
    found = rows.finish()
    tensors = [described_row(row) for row in found if row.io is not None]
    problem = next((row.problem for row in found if row.problem is not None), None)
    return entry._replace(reference=None, content=None, problem=None if tensors else problem).describe(
        tensors
    )


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
