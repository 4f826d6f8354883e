from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_FLOAT, _UINT8, _INT32 = 1, 4, 7
_DTYPES = {"float32": _FLOAT, "uint8": _UINT8, "int32": _INT32}
_ND = 2


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


class DumpBuilder:
    """Puts a dump file together, byte by byte."""

    def __init__(self, op_name: str = "conv1") -> None:
        self._message = _field(1, "2.0") + _field(2, 1780159660546556) + _field(6, op_name)
        self._inputs, self._outputs = bytearray(), bytearray()

    def input(self, array: NDArray[Any], **more: int) -> DumpBuilder:
        """Add an input; *more* are its arg_index and input_type."""
        numbers = {"arg_index": 10, "input_type": 11}
        self._inputs += array.tobytes()
        known = _described(array) + _field(5, array.nbytes) + _field(8, 1)
        return self._add(4, known + _fields(numbers, more))

    def output(self, array: NDArray[Any], *, form: int = _ND, address: int = 1) -> DumpBuilder:
        """Add an output; without an address its bytes are missing."""
        self._outputs += array.tobytes() if address else b""
        return self._add(3, _described(array, form) + _field(6, array.nbytes) + _field(9, address))

    def attribute(self, name: str, value: str) -> DumpBuilder:
        return self._add(7, _field(1, name) + _field(2, value))

    def message(self, text: str) -> DumpBuilder:
        """Add the text of an exception dump."""
        return self._add(9, text.encode())

    def build(self) -> bytes:
        return struct.pack("<Q", len(self._message)) + self._message + self._inputs + self._outputs

    def _add(self, number: int, value: bytes) -> DumpBuilder:
        self._message += _field(number, value)
        return self


def _described(array: NDArray[Any], form: int = _ND) -> bytes:
    shape = b"".join(_field(1, length) for length in array.shape)
    return _field(1, _DTYPES[array.dtype.name]) + _field(2, form) + _field(3, shape)


def _fields(numbers: Mapping[str, int], values: Mapping[str, int]) -> bytes:
    return b"".join(_field(numbers[name], value) for name, value in values.items())


@pytest.fixture
def dump() -> DumpBuilder:
    return DumpBuilder()


@pytest.fixture
def overflow_dump() -> DumpBuilder:
    return DumpBuilder("Node_OpDebug")
