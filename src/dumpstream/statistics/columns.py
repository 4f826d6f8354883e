"""File columns: the statistics of many whole files from one native call, kept as arrays and not as rows."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from xxhash import xxh3_64_hexdigest

from dumpstream._native import TENSOR_ROW, measure_files
from dumpstream.format.dtypes import DTYPES
from dumpstream.format.opname import OpName, parse_name
from dumpstream.statistics.files import is_text
from dumpstream.statistics.kernels import encoding_of
from dumpstream.statistics.table import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Buffer


# Files beyond this are better read in blocks, each hashed while it is in the cache.
_MAX_BYTES = 256 << 10

_SAID = [name for name in COLUMNS if name in OpName._fields]
_RECORD: np.dtype[Any] = np.dtype(TENSOR_ROW)  # type: ignore[call-overload]  # numpy has no type for a layout
_READINGS = [
    (number, encoding.kind, encoding.components)
    for number in DTYPES
    if (encoding := encoding_of(number, packed=False)) is not None and encoding.table is None
]


class FileColumns(NamedTuple):
    """The rows of some files: what their names say, file by file, and what their tensors are, row by row."""

    names: list[str]
    said: dict[str, list[Any]]  #: by the names, column by column; `op_name` also by the header
    tensors: NDArray[np.void]  #: the records of `measure_files`; `file` counts *names*
    shapes: NDArray[np.uint64]  #: all dimensions, row by row
    original_shapes: NDArray[np.uint64]
    hashes: list[str | None]  #: row by row

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.tensors)


def measure_columns(files: Sequence[tuple[str, Buffer]]) -> tuple[FileColumns, list[int]]:
    """Return the rows of small dump files among *files*, and the numbers of the files that have rows.

    The others are large, not dump files, not exactly what their headers promise, or have elements of a rarer
    type: `statistics.files.whole_file` measures those.
    """
    data = [_measurable(name, data) for name, data in files]
    records, shapes, original_shapes = measure_files(data, _READINGS)
    tensors = np.frombuffer(records, _RECORD).copy()
    numbers, first, place = np.unique(tensors["file"], return_index=True, return_inverse=True)
    measured: list[int] = numbers.tolist()
    hashes = _hashes(tensors, data)
    tensors["file"] = place
    names = [files[number][0] for number in measured]
    said = _said(names)
    for number, op_name in enumerate(said["op_name"]):
        if op_name is None:
            said["op_name"][number] = _op_name(tensors[first[number]], data[measured[number]])
    dims = (np.frombuffer(shapes, np.uint64), np.frombuffer(original_shapes, np.uint64))
    return FileColumns(names, said, tensors, *dims, hashes), measured


def join_columns(parts: Sequence[FileColumns]) -> FileColumns:
    """Return *parts* as one, in order."""
    tensors = np.concatenate([part.tensors for part in parts])
    row = files = 0
    for part in parts:
        tensors["file"][row : row + part.rows] += np.uint64(files)
        row += part.rows
        files += len(part.names)
    return FileColumns(
        [*chain.from_iterable(part.names for part in parts)],
        {name: [*chain.from_iterable(part.said[name] for part in parts)] for name in _SAID},
        tensors,
        np.concatenate([part.shapes for part in parts]),
        np.concatenate([part.original_shapes for part in parts]),
        [*chain.from_iterable(part.hashes for part in parts)],
    )


def _measurable(name: str, data: Buffer) -> Buffer:
    return data if memoryview(data).nbytes <= _MAX_BYTES and not is_text(name) else b""


# What follows keeps no tuple or view for a file: thousands of them would have the garbage collector come by.


def _said(names: Iterable[str]) -> dict[str, list[Any]]:
    cells: list[Any] = []
    for name in names:
        cells.extend(parse_name(name))
    fields = OpName._fields
    return {name: cells[fields.index(name) :: len(fields)] for name in _SAID}


def _hashes(tensors: NDArray[np.void], data: Sequence[Buffer]) -> list[str | None]:
    places = [tensors[name].tolist() for name in ("file", "start", "taken", "stored")]
    return [
        xxh3_64_hexdigest(_part(data[file], start, taken)) if stored else None
        for file, start, taken, stored in zip(*places, strict=True)
    ]


def _op_name(tensor: np.void, data: Buffer) -> str | None:
    start, length = int(tensor["op_name_start"]), int(tensor["op_name_length"])
    return bytes(_part(data, start, length)).decode("utf-8", "surrogateescape") or None


def _part(data: Buffer, start: int, length: int) -> memoryview:
    return memoryview(data).cast("B")[start : start + length]
