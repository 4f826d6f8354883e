"""Liveness: whether a process is alive, and if not, how it ended."""

import asyncio
import fcntl
import os
import re
import signal
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from anyio.to_thread import run_sync

from dumpstream._errors import CollectorError
from dumpstream.processes import KILLED

#: Since 6.15, Linux tells the holder of a pidfd how its process ended, even after its parent has reaped it.
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3
_INFO = struct.Struct("=Q52xi")  # mask; cgroup and eleven numbers; the status

_VANISHED = "vanished: its parent took its exit code"


class ProcessHandle:
    """The process *pid*, held by a pidfd, so that another process is never mistaken for it.

    For the event loop.

    Raises:
        OSError: the process does not exist, or cannot be seen from here.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self.alive = True  #: False once the event loop has seen its end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def when_ended(self, on_end: Callable[[], None]) -> None:
        """Let the event loop call *on_end* when the process has ended, or soon if it has already."""
        asyncio.get_running_loop().add_reader(self._fd, self._note_end, on_end)

    def send_signal(self, number: int) -> None:
        """Send the signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    async def status(self) -> int | None:
        """Return how it ended, as `os.waitpid` does; None if the system does not say.

        A child of this process is not reaped by it.
        """
        return await run_sync(_status, self._fd, self.pid)

    def close(self) -> None:
        """Release it; a second call does nothing."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _note_end(self, on_end: Callable[[], None]) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        self.alive = False
        on_end()


def open_process(pid: int) -> ProcessHandle:
    """Return the process of a peer.

    Raises:
        ProcessLookupError: it has ended.
        CollectorError: it cannot be seen from here.
    """
    try:
        return ProcessHandle(pid)
    except ProcessLookupError:
        raise
    except OSError as exc:
        raise CollectorError(
            f"it cannot be watched ({exc.strerror}); run the collector where it can see the process"
        ) from exc


def ending_text(status: int | None) -> str:
    """Return in words how a process ended."""
    if status is None:
        return _VANISHED
    if os.WIFSIGNALED(status):
        return f"{KILLED}{signal_name(os.WTERMSIG(status))}"
    return f"exit code {os.WEXITSTATUS(status)}"


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_code(status: int) -> int:
    """Return *status* as a shell does: the exit code, or 128 plus the number of the signal."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _status(pidfd: int, pid: int) -> int | None:
    # The kernel knows the status of a reaped process, /proc of one that is not; it may be reaped in between.
    for find in (_own_status, _reaped_status, lambda _: _unreaped_status(pid), _reaped_status):
        if (status := find(pidfd)) is not None:
            return status
    return None


def _own_status(pidfd: int) -> int | None:
    with suppress(ChildProcessError):
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if result is not None:
            return result.si_status << 8 if result.si_code == os.CLD_EXITED else result.si_status
    return None


def _reaped_status(pidfd: int) -> int | None:
    info = bytearray(_INFO.size)
    _INFO.pack_into(info, 0, _PIDFD_INFO_EXIT, 0)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, status = _INFO.unpack(info)
    return status if mask & _PIDFD_INFO_EXIT else None


def _unreaped_status(pid: int) -> int | None:
    """Return what /proc says of a process that has ended and was not reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    match = re.fullmatch(rb"\d+ \(.*\) ([ZX]) (?:-?\d+ ){48}(\d+)\n?", text, re.DOTALL)
    return int(match[2]) if match else None
