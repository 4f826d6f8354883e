"""Inputs: the dump files that the paths on a command line stand for."""

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

from dumpstream._errors import DumpstreamError, NotACaptureError
from dumpstream._native import file_sizes
from dumpstream.archive.job import JOB, is_job
from dumpstream.archive.manifest import MANIFEST
from dumpstream.codec import without_suffix
from dumpstream.format.verdict import Verdict
from dumpstream.names import MAPPING
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.filelist import Slice
from dumpstream.reading.problem import Problem, problems_of_list
from dumpstream.reading.selection import Dispensable, Selection
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile
from dumpstream.system.location import Prefix, as_location
from dumpstream.system.nofollow import open_regular

#: Is told why a capture may have files that are not on its list of files.
Lacking: TypeAlias = Callable[[Problem], None]

_LONGEST_NAME = 4096
_LONGEST_LINE = 16 << 10  #: of a mapping: a file and a name, quoted
_LONGEST_MAPPING = 64 << 20  #: the bytes of one that may be of files that are no longer there
_SIZED_TOGETHER = 512  #: files, so that the first comes soon


class Input(NamedTuple):
    """One file, which may turn out not to be a dump file unless it was *named*."""

    label: str  #: its name in messages
    name: str  #: the runtime's name for it, below the directory it was found in
    bytes: int  #: its size, compressed or not, as far as that is known
    named: bool  #: whether the user named this very file
    path: str | None = None  #: unless it is in a capture
    capture: StoredCapture | None = None
    file: StoredFile | None = None  #: of the capture
    prefix: str = ""  #: of label and name, if the capture is one of several
    rank: int | None = None  #: of the process that was captured
    host: str | None = None  #: on which it ran, if that is known
    given: str | None = None  #: the path that it was found at, if the caller gave several

    @property
    def full_name(self) -> str:
        """The name with the directories that tell its model and device."""
        if self.path is None:
            return self.name
        absolute = self.path if self.path.startswith("/") else f"{Path.cwd()}/{self.path}"
        return f"{absolute.rpartition('/')[0]}/{self.name.rpartition('/')[2]}"

    @property
    def remote(self) -> bool:
        return self.capture is not None and self.capture.remote

    @property
    def verdict(self) -> Verdict | None:
        return None if self.file is None else self.file.verdict

    @property
    def not_stored(self) -> str | None:
        """Why the capture was not to store its bytes, if so."""
        return None if self.file is None else self.file.not_stored

    @property
    def whole(self) -> bool:
        """Whether it is not known to be incomplete."""
        return self.file is None or self.file.verdict.whole

    def open(self) -> DumpFile:
        if self.capture is not None and self.file is not None:
            return DumpFile.open(self.capture, self.file)
        assert self.path is not None
        return DumpFile.open(self.path)


def find_inputs(
    paths: Iterable[Path | Prefix],
    ranks: Sequence[int] = (),
    patterns: Sequence[str] = (),
    dispensable: Dispensable | None = None,
    *,
    hosts: Sequence[str] = (),
    lacking: Lacking = lambda _: None,
) -> Iterator[Input]:
    """Yield the files of *paths*: those of a capture, those below a directory, or a file itself.

    A prefix in an object store is a capture. The files of a directory come in order, without hidden ones, and
    links are not followed; a directory in it may be a capture. With *ranks*, every path is that of a capture
    of several processes, of which only those ranks are read, and with *hosts*, that of a job. With
    *patterns*, only those files of a capture or a directory come that are called so or match one, which is
    fast in a capture of many files. Files of captures that are *dispensable* may be left out. *lacking* is
    told why a capture may have further files, which its journal or its manifest cannot tell.

    Raises:
        DumpstreamError: a path does not exist, or cannot be read, or has no process of a rank; or, when all
            files have come, no file matches one of the *patterns*.
    """
    selection = Selection(patterns, dispensable)
    different = [*dict.fromkeys(map(as_location, paths))]
    named = False
    for path in different:
        given = str(path) if len(different) > 1 else None
        tell = lacking if given is None else lacking_below(f"{given}/", lacking)
        for item in inputs_at(path, ranks, hosts, selection, tell):
            named |= item.named
            selection.note(item.name)
            yield item if given is None else item._replace(given=given)
    if not named:  # a file that was named may be a table of others
        selection.refuse_unnoted()


def lacking_below(prefix: str, lacking: Lacking) -> Lacking:
    """Return what tells *lacking* of problems below *prefix*, by which several captures differ."""
    return lambda problem: lacking(problem.below(prefix))


def is_capture(path: Path | Prefix) -> bool:
    """Whether *path* is taken for captures: it has a manifest, is a job, or is in an object store."""
    return isinstance(path, Prefix) or (path / MANIFEST).exists() or is_job(path)


