"""Sources: where the files of a side are, and how their elements are opened; those on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, Protocol

from typing_extensions import Buffer

from dumpstream._errors import DumpFormatError, DumpstreamError
from dumpstream.comparison.dumpelements import open_tensor
from dumpstream.comparison.elements import Elements
from dumpstream.comparison.npyelements import open_npy
from dumpstream.comparison.sides.descriptor import descriptors_of
from dumpstream.comparison.sides.entry import Entry, packed_file
from dumpstream.comparison.sides.npyfile import NPY, describe_npy
from dumpstream.comparison.sides.origin import origin_of_dump, origin_of_npy
from dumpstream.comparison.sides.statisticstext import entries_of_text
from dumpstream.format.opname import parse_name
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.reading.collection import Member
from dumpstream.reading.content import content_of_bytes, content_of_path
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.inputs import Input
from dumpstream.reading.stored import StoredCapture

_SMALL_BYTES = 64 << 10
_KEPT_FILES = 64


class Source(Protocol):
    """Files that are opened in the same way."""

    def open(
        self, reference: str, io: str, index: int, *, order: str | None = None
    ) -> AbstractContextManager[Elements]:
        """Return what enters the elements of one tensor, of a dump file with the axes in *order*, if given.

        Entering raises `DumpstreamError`, `OSError` or `ValueError` if they cannot be read.
        """

    def like(self, captures: Mapping[StoredCapture, Member]) -> Source:
        """Return the same for a copy of its capture."""


class PathSource:
    """Files on the disk; a reference is a path."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._small = kept_open(_read_small)

    def __reduce__(self) -> tuple[Any, ...]:
        return PathSource, (self._number,)

    def entries(self, items: Sequence[Input]) -> Iterator[Entry | None]:
        """Yield entries for *items*; None for what is not a dump file, and was not named."""
        for item in items:
            if item.name.endswith(TEXT_SUFFIX):
                yield from self._texts(item)
            elif item.name.endswith(NPY):
                yield self._npy(item)
            else:
                yield self._dump(item)

    def open(
        self, reference: str, io: str, index: int, *, order: str | None = None
    ) -> AbstractContextManager[Elements]:
        if reference.endswith(NPY):
            return open_npy(reference)
        return open_dumped(lambda: self._open(reference), io, index, order)

    def _open(self, path: str) -> AbstractContextManager[DumpFile]:
        small = self._small(path)
        return DumpFile.open(path) if small is None else nullcontext(small)

    def like(self, captures: Mapping[StoredCapture, Member]) -> PathSource:  # noqa: ARG002 - has no capture
        return self

    def _dump(self, item: Input) -> Entry | None:
        assert item.path is not None
        path = item.path
        origin = origin_of_dump(item.full_name, item.rank)
        entry = Entry(origin, item.label, self._number, path)
        try:
            with closing(content_of_path(path)) as content:
                if not content.copies and content.length() <= _SMALL_BYTES and origin.op_name is not None:
                    packed = packed_file(content.read(0, _SMALL_BYTES))
                    if packed is not None:
                        return Entry(origin, item.label, self._number, path, packed=packed)
                with DumpFile(content, path) as dump:
                    header, length = dump.header, None if content.copies else content.length()
        except DumpFormatError as exc:
            return None if _is_foreign(item) else entry._replace(problem=exc.detail)
        except OSError as exc:
            return entry._replace(problem=f"cannot be read: {exc.strerror}")
        if origin.op_name is None and header.op_name:
            entry = entry._replace(origin=origin._replace(op_name=header.op_name))
        return entry.describe(descriptors_of(header, length, None))

    def _npy(self, item: Input) -> Entry:
        assert item.path is not None
        origin, io, index = origin_of_npy(item.full_name, item.rank)
        tensor = describe_npy(item.path, io, index)
        return Entry(origin, item.label, self._number, item.path).describe([tensor])

    def _texts(self, item: Input) -> Iterator[Entry | None]:
        assert item.path is not None
        entry = Entry(origin_of_dump(item.full_name, item.rank), item.label, self._number, None)
        try:
            with closing(content_of_path(item.path)) as content:
                found = entries_of_text(entry, item.full_name, content.read(0, content.length()))
        except (DumpstreamError, OSError) as exc:
            yield entry._replace(problem=f"cannot be read: {exc}")
            return
        foreign = _is_foreign(item) and not any(it.packed.ios for it in found)
        yield from [None] if foreign else found


def _read_small(path: str) -> Buffer | None:
    with closing(content_of_path(path)) as content:
        small = not content.copies and content.length() <= _SMALL_BYTES
        return bytes(content.read(0, _SMALL_BYTES)) if small else None


def _is_foreign(item: Input) -> bool:
    """Whether a file that cannot be understood need not be a dump file."""
    return not item.named and parse_name(item.name).scheme is None


@contextmanager
def open_dumped(
    open_file: Callable[[], AbstractContextManager[DumpFile]], io: str, index: int, order: str | None = None
) -> Iterator[Elements]:
    """Enter the elements of a tensor of the dump file that *open_file* opens, with its axes in *order*.

    Raises:
        DumpstreamError: it cannot be read any more.
        ValueError: it cannot be brought to its original shape, or was not dumped.
    """
    with open_file() as dump:
        tensor = next((it for it in dump.tensors if it.io == io and it.index == index), None)
        if tensor is None:
            raise DumpstreamError(f"{dump.source} has no {io} {index} any more; compare again")
        with open_tensor(dump, tensor, order=order) as elements:
            yield elements


def kept_open(read: Callable[[str], Buffer | None]) -> Callable[[str], DumpFile | None]:
    """Return what opens a small file that *read* returns the bytes of; None if it has no such file.

    The last few stay in memory: most files have several tensors, which are read one after another.
    """

    @lru_cache(_KEPT_FILES)
    def opened(reference: str) -> DumpFile | None:
        data = read(reference)
        return None if data is None else DumpFile(content_of_bytes(memoryview(data)), reference)

    return opened
