"""Destination: the directory a capture writes to, prepared, locked and described."""

from __future__ import annotations

import os
import platform
import shutil
import stat
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Self

from dumpstream._errors import DestinationError
from dumpstream.lock import LOCK, holds_lock, release_lock, take_lock
from dumpstream.manifest import MANIFEST, TEMPORARY, Manifest, Run, read_manifest, write_manifest
from dumpstream.nofollow import open_directory
from dumpstream.rows import JOURNAL, FileRow, Outcome, read_journal, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FILES = "files"
STATS = "stats"
PROFILE = "profile"

_OURS_WITHOUT_MANIFEST = {LOCK, TEMPORARY}  # all that a start which was cut off can leave
_OURS = {LOCK, TEMPORARY, MANIFEST, JOURNAL}


class Destination:
    """A capture directory held by this process.

    Everything in it blocks: call it from a worker thread. Links inside the directory are never followed; the
    directory itself may be one. Until a run begins nothing is changed but what `close` takes back.
    """

    def __init__(self, path: Path, dir_fd: int, lock_fd: int, made: Sequence[Path | str]) -> None:
        self.path = path
        self.manifest = Manifest(dumpstream=version("dumpstream"), created=timestamp())
        self._dir_fd = dir_fd
        self._lock_fd = lock_fd
        self._made = made  # to be taken back if no run begins, in this order
        self._replaced = False
        self._profiles: set[str] = set()  # what earlier runs left in the directory of profiles

    @classmethod
    def open(
        cls, path: Path, *, append: bool = False, force: bool = False, dump_path: Path | None = None
    ) -> Self:
        """Prepare the directory *path* for a capture, making it if need be, and lock it.

        Args:
            path: the directory.
            append: add a run to the capture that is there.
            force: delete the capture that is there when a run begins; what is not part of it stays.
            dump_path: where the runtime writes files of its own; *path* must not be there.

        Raises:
            DestinationInUseError: another capture is writing there.
            DestinationError: it cannot take a capture; the message says why and what to do.
            NotACaptureError: it holds a capture of a newer version, or something like one.
        """
        if append and force:
            raise ValueError("append and force exclude each other: one keeps what is there, one deletes it")
        path = absolute(path)
        if dump_path is not None and _real(path).is_relative_to(_real(dump_path)):
            raise DestinationError(
                path, f"is inside the dump_path {dump_path}; choose a destination outside it"
            )
        with explained(path):
            place = cls._lock(path)
            try:
                place._prepare(append=append, force=force)  # noqa: SLF001 - its own
            except BaseException:
                place.close()
                raise
        return place

    @classmethod
    def _lock(cls, path: Path) -> Self:
        made: list[Path | str] = [folder for folder in (path, *path.parents) if not folder.exists()]
        dir_fd = -1
        try:
            dir_fd = make_directory(path)
            entries = _entries(dir_fd)
            _refuse_foreign(path, entries)
            lock_fd = take_lock(path, dir_fd)
        except BaseException:
            _take_back(made, dir_fd)
            if dir_fd >= 0:
                os.close(dir_fd)
            raise
        return cls(path, dir_fd, lock_fd, made if LOCK in entries else [LOCK, *made])

    def _prepare(self, *, append: bool, force: bool) -> None:
        entries = _entries(self._dir_fd)  # again: it may have been taken before it was locked
        _refuse_foreign(self.path, entries)
        if MANIFEST not in entries:
            return
        earlier = read_manifest(self.path)
        if earlier.profiled:
            self._profiles = _names_in(PROFILE, self._dir_fd)
        if append:
            self.manifest = earlier
        elif force:
            self._replaced = True
        elif earlier.runs:
            raise DestinationError(
                self.path,
                "already holds a capture; add a run to it with --append (append=True), "
                "or delete it and start anew with --force (force=True)",
            )

    @property
    def journal_path(self) -> Path:
        """Where the journal is."""
        return self.path / JOURNAL

    def begin_run(
        self,
        options: Mapping[str, Any],
        *,
        acl_library: str | None = None,
        profile: Mapping[str, Any] | None = None,
    ) -> int:
        """Delete the capture that was to be, write down that a run begins, and return its number."""
        run = Run(
            run=max((run.run for run in self.manifest.runs), default=0) + 1,
            started=timestamp(),
            options=dict(options),
            python=platform.python_version(),
            platform=platform.platform(),
            acl_library=acl_library,
            profile=None if profile is None else {"path": PROFILE, **profile},
        )
        with explained(self.path):
            if self._replaced:
                self._replaced = False
                _delete_capture(self.path, self._dir_fd)
                _delete_profiles(self._profiles, self._dir_fd)
            self.manifest.runs.append(run)
            write_manifest(self.manifest, self._dir_fd)
        self._made = ()
        return run.run

    def make_profile(self) -> Path:
        """Make the directory of profiles unless it is there, and return its path."""
        with explained(self.path):
            os.close(open_directory(self._dir_fd, [PROFILE], create=True))
        return self.path / PROFILE

    def drop_profile(self) -> None:
        """Take back what has come into the directory of profiles since `open`, and itself, if it is empty."""
        _delete_profiles(_names_in(PROFILE, self._dir_fd) - self._profiles, self._dir_fd)

    def end_run(self, outcome: Outcome) -> None:
        """Write down how the run that began last ended."""
        run = self.manifest.runs[-1]
        run.ended, run.outcome = timestamp(), str(outcome)
        with explained(self.path):
            write_manifest(self.manifest, self._dir_fd)

    def close(self) -> None:
        """Give the directory up; a second call does nothing."""
        if self._dir_fd >= 0:
            if holds_lock(self._lock_fd):
                _take_back(self._made, self._dir_fd)
            release_lock(self._lock_fd)
            os.close(self._dir_fd)
            self._dir_fd = -1


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a `DestinationError` about *path*."""
    try:
        yield
    except OSError as exc:
        raise DestinationError(
            path, f"cannot be written ({exc.strerror or exc}); choose another destination"
        ) from exc


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return *path* from the root, without `.` and `..`."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - Path.absolute keeps `..`


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # not Path.resolve: a loop of links must not raise


def make_directory(path: Path) -> int:
    """Make the directory *path* with mode 0700 unless it is there, and return a descriptor of it."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileExistsError, NotADirectoryError):
        raise DestinationError(path, "is a file or lies below one; choose a directory") from None


