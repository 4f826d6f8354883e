"""The outboxes that captures left: where they are, what waits in them, and what to do about it."""

import os
import re
import secrets
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import gmtime, strftime

from dumpstream._errors import DestinationError
from dumpstream.archive.manifest import MANIFEST, Manifest
from dumpstream.archive.rows import JOURNAL
from dumpstream.remote.description import Description
from dumpstream.system.location import Prefix
from dumpstream.system.lock import LOCK
from dumpstream.system.nofollow import open_regular, opened_directory
from dumpstream.system.publishing import replacement_of

#: What is in every outbox: its description, and a directory of objects.
DESCRIPTION = "outbox.json"
OBJECTS = "objects"
LARGEST_DESCRIPTION = 1 << 20

#: The description is the last of the three that is removed: what is interrupted can be repeated.
_FILES = (JOURNAL, MANIFEST, DESCRIPTION)
_OBJECT = re.compile(r"[0-9a-f]{32}(\.part)?", re.ASCII)
_WRITABLE_BY_OTHERS = 0o022
_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}", re.ASCII)


def state_directory() -> Path:
    """Return where outboxes are without a spill directory."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home, "dumpstream").expanduser()


def new_name() -> str:
    """Return a name for an outbox; no directory of another name is ever taken for one."""
    return f"{strftime('%Y%m%dT%H%M%S', gmtime())}-{secrets.token_hex(4)}"


def is_outbox(path: Path) -> bool:
    """Whether *path* looks like an outbox, whoever made it."""
    return _NAME.fullmatch(path.name) is not None and os.path.lexists(path / DESCRIPTION)


def outer_outbox(path: Path) -> Path | None:
    """Return the outbox that *path* is, or is inside; None if it is outside all of them."""
    real = Path(os.path.realpath(path))  # not Path.resolve: a loop of links must not raise
    return next((above for above in (real, *real.parents) if is_outbox(above)), None)


def find_outboxes(directory: Path) -> list[Path]:
    """Return the outboxes directly in *directory*, oldest first, or *directory* itself if it is one.

    Links are not followed.

    Raises:
        DestinationError: *directory* cannot be read.
    """
    if is_outbox(directory):
        return [directory]
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise DestinationError(
            directory, f"cannot be read ({exc.strerror}); name a --spill directory"
        ) from exc
    return [directory / name for name in names if is_outbox(directory / name)]


def find_outbox_of(location: Path | Prefix, directory: Path) -> Path | None:
    """Return an outbox in *directory* in which something of the capture at *location* may wait."""
    with suppress(DestinationError):
        for path in find_outboxes(directory):
            with suppress(OSError, ValueError):
                if _is_same(_read_description(path).destination, location):
                    return path
    return None


def spills_of(manifest: Manifest) -> list[Path]:
    """Return the spill directories of the runs in *manifest*."""
    return sorted(
        {Path(str(spill)) for run in manifest.runs if (spill := run.options.get("spill")) is not None}
    )


def find_waiting(location: Path | Prefix, manifest: Manifest) -> tuple[Path, Path] | None:
    """Return an outbox in which something of the capture at *location* may wait, and its directory."""
    for directory in (state_directory(), *spills_of(manifest)):
        if (outbox := find_outbox_of(location, directory)) is not None:
            return outbox, directory
    return None


def open_outbox(path: Path) -> int:
    """Return a descriptor of the outbox at *path*, which the caller closes.

    Raises:
        DestinationError: it is not an outbox, or another user may have written it.
    """
    if not is_outbox(path):
        raise not_an_outbox(path, DESCRIPTION)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with undone(partial(os.close, fd)):
            refuse_foreign(path, fd)
            with opened_directory(fd, [OBJECTS]) as objects_fd:
                refuse_foreign(path, objects_fd, OBJECTS)
    except OSError:
        raise not_an_outbox(path, OBJECTS) from None
    return fd


@contextmanager
def undone(undo: Callable[[], object]) -> Iterator[None]:
    """Call *undo* if the block fails."""
    try:
        yield
    except BaseException:
        undo()
        raise


def refuse_foreign(outbox: Path, fd: int, name: str = "") -> None:
    """Raise `DestinationError` if another user may have written *name* in *outbox*, open as *fd*.

    An outbox says where objects go, and with them the caller's credentials. Only the caller may say that.
    """
    found = os.fstat(fd)
    if found.st_uid != os.geteuid():
        raise DestinationError(outbox / name, f"belongs to user {found.st_uid}; upload it as that user")
    if found.st_mode & _WRITABLE_BY_OTHERS:
        command = f"chmod -R go-w {shlex.quote(str(outbox))}"
        problem = f"can be written by other users; if the content is yours: {command}"
        raise DestinationError(outbox / name, problem)


def not_an_outbox(path: Path, name: str) -> DestinationError:
    """Return the error for *path*, whose entry *name* is not that of an outbox."""
    return DestinationError(path, f"is not an outbox: its {name} cannot be read; name a --spill directory")


def clear_outbox(dir_fd: int) -> list[str]:
    """Remove the files that dumpstream makes in an outbox, and return what else is in it."""
    left: list[str] = []
    with suppress(OSError), opened_directory(dir_fd, [OBJECTS]) as objects_fd:
        left = [f"{OBJECTS}/{name}" for name in _names(objects_fd) if not _remove_object(name, objects_fd)]
    with suppress(OSError):
        os.rmdir(OBJECTS, dir_fd=dir_fd)
    for name in (*map(replacement_of, _FILES), *_FILES, LOCK):
        _remove(name, dir_fd)
    return [name for name in _names(dir_fd) if name != OBJECTS] + left


def measure_objects(path: Path) -> tuple[int, int]:
    """Return how many objects wait in the outbox at *path*, and their bytes."""
    count = size = 0
    for object_path in (path / OBJECTS).glob("*"):
        if not object_path.suffix:
            count += 1
            with suppress(OSError):  # it is uploaded by now
                size += object_path.stat().st_size
    return count, size


def upload_command(directory: Path | None) -> str:
    """Return the command that uploads what waits in *directory*, or in the state directory."""
    return "dumpstream upload" if directory is None else f"dumpstream upload {shlex.quote(str(directory))}"


def waiting_text(files: int, spill: Path | None) -> str:
    """Return how many *files* a capture with *spill* leaves behind, and the remedy."""
    what = {0: "the end of the journal waits", 1: "1 file waits"}.get(files, f"{files} files wait")
    return f"{what} for the store; upload what is missing with: {upload_command(spill)}"


def _read_description(path: Path) -> Description:
    with os.fdopen(open_regular(path / DESCRIPTION, os.O_RDONLY), "rb") as file:
        return Description.parse(file.read(LARGEST_DESCRIPTION))


def _is_same(destination: str, location: Path | Prefix) -> bool:
    if isinstance(location, Path):
        return os.path.realpath(destination) == os.path.realpath(location)
    return destination.partition("?")[0] == str(location)  # options may be in the environment instead


def _names(dir_fd: int) -> list[str]:
    with os.scandir(dir_fd) as entries:
        return sorted(entry.name for entry in entries)


def _remove_object(name: str, dir_fd: int) -> bool:
    return _OBJECT.fullmatch(name) is not None and _remove(name, dir_fd)


def _remove(name: str, dir_fd: int) -> bool:
    """Remove *name* if it is a regular file; return whether it is gone."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=dir_fd)
    return True
