"""Protobuf messages, encoded: the few kinds of fields that a trace needs."""

import struct

_NUMBER, _EIGHT_BYTES, _BYTES = 0, 1, 2
_MASK = (1 << 64) - 1
_MORE = 0x80  #: says that a further byte of a number follows; the others have seven bits of it


def number(field: int, value: int) -> bytes:
    """Return a field with an integer of 64 bits; a negative one takes ten bytes."""
    return _varint(field << 3 | _NUMBER) + _varint(value & _MASK)


def text(field: int, value: str) -> bytes:
    """Return a field with text; bytes that are not UTF-8 are shown escaped."""
    return message(field, value.encode("utf-8", "backslashreplace"))


def message(field: int, *parts: bytes) -> bytes:
    """Return a field with a message that consists of the fields *parts*."""
    value = b"".join(parts)
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def double(field: int, value: float) -> bytes:
    """Return a field with a real number."""
    return _varint(field << 3 | _EIGHT_BYTES) + struct.pack("<d", value)


def fixed(field: int, value: int) -> bytes:
    """Return a field with an integer of 64 bits in eight bytes."""
    return _varint(field << 3 | _EIGHT_BYTES) + struct.pack("<Q", value & _MASK)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value % _MORE | _MORE)
        value //= _MORE
    encoded.append(value)
    return bytes(encoded)
