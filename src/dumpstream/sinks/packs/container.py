"""Pack: many small compressed files in one ZIP container. Does no I/O."""

import struct

from dumpstream._native import crc32

#: Larger files are not packed.
MOST_PACKED = 1 << 20
#: A pack ends when it is so large, or has so many files: the directory of a pack is in memory until then.
PACK_BYTES, PACK_FILES = 8 << 20, 8192

_STORED, _ZSTD = 0, 93  # methods of compression
_VERSION = 63  # of the ZIP format: the first one with zstd
_MADE_BY = 3 << 8 | _VERSION  # on Unix
_UTF8 = 0x0800
_EPOCH = (0, 0x21)  # time and date: 1980-01-01, the earliest
_MODE = 0o100600 << 16
_MOST_16, _MOST_32 = 0xFFFF, 0xFFFFFFFF

# Common to the header in front of a file and its entry in the directory, each of which begins differently.
_DESCRIBED = struct.Struct("<5H3L2H")
_LOCAL_BEGIN = b"PK\3\4"
_CENTRAL_BEGIN = struct.pack("<4sH", b"PK\1\2", _MADE_BY)
_CENTRAL_END = struct.Struct("<3H2L")
_END64 = struct.Struct("<4sQ2H2L4Q")
_END64_REST = _END64.size - 12  # bytes behind the field that tells how many they are
_LOCATOR64 = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")


class Pack:
    """A container that is being made: first the files, each behind its header, then a directory of them.

    A reader that streams needs only the headers; one that seeks begins with the directory.
    """

    def __init__(self) -> None:
        self.size = 0
        self.entries = 0
        self._pieces: list[bytes] = []
        self._directory: list[bytes] = []
        self._names: dict[str, int] = {}

    def add(self, path: str, frame: bytes, *, size: int, crc: int) -> int:
        """Append a zstd frame of *size* original bytes with this *crc*, and return where it begins."""
        return self._append(path, frame, _ZSTD, size, crc)

    def store(self, path: str, content: bytes) -> int:
        """Append *content* as it is, and return where it begins."""
        return self._append(path, content, _STORED, len(content), crc32(content))

    def _append(self, path: str, frame: bytes, method: int, size: int, crc: int) -> int:
        name = self._unique(path).encode()
        described = _DESCRIBED.pack(_VERSION, _UTF8, method, *_EPOCH, crc, len(frame), size, len(name), 0)
        entry_end = _CENTRAL_END.pack(0, 0, 0, _MODE, self.size)
        self._directory.append(_CENTRAL_BEGIN + described + entry_end + name)
        header = _LOCAL_BEGIN + described + name
        self._pieces += [header, frame]
        start = self.size + len(header)
        self.size = start + len(frame)
        self.entries += 1
        return start

    def take(self) -> bytes:
        """Return what was added since the last call, and keep only its directory."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def cut(self, size: int, entries: int) -> None:
        """Forget the files behind the first *entries*, which have *size* bytes."""
        self.size, self.entries = size, entries
        self._pieces = []
        del self._directory[entries:]

    def finish(self) -> bytes:
        """Return the whole container, or what `take` has left of it; slow, but other threads can run."""
        directory = b"".join(self._directory)
        count, begin, length = self.entries, self.size, len(directory)
        end64 = _END64.pack(b"PK\6\6", _END64_REST, _MADE_BY, _VERSION, 0, 0, count, count, length, begin)
        locator64 = _LOCATOR64.pack(b"PK\6\7", 0, begin + length, 1)
        most = min(count, _MOST_16)
        end = _END.pack(b"PK\5\6", 0, 0, most, most, min(length, _MOST_32), min(begin, _MOST_32), 0)
        pieces = [*self._pieces, directory, end64, locator64, end]
        self._pieces, self._directory = [], []
        self._names.clear()
        # If all are bytes, Python releases its lock while it joins them.
        return b"".join(pieces)

    def _unique(self, name: str) -> str:
        """Return *name*, or if it is taken, the first of ``<name>.2``, ``<name>.3``, ... that is free."""
        unique, number = name, self._names.get(name, 0) + 1
        while unique in self._names:
            unique = f"{name}.{number}"
            number += 1
        self._names[unique] = 1
        self._names[name] = max(number - 1, 1)
        return unique
