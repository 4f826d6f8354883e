"""NPY files, described by their headers."""

from __future__ import annotations

import io
import math
from functools import lru_cache
from pathlib import Path
from tokenize import TokenError
from typing import IO

import numpy as np

from dumpstream.comparison.elements import elements_of
from dumpstream.comparison.sides.descriptor import Descriptor

#: Ends the names of such files.
NPY = ".npy"
_VERSION_1 = (1, 0)
_LONGEST_HEADER = 1 << 16


def describe_npy(path: str, kind: str, index: int) -> Descriptor:
    """Return what the NPY file at *path*, which has the tensor *kind* *index* of an operator, says of it."""
    try:
        with Path(path).open("rb") as file:
            itemsize, name, shape = _described(*_header(file))
            size = -file.tell() + file.seek(0, io.SEEK_END)
    except OSError as exc:
        return Descriptor(kind, index, problem=f"cannot be read: {exc.strerror}")
    except ValueError as exc:
        return Descriptor(kind, index, problem=f"is not an NPY file that can be read: {exc}")
    count = math.prod(shape)
    missing = count * itemsize - size
    problem = f"ends {missing} bytes before its last element does; copy it again" if missing > 0 else None
    return Descriptor(kind, index, name, "ND", shape, shape, count, count * itemsize, problem=problem)


def _header(file: IO[bytes]) -> tuple[tuple[int, int], bytes]:
    version = np.lib.format.read_magic(file)
    length = int.from_bytes(file.read(2 if version == _VERSION_1 else 4), "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"its header would have {length} bytes")
    header = file.read(length)
    if len(header) < length:
        raise ValueError("it ends inside its header")
    return version, header


@lru_cache(1024)
def _described(version: tuple[int, int], header: bytes) -> tuple[int, str, tuple[int, ...]]:
    """Return the bytes of an element, its type and the shape.

    They are remembered, because numpy takes long, and many tensors have the same header.
    """
    first = version == _VERSION_1
    encoded = io.BytesIO(len(header).to_bytes(2 if first else 4, "little") + header)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(encoded)
    except (SyntaxError, TokenError, RecursionError) as exc:  # it is read as Python
        raise ValueError(f"its header is damaged: {exc}") from exc
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return dtype.itemsize, elements_of(np.empty(0, dtype)).dtype.short, shape
