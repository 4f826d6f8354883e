"""Destination: the directory a capture writes to, prepared, locked and described."""

from __future__ import annotations

import os
import platform
import shutil
import stat
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dumpstream._errors import DestinationError
from dumpstream.lock import LOCK, release_lock, take_lock
from dumpstream.manifest import MANIFEST, TEMPORARY, Manifest, Run, read_manifest, write_manifest
from dumpstream.rows import JOURNAL, Outcome, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILES = "files"
STATS = "stats"

_OURS_WITHOUT_MANIFEST = {LOCK, TEMPORARY}  # all that a start which was cut off can leave


class Destination:
    """A capture directory held by this process.

    Everything in it blocks: call it from a worker thread. Links inside the directory are never followed; the
    directory itself may be one.
    """

    def __init__(self, path: Path, dir_fd: int, lock_fd: int, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._dir_fd = dir_fd
        self._lock_fd = lock_fd

    @classmethod
    def open(
        cls, path: Path, *, append: bool = False, force: bool = False, dump_path: Path | None = None
    ) -> Self:
        """Prepare the directory *path* for a capture, making it if need be, and lock it.

        Args:
            path: the directory.
            append: add a run to the capture that is there.
            force: delete the capture that is there; what is not part of it stays.
            dump_path: where the runtime writes files of its own; *path* must not be there.

        Raises:
            DestinationInUseError: another capture is writing there.
            DestinationError: it cannot take a capture; the message says why and what to do.
            NotACaptureError: it holds a capture of a newer version, or something like one.
        """
        if append and force:
            raise ValueError("append and force exclude each other: one keeps what is there, one deletes it")
        path = Path(os.path.abspath(path))  # noqa: PTH100 - Path.absolute keeps `..`
        if dump_path is not None and _real(path).is_relative_to(_real(dump_path)):
            raise DestinationError(
                path, f"is inside the dump_path {dump_path}; choose a destination outside it"
            )
        with explained(path):
            dir_fd = make_directory(path)
            try:
                _refuse_foreign(path, _entries(dir_fd))
                lock_fd = take_lock(path, dir_fd)
                try:
                    manifest = _prepare(path, dir_fd, append=append, force=force)
                except BaseException:
                    release_lock(lock_fd)
                    raise
            except BaseException:
                os.close(dir_fd)
                raise
        return cls(path, dir_fd, lock_fd, manifest)

    @property
    def journal_path(self) -> Path:
        """Where the journal is."""
        return self.path / JOURNAL

    def begin_run(self, options: Mapping[str, Any], *, acl_library: str | None = None) -> int:
        """Write down that a run begins, and return its number."""
        run = Run(
            run=max((run.run for run in self.manifest.runs), default=0) + 1,
            started=timestamp(),
            options=dict(options),
            python=platform.python_version(),
            platform=platform.platform(),
            acl_library=acl_library,
        )
        self.manifest.runs.append(run)
        self._write()
        return run.run

    def end_run(self, outcome: Outcome) -> None:
        """Write down how the run that began last ended."""
        run = self.manifest.runs[-1]
        run.ended, run.outcome = timestamp(), str(outcome)
        self._write()

    def close(self) -> None:
        """Give the directory up; a second call does nothing."""
        if self._dir_fd >= 0:
            release_lock(self._lock_fd)
            os.close(self._dir_fd)
            self._dir_fd = -1

    def _write(self) -> None:
        with explained(self.path):
            write_manifest(self.manifest, self._dir_fd)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a `DestinationError` about *path*."""
    try:
        yield
    except OSError as exc:
        raise DestinationError(
            path, f"cannot be written ({exc.strerror or exc}); choose another destination"
        ) from exc


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


def _prepare(path: Path, dir_fd: int, *, append: bool, force: bool) -> Manifest:
    entries = _entries(dir_fd)  # again: it may have been taken before it was locked
    _refuse_foreign(path, entries)
    if MANIFEST in entries:
        earlier = read_manifest(path)
        if append:
            return earlier
        if force:
            _delete_capture(dir_fd)
        elif earlier.runs:  # without any, a start failed before there was something to keep
            raise DestinationError(
                path,
                "already holds a capture; add a run to it with --append (append=True), "
                "or delete it and start anew with --force (force=True)",
            )
    manifest = Manifest(dumpstream=version("dumpstream"), created=timestamp())
    write_manifest(manifest, dir_fd)
    return manifest


def _delete_capture(dir_fd: int) -> None:
    """Delete the data and the journal; the manifest stays, so that a deletion cut short can be repeated."""
    for name in (FILES, STATS, JOURNAL):
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=dir_fd)
            else:
                os.unlink(name, dir_fd=dir_fd)
