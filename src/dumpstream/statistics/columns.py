"""File columns: the statistics of many whole files from one native call, kept as arrays and not as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer
from xxhash import xxh3_64_hexdigest

from dumpstream._native import TENSOR_ROW, measure_files
from dumpstream.format.dtypes import DTYPES, dtype_of
from dumpstream.format.formats import format_of
from dumpstream.format.header import IO
from dumpstream.format.opname import OpName, parse_name
from dumpstream.statistics.condition import Comparison, Condition, Mask, mask_of
from dumpstream.statistics.kernels import encoding_of
from dumpstream.statistics.table import COLUMNS, HOST, Provenance

#: The columns that the name of a file says.
SAID = [name for name in COLUMNS if name in OpName._fields]
#: The fields of a record that say how many dimensions a shape has, by its column.
DIMS = {"shape": "dims", "original_shape": "original_dims"}
_RECORD: np.dtype[Any] = np.dtype(TENSOR_ROW)  # type: ignore[call-overload]  # numpy has no type for a layout
_READINGS = [
    (number, encoding.kind, encoding.components)
    for number in DTYPES
    if (encoding := encoding_of(number, packed=False)) is not None and encoding.table is None
]
_IO = [io.value for io in IO]
#: The numbers of a record, by what must not be nothing for them to be known.
_NUMBERS = {
    "stored": ("count", "nan", "pos_inf", "neg_inf", "zero", "negative", "subnormal", "l2norm"),
    "count": ("max", "min", "mean", "std"),
    "finite": ("finite_max", "finite_min", "finite_mean"),
}
_KNOWN_BY = {name: known for known, names in _NUMBERS.items() for name in names}
_EXACT = {f"{finite}{name}": f"exact_{name}" for name in ("max", "min") for finite in ("", "finite_")}


class FileColumns(NamedTuple):
    """The rows of some files: what their names say, file by file, and what their tensors are, row by row."""

    names: list[str]
    said: dict[str, list[Any]]  #: by the names, column by column; `op_name` also by the header
    tensors: NDArray[np.void]  #: the records of `measure_files`; `file` counts *names*
    shapes: dict[str, NDArray[np.uint64]]  #: all dimensions, row by row, of each column in `DIMS`
    hashes: list[str | None]  #: row by row
    provenance: Provenance = Provenance()

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.tensors)

    def where(self, conditions: Sequence[Condition]) -> FileColumns:
        """Return those rows of which all *conditions* are true."""
        if not conditions:
            return self
        kept = mask_of(conditions, self._mask)
        shapes = {name: dims[np.repeat(kept, self.tensors[DIMS[name]])] for name, dims in self.shapes.items()}
        hashes = [*compress(self.hashes, kept)]
        return self._replace(tensors=self.tensors[kept], shapes=shapes, hashes=hashes)

    def columns(self, names: Iterable[str]) -> dict[str, list[Any]]:
        """Return the columns *names*, with the values that `TensorRow` has."""
        return {name: self._column(name) for name in names}

    def numbers(self, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        """Return the numbers of a column, and where they are known; None if they are not in the records."""
        tensors = self.tensors
        if name in _KNOWN_BY:
            return tensors[name], tensors[_KNOWN_BY[name]] > 0
        if name == "address":
            return tensors[name], tensors[name] > 0
        everywhere = np.ones(self.rows, np.bool_)
        if name == "bytes":
            return np.where(tensors["stored"], tensors["size"], 0), everywhere
        return (tensors[name], everywhere) if name in {"index", "size"} else None

    def integers(self, name: str) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
        """Return the extremes of integers, which have 128 bits, and where they are."""
        return self.tensors[_EXACT[name]], self.tensors["is_integer"] & (self.tensors["count"] > 0)

    def shared(self, name: str) -> tuple[list[Any], NDArray[Any]] | None:
        """Return values that rows share, and which of them each row has; None if the column has others."""
        if name == "file" or name in self.said:
            return self.names if name == "file" else self.said[name], self.tensors["file"]
        if name == "io":
            return _IO, self.tensors["io"]
        if name not in _NAMED:
            return None
        field, name_of = _NAMED[name]
        found, places = np.unique(self.tensors[field], return_inverse=True)
        return [name_of(number) for number in found.tolist()], places

    def lists(self, name: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return the lengths of the lists of a column, and their values; None if there are no lists in it."""
        return (self.tensors[DIMS[name]], self.shapes[name]) if name in self.shapes else None

    def _mask(self, comparison: Comparison) -> Mask:
        name = comparison.column
        if comparison.suits_doubles and (numbers := self.numbers(name)) is not None:
            return comparison.mask_of_numbers(*numbers)
        if (shared := self.shared(name)) is not None:
            found, places = shared
            return comparison.mask_of(found)[places.astype(np.intp)]
        return comparison.mask_of(self._column(name))

    def _column(self, name: str) -> list[Any]:
        if (numbers := self.numbers(name)) is not None:
            return self._numbers(name, *numbers)
        if (shared := self.shared(name)) is not None:
            found, places = shared
            return [found[place] for place in places.tolist()]
        if name in self.shapes:
            ends, dims = np.cumsum(self.tensors[DIMS[name]]).tolist(), self.shapes[name].tolist()
            return [tuple(dims[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
        return self.hashes if name == "hash" else [self._constant(name)] * self.rows

    def _constant(self, name: str) -> Any:
        """Return the value that all rows have."""
        return {"source": HOST, **self.provenance._asdict()}.get(name)

    def _numbers(self, name: str, values: NDArray[Any], known: NDArray[np.bool_]) -> list[Any]:
        result: list[Any] = values.tolist()
        if name in _EXACT and self.tensors["is_integer"].any():
            exact, exactly = self.integers(name)
            integers = (int.from_bytes(data, "little", signed=True) for data in exact[exactly].tolist())
            result = [next(integers) if it else value for value, it in zip(result, exactly, strict=True)]
        if known.all():
            return result
        return [value if it else None for value, it in zip(result, known, strict=True)]


_NAMED: dict[str, tuple[str, Callable[[int], str]]] = {
    "dtype": ("data_type", lambda number: dtype_of(number).short),
    "format": ("format", lambda number: format_of(number).name),
}


def measure_columns(files: Sequence[tuple[str, Buffer]]) -> tuple[FileColumns, list[int]]:
    """Return the rows of dump files among *files*, and the numbers of the files that have rows.

    The others are not dump files, not exactly what their headers promise, or have elements of a rarer type.
    """
    data = [data for _, data in files]
    records, *shapes = measure_files(data, _READINGS)
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
    dims = {name: np.frombuffer(shape, np.uint64) for name, shape in zip(DIMS, shapes, strict=True)}
    return FileColumns(names, said, tensors, dims, hashes), measured


def join_columns(parts: Sequence[FileColumns]) -> FileColumns:
    """Return *parts*, which are of the same process, as one, in order."""
    tensors = np.concatenate([part.tensors for part in parts])
    first_files = np.cumsum([0, *(len(part.names) for part in parts[:-1])], dtype=np.uint64)
    tensors["file"] += np.repeat(first_files, [part.rows for part in parts])
    return FileColumns(
        [*chain.from_iterable(part.names for part in parts)],
        {name: [*chain.from_iterable(part.said[name] for part in parts)] for name in SAID},
        tensors,
        {name: np.concatenate([part.shapes[name] for part in parts]) for name in DIMS},
        [*chain.from_iterable(part.hashes for part in parts)],
        parts[0].provenance,
    )


# What follows keeps no tuple or view for a file: thousands of them would have the garbage collector come by.


def _said(names: Iterable[str]) -> dict[str, list[Any]]:
    cells: list[Any] = []
    for name in names:
        cells.extend(parse_name(name))
    fields = OpName._fields
    return {name: cells[fields.index(name) :: len(fields)] for name in SAID}


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
