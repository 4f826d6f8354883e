"""Failures of sinks, each with its remedy."""

import errno
import os
from pathlib import Path

from zstandard import ZstdError

from dumpstream._errors import SinkError
from dumpstream.system.publishing import look_writable

_NO_SPACE = "free some space or choose another destination"
_NO_ACCESS = "make the destination writable or choose another"
_NO_DESCRIPTORS = "raise the limit of open files (ulimit -n) or lower max_descriptors"
_REMEDIES = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.EROFS: _NO_ACCESS,
    errno.EMFILE: _NO_DESCRIPTORS,
    errno.ENFILE: _NO_DESCRIPTORS,
    errno.ENOENT: "leave the directories of a running capture in place",
    errno.ENOTDIR: "remove what is in the place of a directory or choose another destination",
}


def sink_error(what: str, exc: OSError | MemoryError | ZstdError) -> SinkError:
    """Return the error that says that *exc* kept a sink from doing *what*."""
    if isinstance(exc, OSError):
        problem = os.strerror(exc.errno) if exc.errno else str(exc)
        remedy = _REMEDIES.get(exc.errno or 0, "check the destination or choose another")
    else:
        problem, remedy = str(exc) or "out of memory", "use fewer workers or a lower level"
    error = SinkError(f"cannot {what}: {problem}; {remedy}")
    # A copy, because the traceback of the original holds views of the caller's buffers.
    error.__cause__ = type(exc)(*exc.args)
    return error


def refuse_unwritable(kind: str, root: Path) -> None:
    """Raise `SinkError` if the sink *kind* cannot write below *root*; makes nothing that stays."""
    try:
        look_writable(root)
    except OSError as exc:
        what = f"write to {root} ({kind}:)"
        if exc.errno == errno.ENOENT:  # it is there, but takes no files: /proc and the like
            raise SinkError(f"cannot {what}: {exc.strerror}; choose another destination") from None
        raise sink_error(what, exc) from None
