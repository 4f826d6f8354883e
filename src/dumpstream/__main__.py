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
from dumpstream.cli._exit import BY_PIPE
from dumpstream.cli._interrupt import ENDED
from dumpstream.cli._streams import finish_output, replace_streams


def main() -> int:
    """Run the command that the process's arguments name, and return the exit code."""
    replace_streams()
    try:
        code = cli.main()
    except SystemExit as exc:  # argparse has printed help, or what is wrong with the arguments
        code = exc.code if isinstance(exc.code, int) else 0
    if code in ENDED:
        _exit_at_once(code)
    if code == BY_PIPE:
        _die_by_pipe()
    return finish_output(code)


def _die_by_pipe() -> None:
    """End as programs end whose output has no reader any more, without a word."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPIPE])
    os.kill(os.getpid(), signal.SIGPIPE)


def _exit_at_once(code: int) -> NoReturn:
    """Exit without waiting for threads, some of which an interrupt may have cut off from their pool."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
