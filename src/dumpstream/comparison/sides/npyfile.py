"""NPY files, described by their headers."""

from __future__ import annotations

import io
import math
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from dumpstream.comparison.sides.descriptor import Descriptor
from dumpstream.format.dtypes import DTYPES

#: Ends the names of such files.
NPY = ".npy"
_SHORT = {dtype.numpy: dtype.short for dtype in reversed(DTYPES.values())}
_VERSION_1 = (1, 0)
_LONGEST_HEADER = 1 << 16


def describe_npy(path: str, kind: str, index: int) -> Descriptor:
    """Return what the NPY file at *path*, which has the tensor *kind* *index* of an operator, says of it."""
    try:
        with Path(path).open("rb") as file:
            dtype, shape = _described(*_header(file))
            size = -file.tell() + file.seek(0, io.SEEK_END)
    except OSError as exc:
        return Descriptor(kind, index, problem=f"cannot be read: {exc.strerror}")
    except ValueError as exc:
        return Descriptor(kind, index, problem=f"is not an NPY file that can be read: {exc}")
    name = _SHORT.get(dtype.newbyteorder("<"))
    count = math.prod(shape)
    missing = count * dtype.itemsize - size
    problem = None if name else f"has elements of {dtype}, which no operator has"
    if missing > 0:
        problem = f"ends {missing} bytes before its last element; copy it again"
    return Descriptor(kind, index, name, "ND", shape, shape, count, count * dtype.itemsize, problem=problem)


def _header(file: IO[bytes]) -> tuple[tuple[int, int], bytes]:
    version = np.lib.format.read_magic(file)
    length = int.from_bytes(file.read(2 if version == _VERSION_1 else 4), "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"its header would have {length} bytes")
    return version, file.read(length)


@lru_cache(1024)
def _described(version: tuple[int, int], header: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return type and shape, remembered: numpy takes long, and many tensors have the same header."""
    first = version == _VERSION_1
    encoded = io.BytesIO(len(header).to_bytes(2 if first else 4, "little") + header)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(encoded)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return dtype, shape
