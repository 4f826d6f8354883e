"""Agent: the library that a process loads to be captured from outside."""

import ctypes
import errno
import importlib.util
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, Self

from dumpstream._errors import AclError, CollectorError
from dumpstream._native import mark_step
from dumpstream.chunk import checked_step

#: The environment variable that tells an agent where its collector is.
SOCKET: Final = "DUMPSTREAM_SOCKET"

_PRELOAD: Final = "LD_PRELOAD"
_NAME: Final = "libdumpstream_agent.so"

_joined: ctypes.PyDLL | None = None  # the agent that `attach` has loaded


def agent_library() -> Path:
    """Return the path of the agent, a shared library for ``LD_PRELOAD``.

    Raises:
        CollectorError: the package was installed without it.
    """
    spec = importlib.util.find_spec("dumpstream._native")
    directory = Path(spec.origin).parent if spec and spec.origin else Path(__file__).parent
    path = directory / _NAME
    if not path.is_file():
        raise CollectorError(f"{path} is missing; install dumpstream again")
    return path


def target_environment(socket: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* for a process that the collector at *socket* is to capture with its children.

    Libraries that are preloaded already stay, after the agent.

    Raises:
        CollectorError: the agent is missing, or ``LD_PRELOAD`` cannot name its path.
    """
    library = str(agent_library())
    if any(character in library for character in " :"):
        raise CollectorError(
            f"LD_PRELOAD cannot name {library}, because of a space or colon; install dumpstream elsewhere"
        )
    others = [name for name in environment.get(_PRELOAD, "").replace(":", " ").split() if name != library]
    return {**environment, SOCKET: str(socket), _PRELOAD: ":".join([library, *others])}


class Attachment:
    """This process, joined to a collector until `leave`, or until the ``with`` block ends."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library: ctypes.CDLL | None = library

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Undo what joining did, and deliver nothing more; a second call does nothing.

        Blocks. Before the call, synchronise the device, and finalise a dump that you have begun yourself.
        """
        if self._library is not None:
            library, self._library = self._library, None
            library.ds_agent_leave()


def attach(socket: str | os.PathLike[str] | None = None) -> Attachment:
    """Let a collector capture this process from now on, whether or not ``aclInit`` has been called.

    Models that are loaded afterwards are dumped, by the collector's configuration or by your own. Blocks for
    up to ten seconds, while the collector makes a ring.

    Args:
        socket: where the collector listens; by default the value of ``DUMPSTREAM_SOCKET``.

    Raises:
        AclError: the callback or the configuration was refused.
        CollectorError: no collector answers, it refuses, or this process has joined one already.
    """
    path = os.fspath(socket) if socket is not None else os.environ.get(SOCKET, "")
    if not path:
        raise CollectorError(f"no collector is named; pass its socket, or set {SOCKET} to its path")
    library = ctypes.CDLL(str(agent_library()))
    if (result := library.ds_agent_join(os.fsencode(path))) > 0:
        raise AclError("acldumpRegCallback or aclmdlSetDump", result)
    if result < 0:
        raise CollectorError(_why_not_joined(path, -result))
    global _joined  # noqa: PLW0603 - the agent stays loaded, and there is one in a process
    _joined = ctypes.PyDLL(str(agent_library()))
    return Attachment(library)


def step(number: int) -> None:
    """Mark the beginning of a step: dump files that begin from now on belong to it.

    Names that have a step win. Works for a capture from outside and for one in this process, and does nothing
    where there is neither. Synchronise the device first: a chunk belongs to the step at which the runtime
    delivers it, and what it has queued to the next.

    Raises:
        ValueError: *number* is negative or has more than 18 digits.
    """
    checked = checked_step(number)
    mark_step(checked)
    for agent in (_preloaded(), _joined):
        if agent is not None:
            agent.ds_agent_step(ctypes.c_int64(checked))


@cache
def _preloaded() -> ctypes.PyDLL | None:
    """Return the agent if it was preloaded into this process."""
    # PyDLL: the call takes less time than giving the interpreter's lock away would.
    program = ctypes.PyDLL(None)
    return program if hasattr(program, "ds_agent_step") else None


def _why_not_joined(path: str, error: int) -> str:
    if error == errno.EALREADY:
        return "this process has joined a collector already; leave that one first"
    if error == errno.ENOSYS:
        return "no library in this process lets a dump callback register; load ACL before you attach"
    return (
        f"the collector at {path} cannot be joined: {os.strerror(error)}; start one there with "
        "`dumpstream collect --socket`, or read on standard error why it refused"
    )
