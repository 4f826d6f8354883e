"""One profiling process at a time: a lock that all processes of a user share."""

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from dumpstream._errors import DestinationInUseError, ProfilingError, ProfilingInUseError
from dumpstream.system.lock import take_lock


def take_turn() -> int:
    """Become the process that profiles; return what `release_lock` needs to let another.

    Raises:
        ProfilingInUseError: another process profiles, or this one already does.
        ProfilingError: the lock cannot be taken, or belongs to another user.
    """
    try:
        return _lock(Path(tempfile.gettempdir(), f"dumpstream-profiling-{os.getuid()}"))
    except OSError as exc:
        raise ProfilingError(f"no lock can be taken ({exc}); remove what is there or set TMPDIR") from exc
    except DestinationInUseError as exc:
        raise ProfilingInUseError(exc.pid) from None


def _lock(path: Path) -> int:
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    dir_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(dir_fd).st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "belongs to another user", str(path))
        return take_lock(path, dir_fd)
    finally:
        os.close(dir_fd)
