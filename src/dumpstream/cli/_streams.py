"""Standard output and standard error, whose reader may go away, or whose disk may be full."""

import io
import os
import sys
from typing import TextIO

from typing_extensions import Buffer

from dumpstream.cli._display import say
from dumpstream.cli._exit import FAILED


class _Stream(io.FileIO):
    """A stream that keeps its first failure, and discards what comes after it."""

    failure: OSError | None = None
    raises = False  #: whether every write raises the failure, so that the command ends

    def write(self, data: Buffer, /) -> int:
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as exc:
                self.failure = exc
        if self.raises:
            raise self.failure
        return memoryview(data).nbytes


def replace_streams() -> None:
    """Let no failure of standard output or standard error end a command that has more to do than to print."""
    sys.stdout, sys.stderr = _replacement(sys.stdout), _replacement(sys.stderr)


def raise_output_failure() -> None:
    """Let a failure of standard output end the command, which only reads and prints."""
    if (output := _output()) is not None:
        output.raises = True


def output_failure() -> OSError | None:
    """Return why standard output cannot be written, if it cannot."""
    output = _output()
    return None if output is None else output.failure


def finish_output(code: int) -> int:
    """Write what is left, and return the exit code of a command that has ended with *code*.

    A reader that went away early has what it wanted; on any other failure the output is not complete.
    """
    if (output := _output()) is None:
        return code
    output.raises = False
    sys.stdout.flush()
    if output.failure is None or isinstance(output.failure, BrokenPipeError):
        return code
    remedy = "free some space, or redirect it elsewhere"
    say(f"cannot write to standard output: {output.failure.strerror}; {remedy}")
    return code or FAILED


def _output() -> _Stream | None:
    stream = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return stream if isinstance(stream, _Stream) else None


def _replacement(stream: TextIO | None) -> io.TextIOWrapper:
    """Return what takes the place of *stream*; it is None if the caller has closed it."""
    descriptor = os.open(os.devnull, os.O_WRONLY) if stream is None else stream.fileno()
    # Where Python does not buffer at all (-u, PYTHONUNBUFFERED), a line must still come out at once.
    at_once = getattr(stream, "line_buffering", False) or getattr(stream, "write_through", False)
    return io.TextIOWrapper(
        io.BufferedWriter(_Stream(descriptor, "wb", closefd=False)),
        encoding=None if stream is None else stream.encoding,
        errors="backslashreplace",  # where the terminal cannot show a character
        line_buffering=bool(at_once),
    )
