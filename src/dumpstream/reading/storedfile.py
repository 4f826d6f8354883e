"""Stored files: what the rows of a journal say of one name, and which of its parts to read."""

from collections.abc import Iterable

from dumpstream.archive.place import RESTORE
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.format.verdict import Verdict
from dumpstream.system.location import SCHEMES, is_url

_ORDER = list(Verdict)
_READABLE_SINKS = {"zstd", *SCHEMES}


class StoredFile:
    """All that came under one name; a name that comes again adds a row."""

    __slots__ = ("name", "rows")

    def __init__(self, name: str, rows: Iterable[FileRow]) -> None:
        self.name = name
        self.rows = tuple(rows)

    @property
    def bytes(self) -> int:
        """The original bytes, over all rows."""
        return sum(row.bytes for row in self.rows)

    @property
    def stored_bytes(self) -> int:
        """The bytes that all sinks together take for them."""
        return sum(part.stored_bytes for row in self.rows for part in row.stored)

    @property
    def chunks(self) -> int:
        """How many callbacks delivered it."""
        return sum(row.chunks for row in self.rows)

    @property
    def verdict(self) -> Verdict:
        """The worst of its rows' verdicts."""
        return min((row.verdict for row in self.rows), key=_ORDER.index)

    @property
    def cause(self) -> str | None:
        """The cause of the first loss, if any."""
        return next((row.cause for row in self.rows if row.cause is not None), None)

    @property
    def not_stored(self) -> str | None:
        """Why none of its bytes were to be stored, if so."""
        reasons = {row.not_stored for row in self.rows}
        return None if None in reasons else next(iter(reasons), None)

    @property
    def step(self) -> int | None:
        """The step that was marked when it first began; None if its name has one."""
        return next((row.step for row in self.rows if row.step is not None), None)

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """The ranges that never came, row by row, each counted from the start of its row."""
        return tuple(range_ for row in self.rows for range_ in row.missing)

    @property
    def parts(self) -> tuple[StoredPart, ...]:
        """Every part once, in order, from a sink that can be read back if there is one."""
        return tuple(part for row in self.rows for part in parts_of(row))

    @property
    def path(self) -> str | None:
        """The path of the first part, relative to the capture if inside it."""
        return next((part.path for part in self.parts if part.path is not None), None)

    @property
    def readable(self) -> bool:
        """Whether there is a part, and all parts can be read back."""
        return bool(self.parts) and all(is_readable(part) for part in self.parts)


def not_stored_text(reason: str) -> str:
    """Return that a file was not stored for this *reason*."""
    return f"was not stored: {reason} (the capture had --only)"


def parts_of(row: FileRow) -> list[StoredPart]:
    """Return the parts of *row* in file order, each once, from the sink that is read back most easily."""
    by_offset: dict[int, StoredPart] = {}
    for part in row.stored:
        chosen = by_offset.setdefault(part.offset, part)
        if chosen is not part and _ease(part) > _ease(chosen):
            by_offset[part.offset] = part
    return [by_offset[offset] for offset in sorted(by_offset)]


def _ease(part: StoredPart) -> int:
    return 0 if not is_readable(part) else 1 if is_url(part.path or "") else 2


def is_kept(row: FileRow) -> bool:
    """Whether all bytes of the file of *row* can be read back from what sinks have stored."""
    parts = parts_of(row)
    return sum(part.bytes for part in parts) == row.bytes and all(map(is_readable, parts))


def is_readable(part: StoredPart) -> bool:
    """Whether `StoredCapture.read_part` can give the part's bytes back."""
    return part.sink in _READABLE_SINKS and part.path is not None


def misfit(part: StoredPart, size: int) -> str | None:
    """Return why a stored file of *size* bytes cannot be the one that *part* was stored in, if so."""
    if part.start is not None:
        return f"has only {size} bytes; {RESTORE}" if part.start + part.stored_bytes > size else None
    return (
        f"has {size} bytes instead of {part.stored_bytes}; {RESTORE}" if size != part.stored_bytes else None
    )
