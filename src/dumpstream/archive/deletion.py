"""Deletion: what a capture made is removed, as its journal and manifest say, and nothing else."""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dumpstream._errors import DestinationError, DestinationInUseError
from dumpstream.archive.manifest import (
    CHANGES,
    FILES,
    MANIFEST,
    PACKS,
    PROFILE,
    STATS,
    TEMPORARY,
    TEMPORARY_CHANGES,
    Manifest,
)
from dumpstream.archive.remains import Remains
from dumpstream.archive.rows import JOURNAL, FileRow, Row, read_journal
from dumpstream.system.lock import LOCK, SHARED, lock_holder, release_lock, take_lock
from dumpstream.system.nofollow import opened_directory
from dumpstream.system.publishing import is_temporary
from dumpstream.system.removal import Remover, remove_empty, remove_file, remove_tree
from dumpstream.system.walk import Folder, walk

#: The directories of sinks without a location of their own.
SINK_FOLDERS = (FILES, PACKS, STATS)

_OURS = {
    LOCK,
    SHARED,
    TEMPORARY,
    TEMPORARY_CHANGES,
    MANIFEST,
    CHANGES,
    JOURNAL,
}  # also of captures further inside
_NOT_A_FILE = {errno.ENOENT, errno.ELOOP, errno.EINVAL, errno.EISDIR}
#: Packs, and tables of statistics: the names of a run's begin alike, and unlike those of every other run.
_SERIES = re.compile(rf"((?:{PACKS}|{STATS})/[\w-]+)-\d{{5,}}(?:\.\d+)?\.(?:zip|parquet)", re.ASCII)
_MOST_SERIES = 10_000
_RECENT = 64
_PROFILE_PREFIX = "PROF_"


def refuse_others(path: Path, dir_fd: int, manifest: Manifest) -> None:
    """Raise `DestinationError` if another capture is inside what `delete_capture` would look through.

    Raises:
        DestinationInUseError: one of the processes' captures is being written.
    """
    for directory in ["", *members_of(manifest)]:
        below = [directory] if directory else []
        with suppress(FileNotFoundError, NotADirectoryError), opened_directory(dir_fd, below) as own_fd:
            if directory and (pid := lock_holder("", dir_fd=own_fd)) is not None:
                raise DestinationInUseError(path / directory, pid)
            for top in SINK_FOLDERS:
                _refuse_other(path / directory, top, own_fd)


def delete_capture(path: Path, dir_fd: int, manifest: Manifest) -> Remains:
    """Delete the captures of the processes, and the data of the directory *path*; return what is left.

    Every file goes before the journal that names it, and the manifest stays, so that an interrupted deletion
    can be repeated. Links are never followed.

    Raises:
        DestinationInUseError: the capture of a process is being written.
    """
    remains = Remains()
    for directory in members_of(manifest):
        with suppress(FileNotFoundError, NotADirectoryError):
            _delete_member(path, directory, dir_fd, remains)
    _delete_data(dir_fd, "", remains)
    return remains


def names_in(name: str, dir_fd: int) -> set[str]:
    """Return what is in the directory *name*; nothing if it is not a directory."""
    with suppress(OSError), opened_directory(dir_fd, [name]) as fd, os.scandir(fd) as entries:
        return {entry.name for entry in entries}
    return set()


def delete_profiles(names: Iterable[str], dir_fd: int) -> list[str]:
    """Delete CANN's profiles among *names*, and the directory of profiles if it is empty; return the rest."""
    with suppress(OSError), opened_directory(dir_fd, [PROFILE]) as parent:
        for name in names:
            if name.startswith(_PROFILE_PREFIX):
                remove_tree(name, parent)
    remove_empty([PROFILE], dir_fd)
    return [f"{PROFILE}/{name}" for name in sorted(names) if not name.startswith(_PROFILE_PREFIX)]


def series_of(path: str) -> str | None:
    """Return what the names of all packs, or all statistics, of the run that made *path* begin with."""
    match = _SERIES.fullmatch(path)
    return None if match is None else match[1]


