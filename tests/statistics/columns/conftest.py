"""Dump files, and their rows: measured together and one by one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
from tests.conftest import field

from dumpstream.statistics.arrow import schema_of, table_of
from dumpstream.statistics.engine import measure_whole
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.statistics.table import COLUMNS
from dumpstream.statistics.tensors import TensorRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dumpstream.sinks import WholeFile
    from dumpstream.statistics.columns import FileColumns
    from dumpstream.statistics.table import TensorRow

# Number in the header, name in the table, and how numpy reads an element.
DTYPES: list[tuple[int, str, Any]] = [
    (1, "float32", "<f4"),
    (2, "float16", "<f2"),
    (27, "bfloat16", ml_dtypes.bfloat16),
    (12, "float64", "<f8"),
    (7, "int32", "<i4"),
    (3, "int8", "i1"),
    (8, "int64", "<i8"),
    (10, "uint64", "<u8"),
    (6, "uint16", "<u2"),
    (11, "bool", "?"),
]
FLOAT8 = (35, "float8_e4m3fn", ml_dtypes.float8_e4m3fn)
FORMATS = {2: "ND", 29: "FRACTAL_NZ", 1234: "UNKNOWN_1234"}
IO_FIELDS = {"input": (4, 6, 5, 8), "output": (3, 7, 6, 9)}  # in the message; original shape, size, address


class Tensor(NamedTuple):
    """What the maker of a file knows of a tensor."""

    io: str
    dtype: tuple[int, str, Any]
    format: int
    shape: tuple[int, ...]
    original_shape: tuple[int, ...]
    data: bytes
    padding: bytes = b""
    address: int = 1


def segment(tensor: Tensor) -> bytes:
    number, original, size, address = IO_FIELDS[tensor.io]
    shapes = [b"".join(field(1, dim) for dim in shape) for shape in (tensor.shape, tensor.original_shape)]
    return field(
        number,
        field(1, tensor.dtype[0])
        + field(2, tensor.format)
        + field(3, shapes[0])
        + field(original, shapes[1])
        + field(size, len(tensor.data + tensor.padding))
        + field(address, tensor.address),
    )


def dump(tensors: Sequence[Tensor], *, op_name: str = "", skip: bool = False) -> bytes:
    """Return a file; with *skip*, tensors without an address have no bytes in it."""
    message = field(1, "2.0") + b"".join(map(segment, tensors)) + field(6, op_name)
    ordered = sorted(tensors, key=lambda tensor: tensor.io)  # inputs come first
    data = b"".join(it.data + it.padding for it in ordered if it.address or not skip)
    return struct.pack("<Q", len(message)) + message + data


def written(columns: Sequence[FileColumns] = (), rows: Sequence[TensorRow] = ()) -> list[dict[str, Any]]:
    """Return what is written of *columns* and *rows*."""
    found: list[dict[str, Any]] = table_of(
        TensorRows(rows).columns(COLUMNS), columns, schema_of(tuple(COLUMNS))
    ).to_pylist()
    return found


def together(*files: WholeFile) -> list[dict[str, Any]]:
    return written([measure_whole(files).columns])


def one_by_one(*files: WholeFile) -> list[dict[str, Any]]:
    return written(
        rows=[row for name, data in files for row in whole_file(origin_of(name), memoryview(data))]
    )
