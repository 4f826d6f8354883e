"""Run the command line, as ``dumpstream`` or as ``python -m dumpstream``."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

# Nothing is to be tidied up before a command begins: Ctrl-C ends this as it ends any other program. It stays
# ignored if it is, as it is in the background of a script.
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from dumpstream import cli
from dumpstream.cli._interrupt import INTERRUPTED


def main() -> int:
    """Run the command that the process's arguments name, and return the exit code."""
    code = cli.main()
    if code == INTERRUPTED:
        _exit_at_once(code)
    return code


def _exit_at_once(code: int) -> NoReturn:
    """Exit without waiting for threads: an interrupt may have come before their pool knew of them."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
