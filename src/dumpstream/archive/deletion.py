"""Deletion: a capture is removed, and nothing that is not part of it."""

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from dumpstream.archive.manifest import FILES, MANIFEST, PACKS, PROFILE, STATS, TEMPORARY, Manifest
from dumpstream.archive.rows import JOURNAL, FileRow, read_journal
from dumpstream.system.lock import LOCK
from dumpstream.system.nofollow import opened_directory

_OURS = {LOCK, TEMPORARY, MANIFEST, JOURNAL}


def delete_capture(path: Path, dir_fd: int, manifest: Manifest) -> None:
    """Delete the captures of the processes, the data and then the journal of the directory *path*.

    The manifest stays, and the journal as long as it is needed, so that an interrupted deletion can be
    repeated. Links are never followed.
    """
    for directory in filter(None, (process.directory for process in manifest.processes)):
        with suppress(FileNotFoundError, NotADirectoryError):
            _delete_process(path, directory, dir_fd)
    _delete_data(path, dir_fd)


def names_in(name: str, dir_fd: int) -> set[str]:
    """Return what is in the directory *name*; nothing if it is not a directory."""
    with suppress(OSError), opened_directory(dir_fd, [name]) as fd, os.scandir(fd) as entries:
        return {entry.name for entry in entries}
    return set()


def delete_profiles(names: Iterable[str], dir_fd: int) -> None:
    """Delete *names* in the directory of profiles, and the directory if nothing else is in it."""
    with suppress(OSError), opened_directory(dir_fd, [PROFILE]) as parent:
        for name in names:
            _delete(name, parent)
    with suppress(OSError):
        os.rmdir(PROFILE, dir_fd=dir_fd)


def _delete_process(path: Path, directory: str, dir_fd: int) -> None:
    with opened_directory(dir_fd, [directory]) as own_fd:
        _delete_data(path / directory, own_fd)
        for name in (TEMPORARY, MANIFEST, LOCK):
            _delete(name, own_fd)
    with suppress(OSError):  # unless something else is in it
        os.rmdir(directory, dir_fd=dir_fd)


def _delete_data(path: Path, dir_fd: int) -> None:
    for name in (FILES, PACKS, STATS):
        _delete(name, dir_fd)
    _delete_parts(path, dir_fd)
    _delete(JOURNAL, dir_fd)


def _delete(name: str, dir_fd: int) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=dir_fd)
        else:
            os.unlink(name, dir_fd=dir_fd)


def _delete_parts(path: Path, dir_fd: int) -> None:
    """Delete what sinks with a location of their own stored inside the capture, never what is outside."""
    directories: set[tuple[str, ...]] = set()
    with suppress(OSError):  # a journal that cannot be read names nothing
        for row in read_journal(path / JOURNAL):
            if isinstance(row, FileRow):
                for part in row.stored:
                    directories.add(_delete_part(PurePosixPath(part.path or "/"), dir_fd))
    above = {parts[:depth] for parts in directories for depth in range(1, len(parts) + 1)}
    for parts in sorted(above, key=len, reverse=True):
        with suppress(OSError), opened_directory(dir_fd, parts[:-1]) as parent:
            os.rmdir(parts[-1], dir_fd=parent)  # unless something else is in it


def _delete_part(part: PurePosixPath, dir_fd: int) -> tuple[str, ...]:
    """Delete *part* if it is inside the capture, and return the directory it was in."""
    *directory, name = part.parts or ("/",)
    inside = not part.is_absolute() and ".." not in part.parts
    if not inside or directory[:1] in ([FILES], [PACKS], [STATS]) or (not directory and name in _OURS):
        return ()
    with suppress(OSError), opened_directory(dir_fd, directory) as parent:
        os.unlink(name, dir_fd=parent)
    return tuple(directory)
