"""Dump files, whose headers are written here byte by byte, and what is looked at in them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.conftest import field

from dumpstream import DumpFile, DumpFormatError

if TYPE_CHECKING:
    from dumpstream.format.header import DumpHeader

DYNAMIC = 2**64 - 1

# Field numbers of DumpData, and of an output.
OUTPUT, INPUT, BUFFER, OP_NAME, SPACE = 3, 4, 5, 6, 8
DATA_TYPE, FORMAT, SHAPE, DATA, SIZE, ADDRESS = 1, 2, 3, 5, 6, 9

FLOAT, STRING = 1, 13


def output(size: int, *dims: int, dtype: int = FLOAT, address: int = 0, more: bytes = b"") -> bytes:
    """An output; without dims it has no shape."""
    shape = field(SHAPE, b"".join(field(1, dim) for dim in dims)) if dims else b""
    known = field(DATA_TYPE, dtype) + shape + field(SIZE, size) + field(ADDRESS, address)
    return field(OUTPUT, known + more)


def with_header(message: bytes, segments: bytes = b"") -> bytes:
    return struct.pack("<Q", len(message)) + message + segments


def names(header: DumpHeader | DumpFile) -> list[str]:
    return [tensor.label for tensor in header.tensors]


def ranges(header: DumpHeader) -> list[tuple[int | None, int | None]]:
    return [(tensor.start, tensor.stop) for tensor in header.tensors]


def problem(data: bytes) -> DumpFormatError:
    with pytest.raises(DumpFormatError) as caught:
        DumpFile.open(data)
    return caught.value


FLOATS = np.arange(6, dtype="<f4").reshape(2, 3)
#: Two outputs of 24 bytes, each with an address.
TWO = with_header(output(24, 2, 3, address=1) + output(24, 6, address=2), FLOATS.tobytes() * 2)
