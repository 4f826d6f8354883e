"""Portion: a share of captures and dump files that can be read by itself, also by another process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from dumpstream._errors import DumpstreamError, NotACaptureError
from dumpstream.archive.manifest import Process
from dumpstream.engine.part import SLICED
from dumpstream.reading.collection import Collection, Member, read_member
from dumpstream.reading.filelist import Slice
from dumpstream.reading.inputs import (
    Input,
    Lacking,
    inputs_at,
    inputs_of_member,
    is_capture,
    lacking_below,
    refuse_missing,
)
from dumpstream.reading.problem import problems_of_list
from dumpstream.reading.selection import Selection
from dumpstream.reading.stored import StoredCapture, open_place
from dumpstream.system.location import Prefix, as_location
from dumpstream.system.walk import walk_paths

#: How much of a large capture is a portion by itself, about.
_PORTION_BYTES = 256 << 20


class Portion(NamedTuple):
    """The capture of one process, a slice of it, or everything else at a location; has no credentials."""

    location: Path | Prefix
    captured: bool = False  #: whether there are captures,
    process: Process | None = None  #: and whose capture it is, if there may be several at the location
    host: str | None = None  #: as `Member.host`
    below: str = ""  #: as `Member.below`
    problem: str | None = None  #: why it cannot be read, if that is known already
    given: str | None = None  #: the path that the caller gave, if there were several
    within: Slice | None = None  #: if it is only a slice of the capture

    def __str__(self) -> str:
        if self.within is not None:
            return f"{self.whole}, slice {self.within.number} of {self.within.of}"
        if self.process is None:
            return str(self.location)
        directory = self.process.directory
        return (
            f"{self.location}/{directory}" if directory else f"process {self.process.pid} of {self.location}"
        )

    @property
    def whole(self) -> Portion:
        """What it is a slice of."""
        return self._replace(within=None)

    @property
    def is_first(self) -> bool:
        """Whether nothing of the capture is before it."""
        return self.within is None or self.within.number == 1

    @property
    def is_last(self) -> bool:
        """Whether nothing of the capture is behind it."""
        return self.within is None or self.within.number == self.within.of

    def read(self) -> Member | None:
        """Return the capture, as it is now; None if it is not one.

        Raises:
            NotACaptureError: the only capture of a location cannot be read.
            StoreError: its store refuses, or does not answer.
        """
        if not self.captured:
            return None
        place = open_place(self.location)
        if self.problem is not None:
            member = Member(None, problem=self.problem, host=self.host, below=self.below)
            return member._replace(beginning=place.find_writer() is not None)
        if self.process is not None:
            return read_member(place, self.process, self.host, self.below)
        try:
            return Member(StoredCapture.read(place), host=self.host, below=self.below)
        except NotACaptureError as exc:
            if not self.below:
                raise
            return Member(None, problem=str(exc), host=self.host, below=self.below)


def find_portions(
    paths: Iterable[Path | Prefix], ranks: Sequence[int] = (), hosts: Sequence[str] = ()
) -> Iterator[Portion]:
    """Yield everything that `find_inputs` finds, in the same order, in portions; reads only manifests.

    Raises:
        DumpstreamError: a path does not exist, or cannot be read, or has no process of a rank or a host.
    """
    different = [*dict.fromkeys(map(as_location, paths))]
    for path in different:
        refuse_missing(path)
        if is_capture(path):
            found = portions_of(Collection.open(path, ranks, hosts))
        elif hosts:
            raise DumpstreamError(f"{path} is not a job of several hosts; leave --host out")
        elif ranks:
            raise DumpstreamError(f"{path} is not a capture of several processes; leave --rank out")
        else:
            found = iter([Portion(path)])
        given = str(path) if len(different) > 1 else None
        yield from (portion._replace(given=given) for portion in found)


def portions_of(collection: Collection) -> Iterator[Portion]:
    """Yield a portion for each capture of *collection*, in its order."""
    for host in collection.hosts:
        of_host = Portion(
            host.place.path, captured=True, host=host.name, below=host.below, problem=host.problem
        )
        if host.processes is None:
            yield of_host
        else:
            yield from (of_host._replace(process=process) for process in host.processes)


def sliced(portions: Iterable[Portion]) -> Iterator[Portion]:
    """Yield *portions*, and instead of a large capture that is finished, the slices of it."""
    for portion in portions:
        count = _slices(portion)
        if count > 1:
            yield from (portion._replace(within=Slice(number, count)) for number in range(1, count + 1))
        else:
            yield portion


def _slices(portion: Portion) -> int:
    """Return into how many slices *portion* is cut: by its manifest, or if that has no sizes, its journal."""
    files = size = 0
    if portion.process is not None:
        files, size = portion.process.files or 0, portion.process.bytes or 0
    elif portion.captured and portion.problem is None:
        with suppress(DumpstreamError):  # which the task will tell
            member = portion.read()
            if member is not None and member.capture is not None and not member.capture.running:
                files, size = member.capture.totals.files, member.capture.totals.bytes
    return max(1, min(files, -(-size // _PORTION_BYTES)))


def inputs_of(
    portion: Portion, member: Member | None, unmatched: set[str], lacking: Lacking, selection: Selection
) -> Iterator[Input]:
    """Yield the selected files of *portion*, of which *member* is the capture if it is one.

    When all have come, the patterns that one of them matches are no longer in *unmatched*, and *lacking* has
    been told why there may be others.
    """
    if portion.given is not None:
        lacking = lacking_below(f"{portion.given}/", lacking)
    if member is None:
        found = inputs_at(portion.location, (), (), selection, lacking)
    else:
        found = inputs_of_member(member, selection, portion.within)
    named = False
    for item in found:
        named |= item.named
        selection.note(item.name)
        yield item._replace(given=portion.given)
    if member is not None and portion.is_last:
        for problem in problems_of_list(member):
            lacking(problem)
    unmatched.intersection_update(() if named else selection.unnoted)


def digest_of(portion: Portion, member: Member | None) -> str:
    """Return a hash of what *portion* has: of the journal of *member*, or of the names and sizes of files."""
    if member is not None and member.capture is not None:
        return member.capture.files.digest()
    lines = [str(member)] if member is not None else [*_lines_below(Path(str(portion.location)))]
    return xxhash.xxh3_128_hexdigest("\n".join(lines).encode("utf-8", "surrogateescape"))


def slice_result(portion: Portion, digest: str) -> dict[str, Any]:
    """Return what the part of *portion* says, so that slices of different journals are refused.

    *digest* is that of the capture.
    """
    return {} if portion.within is None else {SLICED: [str(portion.whole), digest]}


def digest_at(location: Path | Prefix) -> str:
    """Return a hash of everything at *location*: of all journals, or of the names and sizes of files."""
    found = (f"{portion} {digest_of(portion, portion.read())}" for portion in find_portions([location]))
    return xxhash.xxh3_128_hexdigest("\n".join(found).encode("utf-8", "surrogateescape"))


def _lines_below(path: Path) -> Iterator[str]:
    """Yield a line for each file at or below *path*."""
    files = (
        [path] if path.is_file() else (Path(at) / name for at, _, names in walk_paths(path) for name in names)
    )
    for file in sorted(files):
        status = file.lstat()
        yield f"{file} {status.st_size} {status.st_mtime_ns}"
