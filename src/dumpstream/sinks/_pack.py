"""Pack: many small files in one ZIP container, zstd-compressed. Does no I/O."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

#: More does not fit the field for it that every reader knows.
MOST_ENTRIES = 0xFFFE

_ZSTD = 93
_VERSION = 63  # of the format, in which that method has its number
_UNIX = 3
_UTF8 = 0x0800
_EPOCH = (0, 0x21)  # time and date: 1980-01-01, as early as it gets
_MODE = 0o100600 << 16
_MOST_16, _MOST_32 = 0xFFFF, 0xFFFFFFFF

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")


class Member(NamedTuple):
    """A file for a pack."""

    name: str  #: as a path, clean
    frames: Sequence[memoryview]  #: the compressed bytes
    bytes: int  #: the original ones
    crc: int  #: CRC-32 of them


class Pack:
    """A container being made: first the files, each behind a header of its own, then a directory of them.

    A reader that streams needs only the headers; one that seeks begins with the directory.
    """

    def __init__(self) -> None:
        self.size = 0
        self.entries = 0
        self._buffers: list[Buffer] = []
        self._directory: list[bytes] = []
        self._names: dict[str, int] = {}

    def add(self, member: Member) -> int:
        """Append *member* and return where its compressed bytes begin."""
        name = self._unique(member.name).encode()
        stored = sum(map(len, member.frames))
        described = (_UTF8, _ZSTD, *_EPOCH, member.crc, stored, member.bytes, len(name), 0)
        self._directory.append(
            _CENTRAL.pack(b"PK\1\2", _UNIX << 8 | _VERSION, _VERSION, *described, 0, 0, 0, _MODE, self.size)
            + name
        )
        header = _LOCAL.pack(b"PK\3\4", _VERSION, *described) + name
        self._buffers += [header, *member.frames]
        start = self.size + len(header)
        self.size = start + stored
        self.entries += 1
        return start

    def finish(self) -> list[Buffer]:
        """Return the bytes of the whole container."""
        directory = b"".join(self._directory)
        count, begin, length = self.entries, self.size, len(directory)
        end64 = begin + length
        tail = (
            _END64.pack(
                b"PK\6\6",
                _END64.size - 12,
                _UNIX << 8 | _VERSION,
                _VERSION,
                0,
                0,
                count,
                count,
                length,
                begin,
            )
            + _LOCATOR64.pack(b"PK\6\7", 0, end64, 1)
            + _END.pack(
                b"PK\5\6",
                0,
                0,
                min(count, _MOST_16),
                min(count, _MOST_16),
                min(length, _MOST_32),
                min(begin, _MOST_32),
                0,
            )
        )
        return [*self._buffers, directory, tail]

    def _unique(self, name: str) -> str:
        number = self._names[name] = self._names.get(name, 0) + 1
        return name if number == 1 else f"{name}.{number}"
