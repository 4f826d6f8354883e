"""Publishing: a file is written without a name, or as a draft, and then appears whole under its own."""

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from typing_extensions import Buffer

from dumpstream._native import new_files, rename_noreplace
from dumpstream.system.durable import force_names

_SUFFIX = ".dumpstream-part"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def is_temporary(name: str) -> bool:
    """Tell whether the file called *name* is a draft that was never published."""
    return name.startswith(".") and name.endswith(_SUFFIX)


def look_writable(directory: Path) -> None:
    """Raise `OSError` if no file can be made in *directory*, or it cannot be made itself; leaves nothing."""
    existing = next(path for path in (directory, *directory.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        os.close(os.open(existing, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600))
    except OSError as exc:  # not every file system has files without a name
        if exc.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}:
            raise
        _try_draft(existing)


def _try_draft(directory: Path) -> None:
    """Make a draft in *directory*, and delete it again."""
    dir_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        temporary, fd = create_draft(dir_fd)
        os.close(fd)
        os.unlink(temporary, dir_fd=dir_fd)
    finally:
        os.close(dir_fd)


def create_draft(dir_fd: int) -> tuple[str, int]:
    """Make a draft in a directory; return its temporary name, and a descriptor that the caller closes."""
    temporary = f".{secrets.token_hex(8)}{_SUFFIX}"
    return temporary, os.open(temporary, _NEW, 0o600, dir_fd=dir_fd)


def publish_draft(temporary: str, name: str, dir_fd: int, *, replace: bool = False) -> None:
    """Give the draft *temporary* its *name*; without *replace*, an existing file raises `FileExistsError`."""
    if replace:
        os.replace(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    else:
        rename_noreplace(dir_fd, temporary, dir_fd, name)


def discard_draft(temporary: str, dir_fd: int) -> None:
    """Remove the draft *temporary*, unless it is gone."""
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=dir_fd)


def write_files(
    dir_fd: int, names: Sequence[str], contents: Sequence[Buffer], *, replace: bool = False
) -> Iterator[OSError | None]:
    """Make a file in a directory for each of *names*, whole or not at all; yield what kept it from appearing.

    Without *replace*, that is a `FileExistsError` if there is something of that name.
    """
    nameless = not replace
    done = 0
    while done < len(names):
        if nameless:
            made, number = new_files(dir_fd, [*names[done:]], [*contents[done:]])
            yield from [None] * made
            done += made
            if not number:
                return
            nameless = number != errno.EOPNOTSUPP
        if nameless:
            yield OSError(number, os.strerror(number))
        else:
            yield _write_draft(dir_fd, names[done], contents[done], replace=replace)
        done += 1


def _write_draft(dir_fd: int, name: str, content: Buffer, *, replace: bool) -> OSError | None:
    try:
        temporary, fd = create_draft(dir_fd)
        try:
            try:
                write_all(fd, content)
            finally:
                os.close(fd)
            publish_draft(temporary, name, dir_fd, replace=replace)
        except BaseException:
            discard_draft(temporary, dir_fd)
            raise
    except OSError as exc:
        return exc
    return None


def replacement_of(name: str) -> str:
    """Return the temporary name that `replace_file` uses for *name*."""
    return f".{name}.new"


def replace_file(name: str, pieces: Iterable[Buffer], dir_fd: int) -> None:
    """Replace the file *name*: a reader sees the old one or the new one, whole, also after a power cut."""
    temporary = replacement_of(name)
    discard_draft(temporary, dir_fd)  # of a process that was killed
    fd = os.open(temporary, _NEW, 0o600, dir_fd=dir_fd)
    try:
        with os.fdopen(fd, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(fd)
        publish_draft(temporary, name, dir_fd, replace=True)
    except OSError:
        discard_draft(temporary, dir_fd)
        raise
    force_names(dir_fd)


def write_all(fd: int, data: Buffer) -> int:
    """Write all of *data*, which is one row of bytes, to *fd*, and return how many they are."""
    view = memoryview(data)
    size = len(view)
    while view:
        view = view[os.write(fd, view) :]
    return size
