"""As msaccucmp: what CANN's own tool does to compare two directories, in plain Python and numpy.

It reads each file whole, parses the message before the bytes of the tensors field by field, as the Python
implementation of protobuf does, casts both tensors to float32, has one function for each of the ten metrics,
none of which knows what another has computed, formats them with six digits, and writes a csv row. Left out is
what else the tool does: it checks paths, looks for the newest file of each operator, logs, and starts
processes.
"""

from __future__ import annotations

import csv
import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_EPSILON = 2.2e-16
_LEAST = np.finfo(np.float32).eps
_PREFIX_BYTES = 8
_NAME = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([0-9]+)(\.[0-9]+)?\.([0-9]{1,255})")
_TYPES = {1: np.float32, 2: np.float16, 3: np.int8, 4: np.uint8, 7: np.int32, 8: np.int64, 12: np.float64}
# Fields of the messages, and how they are encoded.
_OUTPUTS, _INPUTS = 3, 4
_DATA_TYPE, _SHAPE, _SIZE, _DIMS = 1, 3, 6, 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_Array = Any
_Fields = dict[int, list[Any]]


def compare_directories(mine: Path, golden: Path, result: Path) -> int:
    """Write the csv of two directories of dump files, and return how many tensors were compared."""
    goldens = {path.name: path for path in golden.iterdir()}
    rows = 0
    with result.open("w", newline="") as file:
        writer = csv.writer(file)
        for path in sorted(mine.iterdir()):
            said = _NAME.fullmatch(path.name)
            if said is None or path.name not in goldens:
                continue
            both = zip(_tensors(path), _tensors(goldens[path.name]), strict=True)
            for (io, index, shape, x), (_, _, other_shape, y) in both:
                if shape != other_shape:
                    continue
                name = f"{said[2]}:{io}:{index}"
                types = x.dtype, x.nbytes, said[2], y.dtype, y.nbytes
                writer.writerow([rows, said[1], said[2], *types, name, shape, *_texts(x, y), ""])
                rows += 1
    return rows


# Files


def _tensors(path: Path) -> Iterator[tuple[str, int, list[int], NDArray[Any]]]:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    position = _PREFIX_BYTES + length
    message = _parse(data[_PREFIX_BYTES:position])
    for io, number in (("input", _INPUTS), ("output", _OUTPUTS)):
        for index, tensor in enumerate(map(_parse, message.get(number, []))):
            size = tensor[_SIZE][0]
            shape = _dims(_parse(tensor[_SHAPE][0]))
            dtype = np.dtype(_TYPES[tensor[_DATA_TYPE][0]])
            array = np.frombuffer(data, dtype, size // dtype.itemsize, position).reshape(shape)
            position += size
            yield io, index, shape, array


def _dims(shape: _Fields) -> list[int]:
    dims: list[int] = []
    for value in shape.get(_DIMS, []):
        if isinstance(value, int):
            dims.append(value)
            continue
        at = 0
        while at < len(value):
            dim, at = _varint(value, at)
            dims.append(dim)
    return dims


def _parse(message: bytes) -> _Fields:
    """Return the values of the fields of a protobuf message, by their numbers."""
    fields: _Fields = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value: int | bytes
        if tag & 7 == _VARINT:
            value, at = _varint(message, at)
        else:
            if tag & 7 == _BYTES:
                length, at = _varint(message, at)
            else:
                length = {_FIXED64: 8, _FIXED32: 4}[tag & 7]
            value = message[at : at + length]
            at += length
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


# Metrics


def _texts(mine: NDArray[Any], golden: NDArray[Any]) -> list[str]:
    x, y = (it.reshape(-1).astype(np.float32) for it in (mine, golden))
    with np.errstate(all="ignore"):
        numbers = [f"{metric(x, y):.6f}" for metric in METRICS]
    return [*numbers[:5], _deviations(x, y), *numbers[5:]]


def _cosine(x: _Array, y: _Array) -> Any:
    norm, other = np.linalg.norm(x), np.linalg.norm(y)
    return min(1.0, np.sum(x / norm * (y / other))) if norm or other else 1.0


def _max_absolute(x: _Array, y: _Array) -> Any:
    return np.max(np.abs(x - y))


def _mean_absolute(x: _Array, y: _Array) -> Any:
    return np.mean(np.abs(x - y))


def _root_mean_square(x: _Array, y: _Array) -> Any:
    return np.sqrt(np.mean((x - y) ** 2))


def _relative(x: _Array, y: _Array) -> Any:
    return np.where(np.abs(y) > _EPSILON, np.abs(x / y - 1), 0)


def _accumulated_relative(x: _Array, y: _Array) -> Any:
    return np.sum(_relative(x, y))


def _max_relative(x: _Array, y: _Array) -> Any:
    return np.max(_relative(x, y))


def _mean_relative(x: _Array, y: _Array) -> Any:
    return np.mean(_relative(x, y))


def _relative_euclidean(x: _Array, y: _Array) -> Any:
    squares = np.sum(y**2)
    return np.sqrt(np.sum((x - y) ** 2) / squares) if squares else 0.0


def _kullback_leibler(x: _Array, y: _Array) -> Any:
    p, q = (np.maximum((it - it.min()) / (it.max() - it.min()), _LEAST) for it in (x, y))
    p, q = p / np.sum(p), q / np.sum(q)
    return np.sum(p * np.log(p / q))


def _deviations(x: _Array, y: _Array) -> str:
    return ",".join(f"({np.mean(it):.3f};{np.std(it):.3f})" for it in (x, y))


#: In the order of the columns; the deviations are behind the fifth.
METRICS = (
    _cosine,
    _max_absolute,
    _accumulated_relative,
    _relative_euclidean,
    _kullback_leibler,
    _mean_absolute,
    _root_mean_square,
    _max_relative,
    _mean_relative,
)
