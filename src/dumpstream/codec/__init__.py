"""Codecs: how stored files are compressed, and the suffixes of their names, which tell it."""

from enum import StrEnum


class Codec(StrEnum):
    """How the bytes of files are stored."""

    AUTO = "auto"  #: as `FLOAT`, and as `FLOAT_SMALL` where a sample says that it saves much
    ZSTD = "zstd"  #: zstd frames, whatever the bytes are
    FLOAT = "float"  #: floats with packed exponents: the fastest
    FLOAT_SMALL = "float-small"  #: floats in planes of bytes, Huffman-coded: the smallest
    NONE = "none"  #: as they came

    @property
    def suffix(self) -> str:
        """What the name of a stored file ends with."""
        return _SUFFIXES.get(self, BLOCKS_SUFFIX)


#: Of files in blocks, as docs/format.md specifies them.
BLOCKS_SUFFIX = ".dsz"
RAW_SUFFIX = ".raw"
_SUFFIXES = {Codec.ZSTD: ".zst", Codec.NONE: RAW_SUFFIX}
#: All of them.
SUFFIXES = (".zst", BLOCKS_SUFFIX, RAW_SUFFIX)


def without_suffix(name: str) -> str:
    """Return *name* without the suffix of a stored file, if it has one."""
    return name[: -len(SUFFIXES[0])] if name.endswith(SUFFIXES) else name
