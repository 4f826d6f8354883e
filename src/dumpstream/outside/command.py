"""Command: a child process to be captured, which runs as it would without dumpstream."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from dumpstream.processes.liveness import ProcessHandle

#: Signals that a terminal sends to the whole foreground process group: a command there gets them itself.
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
#: Signals that are passed on.
FORWARDED: Final = (*_FROM_TERMINAL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Command:
    """A child of this process, with its terminal, its directory and its process group.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        # Python ignores these signals, and the child would inherit that.
        defaults = [signal.SIGPIPE, signal.SIGXFSZ]
        self.pid = os.posix_spawnp(words[0], list(words), environment, setsigdef=defaults, setsigmask=())
        self._process = ProcessHandle(self.pid)
        self._ended = anyio.Event()
        self._process.when_ended(self._ended.set)

    async def wait(self) -> int:
        """Return its status, as `os.waitpid` does, when it has ended; `collect` is still to be called."""
        await self._ended.wait()
        status = await self._process.status()
        assert status is not None
        return status

    def forward(self, number: signal.Signals) -> None:
        """Send it a signal that this process got, unless the terminal has sent it the same one."""
        if number not in _FROM_TERMINAL or not _in_foreground():
            self._process.send_signal(number)

    def collect(self) -> None:
        """Release it, after it has ended."""
        self._process.close()
        os.waitpid(self.pid, 0)


def _in_foreground() -> bool:
    """Whether this process group is in the foreground of its terminal."""
    with suppress(OSError), Path("/dev/tty").open("rb", buffering=0) as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False