def _entries(dir_fd: int) -> set[str]:
    with os.scandir(dir_fd) as entries:
        return {entry.name for entry in entries}


def _refuse_foreign(path: Path, entries: set[str]) -> None:
    if MANIFEST not in entries and not entries <= _OURS_WITHOUT_MANIFEST:
        raise DestinationError(path, "is not empty and holds no capture; choose an empty or new directory")


def _take_back(made: Iterable[Path | str], dir_fd: int) -> None:
    """Remove files of the directory (by name) and directories (by path), as far as they are still unused."""
    for one in made:
        with suppress(OSError):
            if isinstance(one, Path):
                one.rmdir()
            else:
                os.unlink(one, dir_fd=dir_fd)


def _delete_capture(path: Path, dir_fd: int) -> None:
    """Delete the data, then the journal.

    The manifest stays, and the journal as long as it is needed, so that a deletion cut short can be repeated.
    """
    for name in (FILES, STATS):
        _delete(name, dir_fd)
    _delete_parts(path, dir_fd)
    _delete(JOURNAL, dir_fd)


def _delete(name: str, dir_fd: int) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=dir_fd)
        else:
            os.unlink(name, dir_fd=dir_fd)


def _names_in(name: str, dir_fd: int) -> set[str]:
    """Return what is in the directory *name*; nothing if it is none."""
    with suppress(OSError), _opened(dir_fd, [name]) as fd:
        return _entries(fd)
    return set()


def _delete_profiles(names: Iterable[str], dir_fd: int) -> None:
    with suppress(OSError), _opened(dir_fd, [PROFILE]) as parent:
        for name in names:
            _delete(name, parent)
    with suppress(OSError):
        os.rmdir(PROFILE, dir_fd=dir_fd)  # unless something else is in it


def _delete_parts(path: Path, dir_fd: int) -> None:
    """Delete what sinks with a location of their own stored inside the capture; never what lies outside."""
    directories: set[tuple[str, ...]] = set()
    with suppress(OSError):  # a journal that cannot be read names nothing
        for row in read_journal(path / JOURNAL):
            if isinstance(row, FileRow):
                for part in row.stored:
                    directories.add(_delete_part(PurePosixPath(part.path or "/"), dir_fd))
    above = {parts[:depth] for parts in directories for depth in range(1, len(parts) + 1)}
    for parts in sorted(above, key=len, reverse=True):
        with suppress(OSError), _opened(dir_fd, parts[:-1]) as parent:
            os.rmdir(parts[-1], dir_fd=parent)  # unless something else is in it


def _delete_part(part: PurePosixPath, dir_fd: int) -> tuple[str, ...]:
    """Delete *part* if it is inside the capture, and return the directory it was in."""
    *directory, name = part.parts or ("/",)
    inside = not part.is_absolute() and ".." not in part.parts
    if not inside or directory[:1] in ([FILES], [STATS]) or (not directory and name in _OURS):
        return ()
    with suppress(OSError), _opened(dir_fd, directory) as parent:
        os.unlink(name, dir_fd=parent)
    return tuple(directory)


@contextmanager
def _opened(root: int, components: Iterable[str]) -> Iterator[int]:
    fd = open_directory(root, components)
    try:
        yield fd
    finally:
        os.close(fd)