def parts_of_rows(rows: Iterable[Row], series: set[str]) -> Iterator[str]:
    """Yield the paths of stored parts, in the order of the *rows*, and add the series that they belong to.

    A path that many rows have, because it is a pack, comes only now and then.
    """
    recent: dict[str, None] = {}
    for row in rows:
        for part in row.stored if isinstance(row, FileRow) else ():
            if part.path is None or part.path in recent:
                continue
            recent[part.path] = None
            if len(recent) > _RECENT:
                del recent[next(iter(recent))]
            if (run := series_of(part.path)) is not None and len(series) < _MOST_SERIES:
                series.add(run)
            yield part.path


def inside(path: str) -> tuple[str, ...] | None:
    """Return the components of a stored *path*; None if it leads outside, or to what describes a capture."""
    components = tuple([part for part in path.split("/") if part not in {"", "."}])
    if path.startswith("/") or "://" in path or ".." in components or not components:
        return None
    return None if components[-1] in _OURS else components


def members_of(manifest: Manifest) -> list[str]:
    """Return the directories of the processes' captures."""
    return list(dict.fromkeys(process.directory for process in manifest.processes if process.directory))


def _refuse_other(path: Path, top: str, dir_fd: int) -> None:
    with suppress(FileNotFoundError, NotADirectoryError), opened_directory(dir_fd, [top]) as fd:
        for folder in walk(fd, with_files=False):
            if not folder.ended and _is_capture(folder.fd):
                raise DestinationError(
                    path,
                    f"has another capture inside, in {top}/{folder.path}; move it elsewhere, "
                    "or choose another destination",
                )


def _is_capture(dir_fd: int) -> bool:
    """Whether the directory holds a capture, or one is about to begin in it."""
    with suppress(FileNotFoundError):
        os.stat(MANIFEST, dir_fd=dir_fd, follow_symlinks=False)
        return True
    return lock_holder("", dir_fd=dir_fd) is not None


def _delete_member(path: Path, directory: str, dir_fd: int, remains: Remains) -> None:
    with opened_directory(dir_fd, [directory]) as own_fd:
        lock = take_lock(path / directory, own_fd)
        try:
            _delete_data(own_fd, f"{directory}/", remains)
            for name in (TEMPORARY, MANIFEST, LOCK):
                remove_file(name, own_fd)
        finally:
            release_lock(lock)
    remove_empty([directory], dir_fd)


def _delete_data(dir_fd: int, prefix: str, remains: Remains) -> None:
    """Delete the parts that the journal names, what unfinished writes left, and the journal."""
    series: set[str] = set()
    with Remover(dir_fd, is_foreign=_is_capture) as remover:
        for path in parts_of_rows(_read_rows(dir_fd), series):
            if (components := inside(path)) is not None and not remover.remove(components):
                remains.add(f"{prefix}{path}")
    for top in SINK_FOLDERS:
        _sweep(top, dir_fd, prefix, series, remains)
    with suppress(IsADirectoryError):
        remove_file(JOURNAL, dir_fd)


def _read_rows(dir_fd: int) -> Iterator[Row]:
    """Yield the rows of the journal; one that is not a file names nothing."""
    try:
        yield from read_journal(JOURNAL, dir_fd=dir_fd)
    except OSError as exc:
        if exc.errno not in _NOT_A_FILE:
            raise


def _sweep(top: str, dir_fd: int, prefix: str, series: set[str], remains: Remains) -> None:
    """Delete drafts in the directory *top*, files of *series* that no row names, and empty directories."""
    with suppress(FileNotFoundError):
        mode = os.stat(top, dir_fd=dir_fd, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):  # a sink would not follow it, and could not store anything
            remove_file(top, dir_fd)
        elif not stat.S_ISDIR(mode):
            remains.add(f"{prefix}{top}")
        else:
            with opened_directory(dir_fd, [top]) as fd:
                for folder in walk(fd):
                    _sweep_folder(folder, top, prefix, series, remains)
            remove_empty([top], dir_fd)


def _sweep_folder(folder: Folder, top: str, prefix: str, series: set[str], remains: Remains) -> None:
    if folder.ended:
        for name in folder.folders:
            remove_empty([name], folder.fd)
        return
    above = f"{top}/{folder.path}"
    if _is_capture(folder.fd):
        folder.folders = []
        remains.add(f"{prefix}{above}")
        return
    for name in folder.files:
        if is_temporary(name) or series_of(f"{above}{name}") in series:
            remove_file(name, folder.fd)
        else:
            remains.add(f"{prefix}{above}{name}")
