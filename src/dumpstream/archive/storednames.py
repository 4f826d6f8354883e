"""Stored names: how dumpstream calls the dump files and packs that it stores in a capture. Does no I/O."""

import re

from dumpstream.archive.manifest import FILES, PACKS

_SUFFIX = ".zst"
_PACK = re.compile(rf"{PACKS}/([0-9a-f]{{8}})-[0-9]{{6,18}}\.zip", re.ASCII)


def is_file_path(path: str) -> bool:
    """Whether *path*, relative to a capture, is one that a dump file gets."""
    top, *parts = path.split("/")
    usable = bool(parts) and not {"", ".", "..", _SUFFIX}.intersection(parts)
    return top == FILES and usable and path.endswith(_SUFFIX)


def pack_token(path: str) -> str | None:
    """Return the token with which the names of a run's packs begin; None if *path* is not that of a pack."""
    match = _PACK.fullmatch(path)
    return match[1] if match else None
