"""Run the command line, as ``dumpstream`` or as ``python -m dumpstream``."""

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

# Before a command begins, there is nothing to clean up: Ctrl-C ends the process as it ends any other program,
# unless it is ignored, as it is in the background of a script.
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
    """Exit without waiting for threads, some of which an interrupt may have cut off from their pool."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
