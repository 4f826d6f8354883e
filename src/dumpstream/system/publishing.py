"""Publishing: a file is written under a temporary name, as a draft, and then appears whole under its own."""

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress

from typing_extensions import Buffer

from dumpstream._native import rename_noreplace
from dumpstream.system.durable import force_names

_SUFFIX = ".dumpstream-part"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def is_temporary(name: str) -> bool:
    """Tell whether the file called *name* is a draft that was never published."""
    return name.startswith(".") and name.endswith(_SUFFIX)


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
