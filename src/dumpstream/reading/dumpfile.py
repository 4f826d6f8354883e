"""Dump files, read: the header, and each tensor as bytes or as a numpy array."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from dumpstream._errors import DumpFormatError
from dumpstream.format.dtypes import decode, decode_elements, element_shape, needed_bytes
from dumpstream.format.header import (
    MAX_HEADER_BYTES,
    PREFIX_BYTES,
    DumpHeader,
    Tensor,
    message_bytes,
    parse_header,
    parse_version_1,
)
from dumpstream.reading.content import Content, content_of_bytes, content_of_path, content_of_stored
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile


class DumpFile:
    """A dump file, open for reading by one thread at a time; use it in a ``with`` block.

    If the end of a file is missing, only reading the tensors there fails. Every method may read from the
    disk, so with an event loop, call them in a worker thread.
    """

    def __init__(self, content: Content, source: str) -> None:
        self.source = source  #: what it was opened from, for messages
        self._content: Content | None = content
        self._naming = _Naming(source)
        with self._naming:
            self.header: DumpHeader = _read_header(content)

    @overload
    @classmethod
    def open(cls, source: str | os.PathLike[str] | Buffer) -> DumpFile: ...
    @overload
    @classmethod
    def open(cls, source: StoredCapture, name: str | StoredFile) -> DumpFile: ...
    @classmethod
    def open(
        cls,
        source: str | os.PathLike[str] | Buffer | StoredCapture,
        name: str | StoredFile | None = None,
    ) -> DumpFile:
        """Open a path or bytes, either of them raw or compressed by zstd, or the file *name* of a capture.

        Raises:
            DumpFormatError: it is not a dump file, or its header is damaged.
            LookupError: the capture has no such file.
            OSError: the path cannot be read.
            PartError: the capture's file cannot be read back.
        """
        if isinstance(source, StoredCapture):
            file = name if isinstance(name, StoredFile) else _find(source, name)
            return cls(content_of_stored(source, file), file.name)
        if isinstance(source, str | os.PathLike):
            return cls(content_of_path(source), os.fspath(source))
        return cls(content_of_bytes(memoryview(source).cast("B")), "bytes")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; arrays and bytes that were read from it stay valid."""
        if self._content is not None:
            self._content.close()
            self._content = None

    @property
    def version(self) -> str:
        """The version of the format, ``2.0`` today."""
        return self.header.version

    @property
    def time(self) -> int:
        """When it was dumped: microseconds since the epoch, by the device's clock."""
        return self.header.time

    @property
    def op_name(self) -> str:
        """The operator's name."""
        return self.header.op_name

    @property
    def attributes(self) -> tuple[tuple[str, str], ...]:
        """The operator's attributes: name and value."""
        return self.header.attributes

    @property
    def dfx_message(self) -> str:
        """What an exception dump says about its cause."""
        return self.header.dfx_message

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of them, in the order of their bytes: inputs, outputs, buffers, spaces."""
        return self.header.tensors

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """Return *tensor* as an array.

        It is a read-only view of the file if that is uncompressed and numpy or ml_dtypes can use the elements
        as they are. Bytes behind the last element of the shape are left out. A tensor without a shape, or
        with a dynamic one, has one dimension; elements that are not numbers are bytes.

        Raises:
            DumpFormatError: the file ends before the tensor does, or the shape does not fit its bytes.
            ValueError: the file has no bytes of the tensor; `Tensor.stored` tells.
        """
        start, stop = self._needed(tensor)
        data = self._read(tensor, start, stop)
        try:
            return decode(tensor.dtype, tensor.shape, tensor.size, data)
        except ValueError as exc:
            raise self._misfit(tensor, start, exc) from exc

    def bytes(self, tensor: Tensor) -> memoryview:
        """Return the bytes of *tensor*, read-only; a view of the file if that is uncompressed.

        Raises:
            DumpFormatError: the file ends before the tensor does.
            ValueError: the file has no bytes of the tensor; `Tensor.stored` tells.
        """
        return self._read(tensor, *_range(tensor))

    def blocks(self, tensor: Tensor) -> Iterator[memoryview]:
        """Yield the bytes of *tensor* in blocks, each valid until the next read from the file.

        Raises:
            DumpFormatError: the file ends before the tensor does; the bytes that it has were yielded.
            ValueError: the file has no bytes of the tensor; `Tensor.stored` tells.
        """
        yield from self._blocks(tensor, *_range(tensor))

    def elements(self, tensor: Tensor) -> Iterator[NDArray[Any]]:
        """Yield the elements of *tensor* in order, in blocks of one dimension, as `array` has them.

        Takes memory for one block only, also if the file is compressed. A block is valid until the next read
        from the file. Fails as `array` does, after the elements that the file has.
        """
        dtype, size = tensor.dtype, tensor.size
        start, stop = self._needed(tensor)
        left = math.prod(element_shape(dtype, tensor.shape, size))
        packed = dtype.is_packed(left, size)
        unit, bits = dtype.unit_bytes(packed=packed), dtype.bits if packed else 0
        rest = b""
        for block in self._blocks(tensor, start, stop):
            start += len(block)
            data = b"".join((rest, block)) if rest else block
            whole = len(data) if start == stop else len(data) - len(data) % unit
            count = min(left, whole * 8 // bits if packed else whole // unit)
            raw = np.frombuffer(data, np.uint8, whole)
            rest, left = bytes(data[whole:]), left - count
            yield decode_elements(dtype, raw, count, packed=packed)

    @property
    def copies(self) -> bool:
        """Whether reading copies, because the file is compressed."""
        return self._opened().copies

    def forget(self) -> None:
        """Let the system take back the memory of what was read of a mapped file; nothing is lost."""
        self._opened().forget()

    def read_to_end(self) -> None:
        """Read what is behind the last tensor: only there may damage to a stored file show.

        Raises:
            DumpFormatError: the file is longer than its header says, or cannot be decompressed.
            PartError: the capture's file cannot be read back.
        """
        length = self.header.length
        with self._naming:
            surplus = sum(len(block) for block in self._opened().blocks(length, sys.maxsize))
        if surplus:
            problem = f"has {surplus} bytes more than its header says; a slice may be in it twice"
            raise DumpFormatError(problem, length, source=self.source)

    def _blocks(self, tensor: Tensor, start: int, stop: int) -> Iterator[memoryview]:
        with self._naming:
            for block in self._opened().blocks(start, stop):
                start += len(block)
                yield block
        if start < stop:
            raise self._ended(tensor, start, stop)

    def _read(self, tensor: Tensor, start: int, stop: int) -> memoryview:
        with self._naming:
            data = self._opened().read(start, stop)
        if len(data) < stop - start:
            raise self._ended(tensor, start + len(data), stop)
        return data

    def _ended(self, tensor: Tensor, end: int, stop: int) -> DumpFormatError:
        problem = f"ends inside {tensor.label}, which needs {stop - end} bytes more; dump it again"
        return DumpFormatError(problem, end, source=self.source)

    def _opened(self) -> Content:
        if self._content is None:
            raise ValueError(f"{self.source} was closed; open it again")
        return self._content

    def _needed(self, tensor: Tensor) -> tuple[int, int]:
        """Return the range of the bytes that the shape of *tensor* needs."""
        start, _ = _range(tensor)
        try:
            return start, start + needed_bytes(tensor.dtype, tensor.shape, tensor.size)
        except ValueError as exc:
            raise self._misfit(tensor, start, exc) from exc

    def _misfit(self, tensor: Tensor, start: int, error: ValueError) -> DumpFormatError:
        problem = f"has a shape that cannot be read: {tensor.label}: {error}; read its bytes instead"
        return DumpFormatError(problem, start, source=self.source)


class _Naming:
    """Adds the name of the file to errors of a ``with`` block."""

    __slots__ = ("_source",)

    def __init__(self, source: str) -> None:
        self._source = source

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, DumpFormatError):
            raise DumpFormatError(error.problem, error.position, source=self._source) from error


def _find(capture: StoredCapture, name: str | None) -> StoredFile:
    file = None if name is None else capture.files.find(name)
    if file is not None:
        return file
    raise LookupError(f"{capture.path} has no file {name!r}; `dumpstream ls` lists its files")


def _range(tensor: Tensor) -> tuple[int, int]:
    if tensor.start is None or tensor.stop is None:
        raise ValueError(f"{tensor.label} was not dumped, as its address is null; check tensor.stored first")
    return tensor.start, tensor.stop


def _read_header(content: Content) -> DumpHeader:
    size = PREFIX_BYTES + message_bytes(content.read(0, PREFIX_BYTES))
    if size == PREFIX_BYTES:
        return _read_version_1(content)
    try:
        return _read_version_2(content, size)
    except DumpFormatError as exc:
        # The first bytes of a version 1 file may look like the length of a header.
        try:
            return _read_version_1(content)
        except DumpFormatError:
            raise exc from None


def _read_version_2(content: Content, size: int) -> DumpHeader:
    if size > MAX_HEADER_BYTES:
        problem = (
            f"is not a dump file: its header would have {size} bytes, above the limit of {MAX_HEADER_BYTES}"
        )
        raise DumpFormatError(problem, 0)
    data = content.read(0, size)
    header = parse_header(data)
    return parse_header(data, content.length()) if header.ambiguous else header


def _read_version_1(content: Content) -> DumpHeader:
    if not content.copies:
        return parse_version_1(content.read(0, content.length()))
    data = content.read(0, MAX_HEADER_BYTES + 1)
    if len(data) > MAX_HEADER_BYTES:
        raise DumpFormatError("is not a dump file, or a large one of version 1: decompress it first", 0)
    return parse_version_1(data)
