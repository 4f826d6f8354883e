"""Stored names: how the dump files, packs and tables of a capture are called. Does no I/O."""

import re

from dumpstream.archive.manifest import FILES, PACKS, STATS
from dumpstream.codec import SUFFIXES

_TEXT_SUFFIX = ".csv"
_PARQUET = re.compile(
    rf"{STATS}/[0-9]{{8}}T[0-9]{{6}}-[0-9a-f]{{6}}-[0-9]{{5,18}}(\.[0-9]+)?\.parquet", re.ASCII
)
_PACK = re.compile(rf"{PACKS}/([0-9a-f]{{8}})-[0-9]{{6,18}}\.zip", re.ASCII)


def is_file_path(path: str) -> bool:
    """Whether *path*, relative to a capture, is one that a dump file gets."""
    return any(_is_below(FILES, path, suffix) for suffix in SUFFIXES)


def is_table_path(path: str) -> bool:
    """Whether *path*, relative to a capture, is one that a table of statistics gets."""
    return _PARQUET.fullmatch(path) is not None or _is_below(STATS, path, _TEXT_SUFFIX)


def _is_below(top: str, path: str, suffix: str) -> bool:
    first, *parts = path.split("/")
    usable = bool(parts) and not {"", ".", "..", suffix}.intersection(parts)
    return first == top and usable and path.endswith(suffix)


def pack_token(path: str) -> str | None:
    """Return the token with which the names of a run's packs begin; None if *path* is not that of a pack."""
    match = _PACK.fullmatch(path)
    return match[1] if match else None
