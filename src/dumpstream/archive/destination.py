"""Destination: the directory that a capture writes to, prepared, locked and described."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from dumpstream._errors import DestinationError
from dumpstream.archive.deletion import delete_capture, delete_profiles, names_in, refuse_others
from dumpstream.archive.job import IS_CAPTURE, JOB, NEEDS_HOST, NOT_A_JOB, is_job, job_text
from dumpstream.archive.manifest import MANIFEST, PROFILE, TEMPORARY, read_manifest
from dumpstream.archive.manifestfile import ManifestFile
from dumpstream.archive.manifestwriter import ManifestWriter, refuse_both
from dumpstream.archive.pulse import Pulse, pulse_text
from dumpstream.archive.rows import JOURNAL
from dumpstream.system.durable import force_names
from dumpstream.system.location import Prefix
from dumpstream.system.lock import (
    LOCK,
    claim_directory,
    holds_lock,
    release_lock,
    take_lock,
    unclaim_directory,
    write_beside_lock,
)
from dumpstream.system.nofollow import open_directory
from dumpstream.system.publishing import is_temporary, write_files
from dumpstream.system.removal import remove_file

_OURS_WITHOUT_MANIFEST = {LOCK, TEMPORARY}  # all that an interrupted start can leave


class Destination(ManifestWriter):
    """A capture directory, locked by this process.

    The directory may be a symbolic link, but links inside it are never followed.
    """

    path: Path

    def __init__(self, path: Path, dir_fd: int, lock_fd: int, made: Sequence[Path | str]) -> None:
        super().__init__()
        self.path = path
        self._dir_fd = dir_fd
        self._file = ManifestFile(dir_fd)
        self._lock_fd = lock_fd
        self._made = made  # to be removed if no run begins, in this order
        self._profiles: set[str] = set()  # what earlier runs left in the directory of profiles
        self._kept_profiles: set[str] | None = None  # what was there when a run made ready to profile

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        append: bool = False,
        force: bool = False,
        dump_path: Path | None = None,
        of_processes: bool = False,
    ) -> Self:
        """Prepare the directory *path* for a capture, make it if it is missing, and lock it.

        Args:
            path: the directory.
            append: add a run or processes to the capture that is there.
            force: delete the capture that is there when a run begins; what is not part of it stays.
            dump_path: where the runtime writes files of its own; *path* must not be inside.
            of_processes: whether it is for processes, each with a capture of its own, instead of runs.

        Raises:
            DestinationInUseError: another capture is writing there.
            DestinationError: it cannot take a capture; the message says why and what to do.
            NotACaptureError: it has a manifest that this version cannot read.
        """
        refuse_both(append=append, force=force)
        path = absolute(path)
        if dump_path is not None and _real(path).is_relative_to(_real(dump_path)):
            raise DestinationError(
                path, f"is inside the dump_path {dump_path}; choose a destination outside it"
            )
        with explained(path):
            destination = cls._lock(path)
            try:
                destination._prepare(append=append, force=force, of_processes=of_processes)  # noqa: SLF001 - its own
            except BaseException:
                destination.close()
                raise
        return destination

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
            _remove_unused(made, dir_fd)
            if dir_fd >= 0:
                os.close(dir_fd)
            raise
        return cls(path, dir_fd, lock_fd, made if LOCK in entries else [LOCK, *made])

    def _prepare(self, *, append: bool, force: bool, of_processes: bool) -> None:
        entries = _entries(self._dir_fd)  # again: another process may have used it before it was locked
        _refuse_foreign(self.path, entries)
        if MANIFEST not in entries:
            return
        earlier = read_manifest(self.path)
        if earlier.profiled:
            self._profiles = names_in(PROFILE, self._dir_fd)
        self._accept(earlier, append=append, force=force, of_processes=of_processes)
        if force:
            claim_directory(self.path, self._dir_fd)
            refuse_others(self.path, self._dir_fd, earlier)

    @property
    def journal_path(self) -> Path:
        return self.path / JOURNAL

    @property
    def work_directory(self) -> Path:
        return self.path

    def make_profile(self) -> Path:
        """Make the directory of profiles if it is missing, and return its path.

        If no run begins, `close` deletes what was added to it, and the directory if it is empty then.
        """
        self._kept_profiles = names_in(PROFILE, self._dir_fd)
        with explained(self.path):
            os.close(open_directory(self._dir_fd, [PROFILE], create=True))
        return self.path / PROFILE

    def tell(self, pulse: Pulse) -> None:
        write_beside_lock(self._lock_fd, pulse_text(pulse))

    def _end_processes(self) -> None:
        with explained(self.path):
            self._file.write_all(self.manifest)

    def _begin(self) -> None:
        with explained(self.path):
            if (replaced := self._take_replaced()) is not None:
                self.remains = delete_capture(self.path, self._dir_fd, replaced)
                for profile in delete_profiles(self._profiles, self._dir_fd):
                    self.remains.add(profile)
                unclaim_directory(self._dir_fd)
                self.manifest.changes = replaced.changes  # which go with it
            self._file.write(self.manifest)
        self._made, self._kept_profiles = (), None

    def _write(self) -> None:
        with explained(self.path):
            self._file.write(self.manifest)

    def _is_taken(self, name: str) -> bool:
        with explained(self.path), suppress(FileNotFoundError):
            os.stat(name, dir_fd=self._dir_fd, follow_symlinks=False)
            return True
        return False

    def close(self) -> None:
        if self._dir_fd >= 0:
            self._file.close()
            if holds_lock(self._lock_fd):
                if self._kept_profiles is not None:
                    delete_profiles(names_in(PROFILE, self._dir_fd) - self._kept_profiles, self._dir_fd)
                _remove_unused(self._made, self._dir_fd)
                unclaim_directory(self._dir_fd)
            release_lock(self._lock_fd)
            os.close(self._dir_fd)
            self._dir_fd = -1


def join_job(path: Path, host: str) -> None:
    """Mark the directory *path* as a job if it is empty or missing; the mark stays if *host* does not begin.

    Raises:
        DestinationError: it holds something else, or a link in the place of the host.
        NotACaptureError: a newer version has marked it.
    """
    with explained(path):
        dir_fd = make_directory(path)
        try:
            entries = _entries(dir_fd)
            if (path / host).is_symlink():  # of a job, only what is in its directory is read and replaced
                raise DestinationError(path / host, "is a symbolic link, and not followed; remove it")
            if MANIFEST in entries:
                raise DestinationError(path, IS_CAPTURE)
            if is_job(path):  # looked for last: another host may just have marked it
                return
            if not all(map(is_temporary, entries)):
                raise DestinationError(path, NOT_A_JOB)
            for error in write_files(dir_fd, [JOB], [job_text()]):
                if error is not None and not isinstance(error, FileExistsError):
                    raise error
            force_names(dir_fd)
        finally:
            os.close(dir_fd)


@contextmanager
def explained(path: Path | Prefix | str) -> Iterator[None]:
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


def below(location: str | Path, name: str) -> str:
    """Return the location called *name* below *location*, which may be a URL."""
    return f"{str(location).rstrip('/')}/{name}"


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # not Path.resolve: a loop of links must not raise


def refuse_inside(out: Path, captures: Iterable[Path | Prefix]) -> None:
    """Raise `DestinationError` if *out*, where files are to be written, is inside one of *captures*."""
    for capture in captures:
        if isinstance(capture, Path) and _real(out).is_relative_to(_real(capture)):
            raise DestinationError(out, "is inside the capture; choose another --out")


def make_directory(path: Path) -> int:
    """Make the directory *path* with mode 0700 if it is missing, and return a descriptor of it."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileExistsError, NotADirectoryError):
        raise DestinationError(path, "is a file or is below one; choose a directory") from None


def _entries(dir_fd: int) -> set[str]:
    with os.scandir(dir_fd) as entries:
        return {entry.name for entry in entries}


def _refuse_foreign(path: Path, entries: set[str]) -> None:
    if MANIFEST not in entries and not entries <= _OURS_WITHOUT_MANIFEST:
        if JOB in entries and is_job(path):
            raise DestinationError(path, NEEDS_HOST)
        raise DestinationError(path, "is not empty and holds no capture; choose an empty or new directory")


def _remove_unused(made: Iterable[Path | str], dir_fd: int) -> None:
    """Remove files of the directory (by name) and directories (by path) as long as they are empty."""
    for one in made:
        with suppress(OSError):
            if isinstance(one, Path):
                one.rmdir()
            else:
                remove_file(one, dir_fd)