def refuse_missing(path: Path | Prefix) -> None:
    """Raise `DumpstreamError` if there is nothing at *path*; asks no store."""
    if isinstance(path, Prefix):
        return
    try:
        path.stat()
    except FileNotFoundError as exc:
        problem = "does not exist; name a capture, a dump file, or a directory of them"
        raise DumpstreamError(f"{path} {problem}") from exc
    except OSError as exc:
        raise DumpstreamError(f"{path} cannot be read: {exc.strerror}") from exc


def inputs_at(
    path: Path | Prefix,
    ranks: Sequence[int],
    hosts: Sequence[str],
    selection: Selection,
    lacking: Lacking = lambda _: None,
) -> Iterator[Input]:
    """Yield the files of one *path* that are selected, as `find_inputs` does."""
    refuse_missing(path)
    try:
        if isinstance(path, Prefix) or is_capture(path):
            yield from _inputs_of_collection(Collection.open(path, ranks, hosts), selection, lacking)
        elif hosts:
            raise DumpstreamError(f"{path} is not a job of several hosts; leave --host out")
        elif ranks:
            raise DumpstreamError(f"{path} is not a capture of several processes; leave --rank out")
        elif path.is_dir():
            yield from _inputs_below(path, selection, lacking)
        else:
            name = without_suffix(path.name)
            yield Input(label=str(path), name=name, bytes=path.stat().st_size, named=True, path=str(path))
    except OSError as exc:
        raise DumpstreamError(f"{exc.filename or path} cannot be read: {exc.strerror}") from exc


def _inputs_of_collection(collection: Collection, selection: Selection, lacking: Lacking) -> Iterator[Input]:
    for member in collection.members():
        yield from inputs_of_member(member, selection)
        for problem in problems_of_list(member):
            lacking(problem)


def inputs_of_member(member: Member, selection: Selection, within: Slice | None = None) -> Iterator[Input]:
    """Yield the files of one capture that are selected, as `find_inputs` does, or those *within* a slice."""
    prefix, rank = member.prefix, member.rank
    for file in selection.files(member, within):
        name = prefix + file.name
        yield Input(
            label=name,
            name=name,
            bytes=file.bytes,
            named=False,
            capture=member.capture,
            file=file,
            prefix=prefix,
            rank=rank,
            host=member.host,
        )


def _inputs_below(root: Path, selection: Selection, lacking: Lacking) -> Iterator[Input]:
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(root / below) as entries:
            found = sorted(
                (entry for entry in entries if not entry.name.startswith(".")), key=lambda it: it.name
            )
        files = [entry.name for entry in found if entry.is_file(follow_symlinks=False)]
        if any(name in {MANIFEST, JOB} for name in files):
            with suppress(NotACaptureError):  # any directory may have a file of that name
                collection = Collection.open(root / below)
                yield from _inputs_of_collection(collection, selection, lacking_below(below, lacking))
                continue
        yield from _inputs_of_files(root / below, below, files, selection)
        folders = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        waiting += [f"{below}{name}/" for name in reversed(folders)]


def _inputs_of_files(
    directory: Path, below: str, files: Sequence[str], selection: Selection
) -> Iterator[Input]:
    """Yield those of *files* of a *directory* that are selected; their names begin with *below*."""
    originals = _read_mapping(directory / MAPPING, {*files}) if MAPPING in files else {}
    named = ((file, below + originals.get(file, without_suffix(file))) for file in files if file != MAPPING)
    selected = named if selection.everything else (it for it in named if selection.selects(it[1]))
    folder, text = os.path.join(directory, ""), str(directory)  # noqa: PTH118 - ends with a slash
    while some := [*islice(selected, _SIZED_TOGETHER)]:
        for (file, name), size in zip(some, file_sizes(text, [file for file, _ in some]), strict=True):
            path = folder + file
            yield Input(path, name, size, False, path)  # keywords take twice as long


def _read_mapping(path: Path, files: AbstractSet[str]) -> dict[str, str]:
    """Return the original names of those *files* of a directory whose names were too long."""
    names: dict[str, str] = {}
    with (
        os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file,
        suppress(csv.Error),  # from there on it is not such a list
    ):
        for row in csv.reader(_lines_of_mapping(file, len(files))):
            match row:
                case [file_name, name] if 0 < len(name) <= _LONGEST_NAME and "/" not in name:
                    if file_name in files:
                        names[file_name] = name
    return names


def _lines_of_mapping(file: IO[bytes], files: int) -> Iterator[str]:
    """Yield lines, but none that is too long, and no more than a directory of so many *files* may have."""
    left = _LONGEST_MAPPING + files * _LONGEST_LINE
    while left > 0 and (line := file.readline(_LONGEST_LINE)):
        left -= len(line)
        if len(line) == _LONGEST_LINE:
            return
        yield line.decode("utf-8", "surrogateescape")
