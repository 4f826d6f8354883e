"""Outputs: files made from dump files, below a directory, each whole or not at all."""

from __future__ import annotations

import csv
import errno
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO, Self

from typing_extensions import Buffer

from dumpstream._errors import DestinationError
from dumpstream.archive.destination import explained, make_directory
from dumpstream.names import MAPPING, hashed_name
from dumpstream.system.nofollow import open_directory, open_regular, opened_directory
from dumpstream.system.publishing import create_draft, discard_draft, publish_draft, write_files
from dumpstream.system.targets import Target

_EXISTS = "already exists; replace it with --force, or choose another {}"
_OUT = "--out"
_MORE = os.O_RDWR | os.O_CREAT | os.O_APPEND
_LONGEST_NAME = 255  #: bytes
# Something that was in the directory before is in the way of this file, or the file system does not take the
# name; other files can be written.
_OF_ONE_NAME = {
    *(errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY),
    *(errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL),
}


class OutputNameError(DestinationError):
    """One file cannot be written under its name; others can."""


@contextmanager
def open_output(path: Path, *, replace: bool, option: str = _OUT) -> Iterator[IO[bytes]]:
    """Open a file that appears at *path* if the block succeeds; raises `DestinationError`.

    *option* is the one that names another file, for the message that this one exists.
    """
    if not replace:
        _refuse_existing(path, option)
    with explained(path):
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            temporary, fd = create_draft(directory)
            try:
                with os.fdopen(fd, "wb") as file:
                    yield file
                try:
                    publish_draft(temporary, path.name, directory, replace=replace)
                except FileExistsError:
                    raise DestinationError(path, _EXISTS.format(option)) from None
            finally:
                discard_draft(temporary, directory)
        finally:
            os.close(directory)


def output_name(stem: str, base: str, suffix: str) -> str:  # noqa: ARG001 - other names are made of it
    """Return the name of a file that is made from an input.

    *stem* is the last component of the input's target, and *base* that of its own name.
    """
    name = f"{stem}{suffix}"
    return name if len(name.encode()) <= _LONGEST_NAME else f"{hashed_name(stem)}{suffix}"


