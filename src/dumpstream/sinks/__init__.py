"""Sinks: where dump files go. A sink sees files, never chunks."""

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from dumpstream._errors import DumpstreamError, SinkError, StoreError
from dumpstream.codec import Codec
from dumpstream.system.durable import Fsync

from collections.abc import Iterator, Sequence
from typing_extensions import Buffer
from dumpstream.custody import Custody
from dumpstream.sinks.resources import Resources
from dumpstream.statistics.table import TensorRow
from dumpstream.system.location import Prefix, as_location, as_path

_GROUP = "dumpstream.sinks"
#: Modules whose factories also take `Resources`; all others are called as `SinkFactory` says.
_WITH_RESOURCES = frozenset(f"{_GROUP}.{module}" for module in ("objectstore", "stats", "zstd"))
#: The levels of libzstd; a negative one is faster and compresses less.
_LEVELS = (-(1 << 17), 22)
#: For a root, a directory below it, and two files that are being written.
_MIN_DESCRIPTORS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkSettings:
    """What a sink made from a ``kind:location`` string is told about the capture."""

    directory: Path  #: the capture's directory; the current one if the capture is in a store
    codec: Codec = Codec.AUTO  #: how the bytes of files are compressed
    level: int = 1  #: of zstd, for what it compresses
    workers: int = field(default_factory=lambda: max(2, min(8, os.cpu_count() or 2)))
    fsync: Fsync = Fsync.NONE
    max_descriptors: int = 256  #: files and directories held open at once, at most
    #: Collect files of up to 1 MiB in packs; None: those of up to 64 KiB, unless they go to a store.
    pack: bool | None = None
    spill: Path | None = None  #: where files wait for a store that is away; None: nowhere
    spill_bytes: int = 4 << 30  #: how much may wait there
    in_store: bool = False  #: whether the capture is in an object store

    @property
    def base(self) -> Path | None:
        """What paths in the journal may be relative to; None if the capture is in a store."""
        return None if self.in_store else self.directory

    def __post_init__(self) -> None:
        object.__setattr__(self, "fsync", Fsync(self.fsync))
        object.__setattr__(self, "codec", _as_codec(self.codec))
        if self.spill is not None:
            object.__setattr__(self, "spill", as_path(self.spill, "spill"))
        least, most = _LEVELS
        if not least <= self.level <= most:
            raise ValueError(f"level must be from {least} to {most}, not {self.level}")
        for name, least in (("workers", 1), ("spill_bytes", 1), ("max_descriptors", _MIN_DESCRIPTORS)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")


def _as_codec(name: str) -> Codec:
    try:
        return Codec(name)
    except ValueError:
        raise ValueError(f"codec must be one of {', '.join(Codec)}, not {name!r}") from None


class WholeFile(NamedTuple):
    """A file that is known from its first to its last byte."""

    name: str
    data: Buffer  #: valid only until `Sink.put` returns


class Stored(NamedTuple):
    """Where a file went."""

    path: str | None = None  #: relative to the capture if inside it; None if there is nothing to open
    bytes: int = 0  #: its stored size
    xxh3: str | None = None  #: xxh3-64 of the original bytes, 16 hex digits
    start: int | None = None  #: where its bytes begin in a pack; None if it is not in a pack
    etag: str | None = None  #: the entity tag that an object store gave
    custody: Custody | None = None  #: how safe it is, if it is not yet at the path
    rows: Sequence[TensorRow] | None = None  #: the statistics of its tensors, if the sink has computed them


class SinkFile(Protocol):
    """One dump file being written.

    A class whose `commit` has a parameter *verdict* is told the `Verdict` on the file by that name.
    """

    async def write(self, pieces: Sequence[Buffer]) -> None:
        """Append *pieces* in order; they are valid only until this call returns."""

    async def commit(self) -> Stored:
        """Make the file visible, whole, under its name."""

    async def abort(self) -> None:
        """Remove every trace of the file. Also called after a failed `write` or `commit`."""


class Sink(Protocol):
    """A destination for dump files.

    Calls for one file never overlap; calls for different files may, and so may calls of `put`. A name may
    come again: what is already committed stays, and the new file goes beside it.

    A class whose `put` has a parameter *verdicts* is told the `Verdict` on each of the files by that name. A
    parameter *steps* of `put` gets the steps that were marked for them, each None if there is none or the
    name of the file has one; a parameter *step* of `open` gets that of the file, if there is one.
    """

    async def open(self, name: str, *, offset: int = 0) -> SinkFile:
        """Begin the file *name*, whose first byte belongs at *offset* (not 0 only behind a gap)."""

    async def put(self, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
        """Store whole files; return for each, in order, where it went or why it did not."""

    async def aclose(self) -> None:
        """Release everything. No file is open when this is called."""


class SinkFactory(Protocol):
    """A class or function that makes a sink, as an entry point of the group ``dumpstream.sinks``."""

    def __call__(self, location: str, settings: SinkSettings) -> Sink:
        """Return the sink for *location*, the part of the string after ``kind:``."""


def load_sink(spec: str, settings: SinkSettings) -> Sink:
    """Return the sink that a ``kind:location`` string names.

    Raises:
        SinkError: there is no such kind, and the message lists those installed; or it cannot be made.
    """
    kind, _, location = spec.partition(":")
    return make_sink(kind, find_factory(kind), location, settings)


def find_factory(kind: str, resources: Resources | None = None) -> SinkFactory:
    """Return what makes sinks of this kind, with *resources* if it is built in; reads files, so it blocks.

    Raises:
        SinkError: there is no such kind, and the message lists those installed; or it cannot be loaded.
    """
    for point in entry_points(group=_GROUP, name=kind):
        with _explained(kind):
            factory = point.load()
            if resources is not None and point.module in _WITH_RESOURCES:
                factory = partial(factory, resources=resources)
            return cast("SinkFactory", factory)
    known = ", ".join(sorted(f"{name}:" for name in entry_points(group=_GROUP).names))
    raise SinkError(f"no sink {kind!r}; installed sinks: {known}")


def make_sink(kind: str, factory: SinkFactory, location: str, settings: SinkSettings) -> Sink:
    """Return what *factory*, that of *kind*, makes for *location*; raises `SinkError`."""
    with _explained(kind):
        return factory(location, settings)


def sink_directory(kind: str, location: str) -> Path | None:
    """Return the directory that *location* names for the built-in sink *kind*; None if it names none.

    Raises:
        SinkError: it is a URL, or looks like one; the message says what to write.
    """
    if kind == "stats":
        location = location.partition("?")[0]
    try:
        found = as_location(location) if location else None
    except StoreError as exc:
        raise SinkError(f"{kind}: {exc}") from None
    if isinstance(found, Prefix):
        there = (
            f"--out {found.scheme}://... --sink stats:" if kind == "stats" else f"--sink {found.scheme}://..."
        )
        raise SinkError(f"{kind}: takes a directory, not a URL; for a store write {there}")
    return found


def stores_bytes(sink: Sink) -> bool:
    """Whether *sink* keeps the bytes of files, as far as is known.

    A sink that only measures files says so by an attribute `stores_bytes` that is false. It sees all files,
    also those that the capture is not to store.
    """
    return bool(getattr(sink, "stores_bytes", True))


def takes_repeated_names(sink: Sink) -> bool:
    """Whether one call of `put` may have the same name several times.

    A sink that stores such files in their order says so by an attribute `takes_repeated_names` that is true.
    """
    return bool(getattr(sink, "takes_repeated_names", False))


async def prepare(sink: Sink) -> None:
    """Await the method *prepare* of *sink*, if it has one; it raises what would make the capture fail.

    Raises:
        SinkError: the sink cannot be used.
    """
    method = getattr(sink, "prepare", None)
    if method is not None:
        await method()


@contextmanager
def _explained(kind: str) -> Iterator[None]:
    try:
        yield
    except SinkError:
        raise
    except DumpstreamError as exc:
        raise SinkError(f"the {kind} sink cannot be made: {exc}") from exc
    except Exception as exc:
        raise SinkError(f"the {kind} sink cannot be made: {type(exc).__name__}: {exc}") from exc
