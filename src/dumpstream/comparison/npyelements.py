"""Npy elements: the elements of an npy file, mapped. The header is read here, and nothing is unpickled."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from dumpstream.comparison.elements import Elements, elements_of
from dumpstream.format.dtypes import DType

#: More is not the header of an array.
_MAX_HEADER_BYTES = 64 << 10
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
#: How numpy writes types of ml_dtypes that have a byte, and cannot read back.
_NAMELESS = {"<f1", "|f1", "<V1", "|V1"}


@contextmanager
def open_npy(path: str | os.PathLike[str], *, like: DType | None = None) -> Iterator[Elements]:
    """Enter the elements of the npy file *path*; *like* is the type of elements whose type it does not name.

    Takes memory for a block only.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not an npy file, is damaged, or has elements that cannot be compared.
    """
    source = os.fspath(path)
    try:
        array = _mapped(source)
    except (ValueError, SyntaxError, EOFError, TypeError, RecursionError, MemoryError) as exc:
        raise ValueError(f"{source} is not a whole npy file of numbers: {exc}; save it again") from exc
    try:
        elements = elements_of(array, like=like)
    except ValueError as exc:
        raise ValueError(f"{source}: {exc}") from exc
    yield elements


def _mapped(source: str) -> NDArray[Any]:
    with open(source, "rb") as file:  # noqa: PTH123 - the path may be of any kind
        descr, fortran, shape = _read_header(file)
        start = file.tell()
    dtype = np.dtype("V1") if descr in _NAMELESS else np.lib.format.descr_to_dtype(descr)
    if dtype.hasobject:
        raise ValueError("it has Python objects")
    if 0 in shape:
        return np.empty(shape, dtype)
    order: Literal["C", "F"] = "F" if fortran else "C"
    mapped = np.memmap(source, dtype, mode="r", offset=start, shape=shape or (1,), order=order)
    return mapped.reshape(shape, order=order)


def _read_header(file: BinaryIO) -> tuple[Any, bool, tuple[int, ...]]:
    version = np.lib.format.read_magic(file)
    if version not in _LENGTH_BYTES:
        raise ValueError(f"its version {version} is not known")
    length = int.from_bytes(file.read(_LENGTH_BYTES[version]), "little")
    if length > _MAX_HEADER_BYTES:
        raise ValueError(f"its header would have {length} bytes")
    text = file.read(length)
    if len(text) < length:
        raise ValueError("it ends inside its header")
    header = ast.literal_eval(text.decode("utf-8" if version == (3, 0) else "latin1"))
    if not isinstance(header, dict) or header.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header has other keys than those of an array")
    shape = header["shape"]
    if not isinstance(shape, tuple) or not all(type(it) is int and it >= 0 for it in shape):
        raise ValueError(f"its shape {shape!r} is not one")
    return header["descr"], bool(header["fortran_order"]), shape
