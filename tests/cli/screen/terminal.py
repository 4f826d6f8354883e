"""A program in a terminal of its own, which the test reads, resizes and types into."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import termios
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEADLINE_S = 60
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class TerminalProgram:
    """Python with *arguments* in a terminal that has *columns* and *lines*, and an *environment*."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        columns: int = 80,
        lines: int = 24,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.shown = ""
        unset = {"NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"}
        kept = {name: value for name, value in os.environ.items() if name not in unset}
        every = kept | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"} | dict(environment or {})
        self._pid, self._fd = pty.fork()
        if not self._pid:
            termios.tcsetwinsize(0, (lines, columns))
            os.execve(sys.executable, [sys.executable, *arguments], every)

    def resize(self, columns: int, lines: int = 24) -> None:
        termios.tcsetwinsize(self._fd, (lines, columns))

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, pattern: str, *, after: int = 0) -> int:
        """Return where *pattern* ends in what is shown, without colours, from *after* on."""
        until = time.monotonic() + _DEADLINE_S
        while (found := re.compile(pattern).search(self.plain, after)) is None:
            assert time.monotonic() < until, self.shown
            assert self._read(), self.shown
        return found.end()

    def finish(self) -> int:
        """Return the exit code, once all output is read."""
        while self._read():
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    @property
    def plain(self) -> str:
        """What is shown, without colours."""
        return _COLOURS.sub("", self.shown)

    @property
    def frames(self) -> list[str]:
        """What was drawn between erasures, without colours."""
        return re.split(r"\r(?:\x1b\[\d+A)?\x1b\[J", self.plain)

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 1)[0]:
            return True
        try:
            read = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            return False
        self.shown += read.decode("utf-8", "replace")
        return bool(read)