class Outputs:
    """The directory *out*, which is made if missing; nothing is written outside it, or through a link in it.

    A name that is too long for a file, or cannot be shown, is shortened, and ``mapping.csv`` beside the file
    gets a line with both names.

    Args:
        out: the directory.
        replace: whether existing files may be replaced.

    Raises:
        DestinationError: *out* cannot be used.
    """

    def __init__(self, out: Path, *, replace: bool) -> None:
        self.path, self.replace = out, replace
        self._noted: dict[Target, set[bytes]] = {}
        self._lock = Lock()
        with explained(out):
            self._root = make_directory(out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def refuse_existing(self, targets: Iterable[Target]) -> None:
        """Raise `DestinationError` if one of *targets* is there already and may not be replaced.

        In an empty directory *targets* are not looked at.
        """
        if not self.replace and any(self.path.iterdir()):
            for target in targets:
                _refuse_existing(self.path.joinpath(*target))

    @contextmanager
    def drafts(
        self, target: Target, base: str | None = None, *, name: Callable[[str, str, str], str] = output_name
    ) -> Iterator[Drafts]:
        """Have what writes the files made from one input while the block runs.

        Their original names begin with *base*, by default the last component of *target*, and *name* returns
        those that they get. An `OSError` of the block is raised as a `DestinationError`, or as an
        `OutputNameError`.
        """
        *directory, stem = target
        with self._explained(target), opened_directory(self._root, directory, create=True) as fd:
            drafts = Drafts(self, fd, target, stem if base is None else base, name)
            try:
                yield drafts
            finally:
                drafts.discard()

    def write(
        self, directory: Target, names: Sequence[str], contents: Sequence[Buffer]
    ) -> Iterator[OutputNameError | None]:
        """Write small files into a directory, each whole or not at all; yield why one could not be written.

        Raises:
            DestinationError: nothing more can be written.
        """
        try:
            fd = open_directory(self._root, directory, create=True)
        except OSError as exc:
            yield from (self._name_problem((*directory, name), exc) for name in names)
            return
        try:
            problems = write_files(fd, names, contents, replace=self.replace)
            for name, problem in zip(names, problems, strict=True):
                yield self.problem((*directory, name), 0 if problem is None else problem.errno or 0)
        finally:
            os.close(fd)

    @contextmanager
    def existing(self, directory: Target) -> Iterator[int | None]:
        """Have the descriptor of a directory while the block runs; None if it is not there."""
        fd: int | None = None
        with suppress(OSError):
            fd = open_directory(self._root, directory)
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    def problem(self, target: Target, error: int) -> OutputNameError | None:
        """Return why only the file at *target* could not be written, given an errno; None if it was, by 0.

        Raises:
            DestinationError: nothing more can be written.
        """
        if not error:
            return None
        if error == errno.EEXIST:
            raise DestinationError(self.path.joinpath(*target), _EXISTS.format(_OUT))
        return self._name_problem(target, OSError(error, os.strerror(error)))

    def _name_problem(self, target: Target, problem: OSError) -> OutputNameError:
        """Return why only the file at *target* cannot be written, or raise `DestinationError`."""
        try:
            with self._explained(target):
                raise problem
        except OutputNameError as exc:
            return exc

    @contextmanager
    def _explained(self, target: Target) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            path = self.path.joinpath(*target)
            if exc.errno in _OF_ONE_NAME:
                problem = f"cannot be written under this name ({exc.strerror}); choose another --out"
                raise OutputNameError(path, problem) from exc
            with explained(path):
                raise

    def note(self, dir_fd: int, directory: Target, name: str, original: str) -> None:
        """Record that the file *name* of a directory should be called *original*."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow([name, original])
        line = text.getvalue().encode("utf-8", "backslashreplace")
        with self._lock, os.fdopen(open_regular(MAPPING, _MORE, dir_fd=dir_fd), "a+b") as file:
            if directory not in self._noted:
                file.seek(0)
                self._noted[directory] = set(file)
            if line not in self._noted[directory]:
                file.write(line)
                self._noted[directory].add(line)


class Drafts:
    """The files made from one input, under temporary names until they are published."""

    def __init__(
        self, outputs: Outputs, dir_fd: int, target: Target, base: str, name: Callable[[str, str, str], str]
    ) -> None:
        self._outputs, self._fd, self._target, self._base = outputs, dir_fd, target, base
        self._name = name
        self._files: deque[tuple[str, str]] = deque()  # temporary name, suffix

    def discard(self) -> None:
        """Remove those that were not published."""
        for temporary, _ in self._files:
            discard_draft(temporary, self._fd)

    def write(self, suffix: str, writer: Callable[[int], int]) -> int:
        """Make a file, let *writer* write to its descriptor, and return what *writer* returns.

        If *writer* fails, the file is removed.
        """
        temporary, fd = create_draft(self._fd)
        try:
            written = writer(fd)
        except BaseException:
            discard_draft(temporary, self._fd)
            raise
        finally:
            os.close(fd)
        self._files.append((temporary, suffix))
        return written

    def publish(self) -> None:
        """Give every file its name; raises `DestinationError` if one exists and may not be replaced."""
        *directory, stem = self._target
        while self._files:
            temporary, suffix = self._files[0]
            name, original = self._name(stem, self._base, suffix), f"{self._base}{suffix}"
            if name != original:
                self._outputs.note(self._fd, tuple(directory), name, original)
            try:
                publish_draft(temporary, name, self._fd, replace=self._outputs.replace)
            except FileExistsError:
                path = self._outputs.path.joinpath(*directory, name)
                raise DestinationError(path, _EXISTS.format(_OUT)) from None
            self._files.popleft()


def _refuse_existing(path: Path, option: str = _OUT) -> None:
    if os.path.lexists(path):
        raise DestinationError(path, _EXISTS.format(option))
