"""How much there is to read, for the progress of the commands that read it."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dumpstream.analysis.sources import left_by_sink
from dumpstream.codec import BLOCKS_SUFFIX, Codec
from dumpstream.reading.collection import Collection
from dumpstream.reading.inputs import is_capture
from dumpstream.reading.stored import StoredCapture
from dumpstream.system.location import Prefix
from dumpstream.system.walk import walk_paths

#: Of what is in such files, the size on the disk does not tell how much will be read.
_OTHER_SIZE = (Codec.ZSTD.suffix, BLOCKS_SUFFIX, ".parquet")


def amount_of_collection(collection: Collection) -> tuple[int, int]:
    """Return how many files the captures have, and their bytes."""
    totals = [capture.totals for capture in _captures(collection)]
    return sum(it.files for it in totals), sum(it.bytes for it in totals)


def bytes_to_measure(
    locations: Iterable[Path | Prefix], ranks: Sequence[int], hosts: Sequence[str] = ()
) -> int:
    """Return how many bytes of dump files are to be read at *locations*; 0 if that cannot be told."""
    total = 0
    for location in locations:
        size = _bytes_at(location, ranks, hosts)
        if not size:
            return 0
        total += size
    return total


def _bytes_at(location: Path | Prefix, ranks: Sequence[int], hosts: Sequence[str]) -> int:
    if isinstance(location, Prefix) or is_capture(location):
        captures = [*_captures(Collection.open(location, ranks, hosts))]
        # Of a capture with statistics, its tables are read instead.
        return 0 if any(map(_has_tables, captures)) else sum(it.totals.bytes for it in captures)
    if location.is_dir():
        files = [f"{at}/{name}" for at, _, names in walk_paths(location) for name in names]
        return 0 if any(map(_is_other, files)) else sum(map(os.path.getsize, files))
    return 0 if _is_other(str(location)) else location.stat().st_size


def _captures(collection: Collection) -> Iterator[StoredCapture]:
    return (member.capture for member in collection.members() if member.capture is not None)


def _has_tables(capture: StoredCapture) -> bool:
    first = next(capture.files.rows(), None)
    return first is not None and any(left_by_sink(first, ".parquet"))


def _is_other(path: str) -> bool:
    return path.endswith(_OTHER_SIZE)
