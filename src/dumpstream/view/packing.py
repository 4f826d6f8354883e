"""Packing: a header and columns of numbers as bytes that a page reads without parsing each number.

The bytes are the length of the header in four bytes, the header as JSON, and the columns. The header says
under ``columns`` the name, the type and the length of each. A column begins at a multiple of eight bytes.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ALIGN = 8
#: The names that JavaScript has for types.
_TYPES = {"u1": "Uint8", "u2": "Uint16", "u4": "Uint32", "f4": "Float32", "f8": "Float64"}
_NAMED = {name: f"<{type_}" for type_, name in _TYPES.items()}


def pack(header: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> bytes:
    """Return *header*, which JSON can hold, and *columns* as bytes."""
    listed = [
        {"name": name, "type": _TYPES[values.dtype.str[1:]], "length": len(values)}
        for name, values in columns.items()
    ]
    text = json.dumps({**header, "columns": listed}, allow_nan=False).encode()
    text += b" " * (-(4 + len(text)) % _ALIGN)
    parts = [len(text).to_bytes(4, "little"), text]
    for values in columns.values():
        data = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
        parts += [data, b"\0" * (-len(data) % _ALIGN)]
    return b"".join(parts)


def narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """Return *values* with fewer bytes each if they are small whole numbers: a large run loads sooner."""
    if values.dtype.kind != "u" or not len(values):
        return values
    return values.astype(np.min_scalar_type(values.max()), copy=False)


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the columns that were packed as *data*, of which the columns are views."""
    offset = 4 + int.from_bytes(data[:4], "little")
    header = json.loads(data[4:offset])
    columns = {}
    for listed in header["columns"]:
        values = np.frombuffer(data, _NAMED[listed["type"]], listed["length"], offset)
        columns[listed["name"]] = values
        offset += values.nbytes + (-values.nbytes % _ALIGN)
    return header, columns
