"""Sinks: where dump files go. A sink sees files, never chunks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from dumpstream._errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

_GROUP = "dumpstream.sinks"


class Fsync(StrEnum):
    """When stored bytes are forced to the disk."""

    NONE = "none"  #: the kernel decides; survives a kill of the process, not a power cut
    FILE = "file"  #: every file before it appears under its name
    CAPTURE = "capture"  #: once, when the capture ends


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkSettings:
    """What a sink made from a ``kind:location`` string is told about the capture."""

    directory: Path  #: the capture's directory
    level: int = 1  #: compression level, where the sink compresses
    workers: int = field(default_factory=lambda: max(2, min(8, os.cpu_count() or 2)))
    fsync: Fsync = Fsync.NONE
    max_descriptors: int = 256  #: files and directories held open at once, at most


class WholeFile(NamedTuple):
    """A file that is known from its first to its last byte."""

    name: str
    data: Buffer  #: valid only until `Sink.put` returns


class Stored(NamedTuple):
    """Where a file went."""

    path: str | None = None  #: relative to the capture if inside it; None if it left nothing to open
    bytes: int = 0  #: what it occupies there
    xxh3: str | None = None  #: xxh3-64 of the original bytes, 16 hex digits


class SinkFile(Protocol):
    """One dump file being written."""

    async def write(self, pieces: Sequence[Buffer]) -> None:
        """Append *pieces* in order; they are valid only until this call returns."""

    async def commit(self) -> Stored:
        """Make the file visible, whole, under its name."""

    async def abort(self) -> None:
        """Leave no trace of the file. Also called after a failed `write` or `commit`."""


class Sink(Protocol):
    """A destination for dump files.

    Calls for one file never overlap; calls for different files may, and so may calls of `put`. A name may
    come again: what is already committed stays, and the new file goes beside it.
    """

    async def open(self, name: str, *, offset: int = 0) -> SinkFile:
        """Begin the file *name*, whose first byte belongs at *offset* (not 0 only behind a gap)."""

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        """Store whole files; return for each, in order, where it went or why it did not."""

    async def aclose(self) -> None:
        """Release everything. No file is open when this is called."""


class SinkFactory(Protocol):
    """What an entry point of the group ``dumpstream.sinks`` names: a class or function that makes a sink."""

    def __call__(self, location: str, settings: SinkSettings) -> Sink:
        """Return the sink for *location*, the part of the string after ``kind:``."""


def load_sink(spec: str, settings: SinkSettings) -> Sink:
    """Return the sink that a ``kind:location`` string names.

    Raises:
        SinkError: there is no such kind; the message lists those installed.
    """
    kind, _, location = spec.partition(":")
    for point in entry_points(group=_GROUP, name=kind):
        return cast("SinkFactory", point.load())(location, settings)
    known = ", ".join(sorted(f"{name}:" for name in entry_points(group=_GROUP).names))
    raise SinkError(f"no sink {kind!r}; installed sinks: {known}")
